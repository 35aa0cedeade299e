"""A command line of the user's as a trainable: what a recipe says of it, and how it runs."""
