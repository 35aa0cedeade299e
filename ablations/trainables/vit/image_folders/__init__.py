"""The survey of a folder of images, from which `ablate init` writes a recipe."""
