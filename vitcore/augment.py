"""What becomes of training images before they are standardised. One class and one line of AUGMENT each.

Every choice is a pure function of the image's key, (seed, epoch, place in the dataset): neither the batch that an
image is in nor a resumption changes what it becomes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vitcore.noise import code, kept
from vitcore.variant import Variant

if TYPE_CHECKING:
    from vitcore.config import Config


class Augment(Variant):
    """Bytes (B, C, H, W) to bytes, on the device that they are on."""

    slot = "augment"

    def __init__(self, config: Config) -> None: ...

    def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
        """`keys` (B,), int64: the key of each image in this epoch."""
        raise NotImplementedError


class NoAugment(Augment):
    """The images as they are (arXiv 2010.11929 pre-trains on JFT so)."""

    numerics = 1

    def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
        return images


class Flip(Augment):
    """Left and right exchanged, with probability a half (arXiv 2205.01580, section 2)."""

    numerics = 1

    def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
        as_is = kept(keys, code("flip"), 1, 0.5).view(-1, 1, 1, 1)
        return torch.where(as_is, images, images.flip(3))


AUGMENT: dict[str, type[Augment]] = {"none": NoAugment, "flip": Flip}
