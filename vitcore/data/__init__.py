"""Datasets, packs, streaming, augmentation and the order of training images."""
