"""Weights from and to timm, torchvision and the papers' .npz files."""
