"""What the engine trains: the interface that it asks for, and the trainables that implement it."""
