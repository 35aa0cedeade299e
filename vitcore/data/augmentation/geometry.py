"""The base class of an augmentation's stages, and the stages that move pixels: flips, shifts and random boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from vitcore.data.crops import cut, random_boxes
from vitcore.keyed_random import code, decided
from vitcore.options import ConfigError
from vitcore.runtime.device import sent
from vitcore.variant import Variant

if TYPE_CHECKING:
    from vitcore.config import Config


LARGE = 2**15  # bytes of an image; from this size on, a CPU flips images one at a time, which stay in its cache


class Stage:
    """Base class of the steps of an augmentation, each of which changes uint8 images (B, C, H, W).

    draws: choices per image, all drawn before any image is changed. in_place: whether `apply` changes the given images.
    options: the options of the augmentation, which include those of this stage.
    """

    draws: int
    in_place: ClassVar[bool] = False

    def __init__(self, config: Config, options: Any) -> None: ...

    @classmethod
    def check(cls, config: Config, options: Any) -> None:
        """Raise ConfigError if the stage cannot be applied to images of `config`."""

    @classmethod
    def scales(cls, config: Config) -> bool:
        """Return whether the stage scales the images of `config` to 0-255 before its operations."""
        return False

    def choices(self, keys: Tensor, side: int) -> Tensor:
        """Draw the choices (B, draws), int64, for images of `side` x `side` pixels. keys: (B,), on the CPU."""
        raise NotImplementedError

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        """Return the changed images (B, C, H, W), uint8.

        choices: (B, draws), on the images' device if `fixed`, otherwise on the CPU. fixed: launch kernels that depend
        on shapes only, as a CUDA graph needs, instead of the fastest for these choices.
        """
        raise NotImplementedError


class RandomFlip(Stage):
    """A horizontal flip with probability 1/2."""

    draws = 1
    in_place = True

    def choices(self, keys: Tensor, side: int) -> Tensor:
        return decided(2, keys, code("flip"), 1)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        chosen = choices[:, 0]
        if fixed:
            return images.flip(3).where(chosen.bool().view(-1, 1, 1, 1), images)
        places = chosen.nonzero()[:, 0]
        if images.device.type == "cpu" and images[0].numel() >= LARGE:
            for place in places.tolist():
                images[place] = images[place].flip(2)
            return images
        places = sent(places, images.device)
        images[places] = images[places].flip(3)
        return images


class Shift(Variant.Options):
    """Options of a padded random crop."""

    pad: Annotated[int, Field(ge=1, le=1024)] = 4  #: Pixels of padding on each side.
    fill: Literal["zeros", "reflect"] = "zeros"  #: Content of the padding.


class RandomShift(Stage):
    """A crop of image size at a random position in the padded image."""

    draws = 2  # the top left corner of the crop in the padded image

    def __init__(self, config: Config, options: Shift) -> None:
        self.pad, self.fill = options.pad, options.fill

    @classmethod
    def check(cls, config: Config, options: Shift) -> None:
        if options.pad >= config.image_size:
            raise ConfigError(f"augment.pad={options.pad}: less than image_size={config.image_size}")

    def choices(self, keys: Tensor, side: int) -> Tensor:
        return decided(2 * self.pad + 1, keys, code("crop"), 2)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        take = gathered if fixed or images.device.type != "cpu" else copied
        return take(self.padded(images), choices, *images.shape[-2:])

    def padded(self, images: Tensor) -> Tensor:
        """Pad images (B, C, H, W) to (B, C, H + 2 pad, W + 2 pad), with zeros or by reflection."""
        if self.fill == "zeros":
            return F.pad(images, [self.pad] * 4)
        across, down = (reflected(size, self.pad, images.device) for size in (images.shape[3], images.shape[2]))
        return images[:, :, down[:, None], across]


def reflected(size: int, pad: int, device: torch.device) -> Tensor:
    """Return the row or column indices (size + 2 pad,) that pad an image by reflection.

    They are pad .. 1, 0 .. size - 1, size - 2 .. size - 1 - pad.
    """
    places = torch.arange(-pad, size + pad, device=device).abs()
    return torch.minimum(places, 2 * (size - 1) - places)


def gathered(images: Tensor, places: Tensor, rows: int, columns: int) -> Tensor:
    """Return crops (B, C, rows, columns) with top left corners `places` (B, 2), indexed from a view of all windows."""
    top, left = sent(places, images.device).unbind(1)
    windows = images.unfold(2, rows, 1).unfold(3, columns, 1)  # (B, C, places, places, rows, columns)
    return windows[torch.arange(len(images), device=images.device), :, top, left]


def copied(images: Tensor, places: Tensor, rows: int, columns: int) -> Tensor:
    """Return the crops that `gathered` returns, copied one image at a time, which is faster on a CPU."""
    found = torch.empty((*images.shape[:2], rows, columns), dtype=images.dtype)
    for window, image, (top, left) in zip(found.numpy(), images.numpy(), places.tolist(), strict=True):
        window[...] = image[:, top : top + rows, left : left + columns]
    return found


class Piece(Variant.Options):
    """Options of a random box: its smallest area and largest aspect ratio."""

    area: Annotated[float, Field(gt=0, le=1)] = 0.08  #: Smallest fraction of the image's area.
    ratio: Annotated[float, Field(ge=1)] = 4 / 3  #: Largest ratio of the longer side to the shorter.


class RandomBox(Stage):
    """A random box of the image, resized to `image_size`."""

    draws = 4  # top, left, height and width of the box

    def __init__(self, config: Config, options: Piece) -> None:
        self.size, self.area, self.ratio = config.image_size, options.area, options.ratio

    def choices(self, keys: Tensor, side: int) -> Tensor:
        return random_boxes(keys, side, self.area, self.ratio)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        return cut(images, choices, self.size, fixed)
