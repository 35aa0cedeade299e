"""Conversion of models and weights from and to timm and torchvision, and from Google's .npz checkpoints."""
