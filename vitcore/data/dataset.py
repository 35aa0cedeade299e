"""The facts about a dataset that are known before its images are decoded, and the decoded images."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitcore.data.shuffle import Indices

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class About:
    """The facts about a dataset that are known without decoding all images.

    image_size: side in pixels. fingerprint: values that identify the images. train_size: number of training images,
    including validation images. folds: number of folds, of which each data seed tests one, or None if there is a test
    set. mean, std: of each channel's values; None to compute them from the training images. levels: number of possible
    values of a pixel, which start at 0. class_names: name of each label, or () if unknown.
    """

    image_size: int
    channels: int
    classes: int
    train_size: int
    test_size: int
    fingerprint: dict[str, str | int]
    folds: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    levels: int = 256
    class_names: tuple[str, ...] = ()

    def steps(self, epochs: float, batch: int, data_fraction: float, val_fraction: float) -> int:
        """Return the number of steps, at least 1, in `epochs` passes over the images used for training."""
        return max(1, round(epochs * self.train_size * (1 - val_fraction) * data_fraction / batch))


@dataclass(frozen=True)
class Raw:
    """A dataset as stored: images (M, C, H, W), labels (M,), and the indices of its training and test images."""

    images: Bytes
    labels: Indices
    train: Indices
    test: Indices


def small_class(labels: Indices, train: Indices, classes: Sequence[str]) -> str:
    """Return a message about the first class with fewer than two images in `train`, or "" if there is none."""
    total = np.bincount(labels, minlength=len(classes)).tolist()
    left = np.bincount(labels[train], minlength=len(classes)).tolist()
    short = [label for label, count in enumerate(left) if count < 2]
    if not short:
        return ""
    first = short[0]
    images = "1 image" if total[first] == 1 else f"{total[first]} images"
    message = (
        f"class '{classes[first]}' has {images}, {left[first]} outside the test set: "
        "it needs at least 2, one to train and one to validate"
    )
    if len(short) > 1:
        message += f" ({len(short) - 1} more classes are as small)"
    return message


def moments(counts: np.ndarray[Any, Any]) -> tuple[list[float], list[float]]:
    """Return each channel's mean and standard deviation from its histogram (C, 256). A deviation of 0 becomes 1."""
    share = counts / counts.sum(axis=1, keepdims=True)
    level = np.arange(256)
    mean = share @ level
    std = np.sqrt((share * (level - mean[:, None]) ** 2).sum(axis=1))
    return mean.tolist(), np.where(std > 0, std, 1.0).tolist()
