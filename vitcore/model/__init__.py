"""The parts of the Vision Transformer, from the stem to the head."""
