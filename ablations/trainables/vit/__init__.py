"""Vision Transformers and their training by vitcore, as a trainable."""
