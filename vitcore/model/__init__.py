"""The Vision Transformer, part by part."""
