"""What becomes of training images before they are standardised. One class and one line of AUGMENT each.

Every choice is a pure function of the image's key, (seed, epoch, place in the dataset): neither the batch that an
image is in nor a resumption changes what it becomes. Choices are made on the CPU and `sent`, so that no device has to
be waited for; bytes are moved on the device that they are on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple, TypeGuard

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from vitcore.data import image_ops
from vitcore.data.crops import cut, random_boxes
from vitcore.data.lookup import describe
from vitcore.keyed_random import code, decided
from vitcore.options import ConfigError
from vitcore.runtime.device import sent
from vitcore.variant import Variant

if TYPE_CHECKING:
    from vitcore.config import Config

LEVELS = 31  # of magnitude, as in torchvision
WHITE = 255  # in torchvision's operations
LARGE = 2**15  # bytes of an image; those are flipped one by one on a CPU, in its cache


class Augment(Variant):
    """Bytes (B, C, H, W) to bytes of the same shape, on the device that they are on.

    One that `cuts` is given images as they are kept, which in packs are larger than those that are trained on, and
    makes them config.image_size; the others are given what evaluation sees, the middle.
    """

    slot = "augment"
    cuts: ClassVar[bool] = False

    def __init__(self, config: Config) -> None: ...

    def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
        """`keys` (B,), int64, on the CPU: the key of each image in this epoch. `images` stay as they are."""
        raise NotImplementedError


class Drawn(Augment):
    """Base of augmentations that draw all choices before they touch an image, so that a CUDA graph can hold them.

    Implement `choices` and `apply` alone: a class with a `__call__` of its own is left out of graphs.
    """

    def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
        choices = self.choices(keys, images.shape[-1])
        if images.device.type == "cpu" or not held(self, images[0].numel()):
            return self.apply(images, choices, fixed=False)
        return self.apply(images, sent(choices, images.device), fixed=True)

    def choices(self, keys: Tensor, side: int) -> Tensor:
        """Draw on the CPU what is done to images of `side` pixels with these keys (B,): (B, n), int64."""
        raise NotImplementedError

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        """Return the changed images. `images` stay as they are.

        fixed: the choices are on the images' device, the host reads none of them, and the launches depend on shapes
        alone. Otherwise the choices are on the CPU, and the host does what is fastest for them.
        """
        raise NotImplementedError


def held(augment: Augment, size: int) -> TypeGuard[Drawn]:
    """Whether a CUDA graph can hold what `augment` does to images of `size` bytes, and gains by it.

    Large images keep a GPU busy without a graph. An operation on some of them is cheaper than one on all.
    """
    if not isinstance(augment, Drawn) or type(augment).__call__ is not Drawn.__call__:
        return False
    return not isinstance(augment, FullRange) or size < LARGE


class NoAugment(Augment):
    """The images as they are (arXiv 2010.11929 pre-trains on JFT so)."""

    numerics = 1

    def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
        return images


class Flip(Drawn):
    """Left and right exchanged, with probability a half (arXiv 2205.01580, section 2)."""

    numerics = 1

    def choices(self, keys: Tensor, side: int) -> Tensor:
        return flips(keys)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        return flip(images.clone(), choices[:, 0], fixed)


class Shift(Augment.Options):
    """How far an image is shifted."""

    pad: Annotated[int, Field(ge=1, le=1024)] = 4  #: Pixels to each side, at most.
    fill: Literal["zeros", "reflect"] = "zeros"  #: What stands beyond the border.


class Crop(Drawn):
    """Padded, then cut to size at a random place (arXiv 1512.03385, section 4.2)."""

    numerics = 1

    class Options(Shift):
        """Of the shift."""

    def __init__(self, config: Config) -> None:
        self.shift = config.options_of(self.slot, self.Options)

    @classmethod
    def check(cls, config: Config) -> None:
        super().check(config)
        need_room(config, config.options_of(cls.slot, cls.Options))

    def choices(self, keys: Tensor, side: int) -> Tensor:
        return shifts(keys, self.shift)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        return crop(images, choices, self.shift, fixed)


class FlipCrop(Crop):
    """Padded, cut to size at a random place, flipped with probability a half (arXiv 1512.03385, section 4.2)."""

    numerics = 1

    def choices(self, keys: Tensor, side: int) -> Tensor:
        return torch.cat([flips(keys), super().choices(keys, side)], dim=1)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        return flip(super().apply(images, choices[:, 1:], fixed), choices[:, 0], fixed)


class Strength(Augment.Options):
    """How many operations, and how strong they are.

    The same strength is 10 of 10 in TensorFlow's RandAugment, and so in big_vision: its randaug(2, 10) has rotations of
    30 degrees and shears of 0.3, which are torchvision's at 30.
    """

    layers: Annotated[int, Field(ge=1, le=100)] = 2  #: Operations an image.
    magnitude: Annotated[int, Field(ge=0, lt=LEVELS)] = 10  #: How strong they are, of torchvision's 30.


class FullRange(Drawn):
    """Base of augmentations that apply torchvision's operations, which take black for 0 and white for 255.

    Images with fewer levels (digits: 0 to 16) are scaled to 0-255 before the operations and rounded back after them.
    Colour operations leave grayscale images unchanged, as in torchvision.
    """

    operations: list[Operation]

    def __init__(self, config: Config) -> None:
        self.white = describe(config.data).levels - 1
        self.magnitudes: dict[torch.device, tuple[Tensor, Tensor]] = {}

    @classmethod
    def check(cls, config: Config) -> None:
        super().check(config)
        if config.channels not in (1, 3):
            raise ConfigError(f"channels={config.channels}: augment={config.augment} takes 1 (gray) or 3 (colour)")

    @classmethod
    def version(cls, config: Config) -> int | str:
        """One higher for images that are scaled: they were not at first. The ids of all others stay."""
        own = super().version(config)
        return own + 1 if isinstance(own, int) and describe(config.data).levels - 1 < WHITE else own

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        return scale(self.distort(scale(images, self.white, WHITE), choices, fixed), WHITE, self.white)

    def distort(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        """Apply the operations to bytes (B, C, H, W) from 0 to 255. `images` stay as they are."""
        raise NotImplementedError

    def operate(self, images: Tensor, choices: Tensor, levels: Tensor, sign: Tensor, fixed: bool) -> Tensor:
        """Return each image after the operation of its choice at its level and sign, all (B,)."""
        table, signed = self.amounts(choices.device)
        amounts = table[choices, levels] * sign.where(signed[choices], 1)
        if fixed:
            return image_ops.at_once(images, [operation.apply for operation in self.operations], choices, amounts)
        return grouped(images, self.operations, choices, amounts)

    def amounts(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Of each operation its amount at each level (operations, LEVELS), and whether it goes both ways."""
        if device not in self.magnitudes:  # sent once: a CUDA graph could not hold it
            table = torch.stack([operation.amounts for operation in self.operations])
            signed = torch.tensor([operation.signed for operation in self.operations])
            self.magnitudes[device] = table.to(device), signed.to(device)
        return self.magnitudes[device]


class RandAugment(FullRange):
    """Operations drawn at random, all at one magnitude (arXiv 1909.13719), as torchvision.transforms.RandAugment.

    The image is neither flipped nor cropped.
    """

    numerics = 1

    class Options(Strength):
        """Of the operations."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.strength: Strength = config.options_of(self.slot, self.Options)
        self.operations = moderate(config.image_size)

    def choices(self, keys: Tensor, side: int) -> Tensor:
        """Of each layer its operation, then of each its sign: (B, 2 layers)."""
        layers = self.strength.layers
        return torch.cat([decided(len(self.operations), keys, code("operation"), layers), signs(keys, layers)], dim=1)

    def distort(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        levels = torch.full_like(choices[:, 0], self.strength.magnitude)
        for operation, sign in zip(*(part.unbind(1) for part in choices.chunk(2, dim=1)), strict=True):
            images = self.operate(images, operation, levels, sign, fixed)
        return images


class FlipCropRandAugment(RandAugment):
    """`flip-crop`, then `randaugment` (arXiv 1909.13719, section 4.2)."""

    numerics = 1

    class Options(Shift, Strength):
        """Of both."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.shift = config.options_of(self.slot, self.Options)

    @classmethod
    def check(cls, config: Config) -> None:
        super().check(config)
        need_room(config, config.options_of(cls.slot, cls.Options))

    def choices(self, keys: Tensor, side: int) -> Tensor:
        return torch.cat([flips(keys), shifts(keys, self.shift), super().choices(keys, side)], dim=1)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        images = flip(crop(images, choices[:, 1:3], self.shift, fixed), choices[:, 0], fixed)
        return super().apply(images, choices[:, 3:], fixed)


class Piece(Augment.Options):
    """Which box is cut out."""

    area: Annotated[float, Field(gt=0, le=1)] = 0.08  #: Share of the image, at least.
    ratio: Annotated[float, Field(ge=1)] = 4 / 3  #: The longer side over the shorter, at most.


class RandomResizedCrop(Drawn):
    """A random box, resized to the image's size (arXiv 1409.4842, section 6), as torchvision's RandomResizedCrop.

    Bilinear with antialiasing. Of a pack the box is in the stored square, not in the whole photograph.
    """

    numerics = 1
    cuts = True

    class Options(Piece):
        """Of the box."""

    def __init__(self, config: Config) -> None:
        self.size = config.image_size
        self.piece = config.options_of(self.slot, self.Options)

    def choices(self, keys: Tensor, side: int) -> Tensor:
        return random_boxes(keys, side, self.piece.area, self.piece.ratio)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        return cut(images, choices, self.size, fixed)


class FlipRandomResizedCrop(RandomResizedCrop):
    """`random-resized-crop`, flipped with probability a half (arXiv 1409.4842, section 6)."""

    numerics = 1

    def choices(self, keys: Tensor, side: int) -> Tensor:
        return torch.cat([flips(keys), super().choices(keys, side)], dim=1)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        return flip(super().apply(images, choices[:, 1:], fixed), choices[:, 0], fixed)


class FlipRandomResizedCropRandAugment(RandAugment):
    """`flip-random-resized-crop`, then `randaugment` (arXiv 2205.01580, appendix A)."""

    numerics = 1
    cuts = True

    class Options(Piece, Strength):
        """Of both."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.size = config.image_size
        self.piece = config.options_of(self.slot, self.Options)

    def choices(self, keys: Tensor, side: int) -> Tensor:
        box = random_boxes(keys, side, self.piece.area, self.piece.ratio)
        return torch.cat([flips(keys), box, super().choices(keys, side)], dim=1)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        images = flip(cut(images, choices[:, 1:5], self.size, fixed), choices[:, 0], fixed)
        return super().apply(images, choices[:, 5:], fixed)


class TrivialAugment(FullRange):
    """One operation an image, at a random magnitude (arXiv 2103.10158), as torchvision.transforms.TrivialAugmentWide.

    The image is neither flipped nor cropped.
    """

    numerics = 1

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.operations = wide()

    def choices(self, keys: Tensor, side: int) -> Tensor:
        """The operation, its magnitude and its sign: (B, 3)."""
        operation = decided(len(self.operations), keys, code("operation"), 1)
        return torch.cat([operation, decided(LEVELS, keys, code("magnitude"), 1), signs(keys, 1)], dim=1)

    def distort(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        operation, level, sign = choices.unbind(1)
        return self.operate(images, operation, level, sign, fixed)


def need_room(config: Config, shift: Shift) -> None:
    if shift.pad >= config.image_size:
        raise ConfigError(f"augment.pad={shift.pad}: less than image_size={config.image_size}")


def scale(images: Tensor, white: int, wanted: int) -> Tensor:
    """Scale bytes from 0..white to 0..wanted, rounded to the nearest."""
    return images if white == wanted else ((images.int() * wanted + white // 2) // white).to(torch.uint8)


def flips(keys: Tensor) -> Tensor:
    """Whether each image is flipped: (B, 1)."""
    return decided(2, keys, code("flip"), 1)


def flip(images: Tensor, chosen: Tensor, fixed: bool) -> Tensor:
    """Those of `chosen` (B,); in place where not `fixed`."""
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


def shifts(keys: Tensor, shift: Shift) -> Tensor:
    """A place for each window over the padded image: (B, 2)."""
    return decided(2 * shift.pad + 1, keys, code("crop"), 2)


def crop(images: Tensor, places: Tensor, shift: Shift, fixed: bool) -> Tensor:
    """Each image's window, at `places` (B, 2) of the padded image."""
    take = gathered if fixed or images.device.type != "cpu" else copied
    return take(padded(images, shift), places, *images.shape[-2:])


def gathered(images: Tensor, places: Tensor, rows: int, columns: int) -> Tensor:
    """Every place of a window is a view; one is gathered for each image."""
    top, left = sent(places, images.device).unbind(1)
    windows = images.unfold(2, rows, 1).unfold(3, columns, 1)  # (B, C, places, places, rows, columns)
    return windows[torch.arange(len(images), device=images.device), :, top, left]


def copied(images: Tensor, places: Tensor, rows: int, columns: int) -> Tensor:
    """The same, one by one: a CPU copies rows faster than it gathers bytes."""
    found = torch.empty((*images.shape[:2], rows, columns), dtype=images.dtype)
    for window, image, (top, left) in zip(found.numpy(), images.numpy(), places.tolist(), strict=True):
        window[...] = image[:, top : top + rows, left : left + columns]
    return found


def padded(images: Tensor, shift: Shift) -> Tensor:
    """(B, C, H + 2 pad, W + 2 pad)"""
    if shift.fill == "zeros":
        return F.pad(images, [shift.pad] * 4)
    across, down = (reflected(size, shift.pad, images.device) for size in (images.shape[3], images.shape[2]))
    return images[:, :, down[:, None], across]


def reflected(size: int, pad: int, device: torch.device) -> Tensor:
    """pad .. 1, 0 .. size - 1, size - 2 .. size - 1 - pad"""
    places = torch.arange(-pad, size + pad, device=device).abs()
    return torch.minimum(places, 2 * (size - 1) - places)


class Operation(NamedTuple):
    """One of image_ops: its amount at each magnitude (31,), and whether it goes both ways."""

    apply: Callable[[Tensor, Tensor], Tensor]
    amounts: Tensor
    signed: bool


def signs(keys: Tensor, elements: int) -> Tensor:
    """1 or -1: (B, elements)."""
    return 2 * decided(2, keys, code("sign"), elements) - 1


def grouped(images: Tensor, operations: list[Operation], choices: Tensor, amounts: Tensor) -> Tensor:
    """On each image the operation of its choice (B,) by its amount (B,), both on the CPU: a call an operation."""
    images = images.clone()
    places = choices.argsort(stable=True)  # those of one operation beside each other, sent at once
    counts = torch.bincount(choices, minlength=len(operations)).tolist()
    parts = (torch.split(sent(whole, images.device), counts) for whole in (places, amounts[places]))
    for operation, chosen, amount in zip(operations, *parts, strict=True):
        if len(chosen):
            images[chosen] = operation.apply(images[chosen], amount)
    return images


def moderate(size: int) -> list[Operation]:
    """RandAugment's: translations in proportion to the side of the image, `size` pixels."""
    return space(shear=0.3, translation=150 / 331 * size, angle=30.0, enhancement=0.9, bits=4)


def wide() -> list[Operation]:
    """TrivialAugment's."""
    return space(shear=0.99, translation=32.0, angle=135.0, enhancement=0.99, bits=6)


def space(shear: float, translation: float, angle: float, enhancement: float, bits: int) -> list[Operation]:
    """What may happen to an image, and how much of it at the greatest magnitude."""

    def up_to(amount: float) -> Tensor:
        return torch.linspace(0, amount, LEVELS)

    none = torch.zeros(LEVELS)
    return [
        Operation(image_ops.identity, none, False),
        Operation(image_ops.shear_x, up_to(shear), True),
        Operation(image_ops.shear_y, up_to(shear), True),
        Operation(image_ops.translate_x, up_to(translation), True),
        Operation(image_ops.translate_y, up_to(translation), True),
        Operation(image_ops.rotate, up_to(angle), True),
        Operation(image_ops.brightness, up_to(enhancement), True),
        Operation(image_ops.colour, up_to(enhancement), True),
        Operation(image_ops.contrast, up_to(enhancement), True),
        Operation(image_ops.sharpness, up_to(enhancement), True),
        Operation(image_ops.posterize, up_to(bits).round(), False),
        Operation(image_ops.solarize, torch.linspace(255, 0, LEVELS), False),
        Operation(image_ops.autocontrast, none, False),
        Operation(image_ops.equalize, none, False),
    ]


AUGMENT: dict[str, type[Augment]] = {
    "none": NoAugment,
    "flip": Flip,
    "crop": Crop,
    "flip-crop": FlipCrop,
    "randaugment": RandAugment,
    "flip-crop-randaugment": FlipCropRandAugment,
    "trivial": TrivialAugment,
    "random-resized-crop": RandomResizedCrop,
    "flip-random-resized-crop": FlipRandomResizedCrop,
    "flip-random-resized-crop-randaugment": FlipRandomResizedCropRandAugment,
}
