"""Augmentations of training images: crops, flips, distortions, erasing, mixup and CutMix."""
