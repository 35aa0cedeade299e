"""Augmentations of training images, before standardization. One class and one line of AUGMENT each.

Every draw is a pure function of the image's key, (seed, epoch, index in the dataset), so batching and resuming do not
change it. Draws are made on the CPU and `sent` without blocking; bytes are changed on the device that holds them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
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

LEVELS = 31  # magnitudes, as in torchvision
WHITE = 255  # the largest value in torchvision's operations
STEPS = 2**16  # of a factor that is drawn as a whole number
ORDERS = torch.tensor(list(permutations(range(3))))  # (6, 3)
LARGE = 2**15  # bytes; from this size on, a CPU flips images one at a time, which keeps them in its cache


class Augment(Variant):
    """Maps bytes (B, C, H, W) to bytes, on the device that holds them.

    cuts: the augmentation takes images as stored, which in packs are larger than `image_size`, and returns that size.
    Otherwise it takes and returns the center crop that evaluation sees.
    """

    slot = "augment"
    cuts: ClassVar[bool] = False

    def __init__(self, config: Config) -> None: ...

    def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
        """Augment images by their keys (B,), int64, on the CPU. Leaves `images` unchanged."""
        raise NotImplementedError


class Drawn(Augment):
    """Base of augmentations that make all draws before touching an image, so that a CUDA graph can hold them.

    Implement `choices` and `apply` only: a class that overrides `__call__` is left out of graphs.
    """

    def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
        choices = self.choices(keys, images.shape[-1])
        if images.device.type == "cpu" or not held(self, images[0].numel()):
            return self.apply(images, choices, fixed=False)
        return self.apply(images, sent(choices, images.device), fixed=True)

    def choices(self, keys: Tensor, side: int) -> Tensor:
        """Draw on the CPU, from keys (B,), what to do with images of `side` pixels: (B, n), int64."""
        raise NotImplementedError

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        """Return the augmented images. Leaves `images` unchanged.

        fixed: the choices are on the images' device, and the kernels launched depend on shapes only. Otherwise the
        choices are on the CPU, which picks the fastest way for them.
        """
        raise NotImplementedError


def held(augment: Augment, size: int) -> TypeGuard[Drawn]:
    """Tell whether a CUDA graph can hold `augment` for images of `size` bytes, and is faster with it.

    Large images keep a GPU busy without a graph, and applying an operation to some of them is cheaper than to all.
    """
    if not isinstance(augment, Drawn) or type(augment).__call__ is not Drawn.__call__:
        return False
    return not isinstance(augment, FullRange) or size < LARGE


class NoAugment(Augment):
    """Leaves images unchanged, as arXiv 2010.11929 does when pre-training on JFT."""

    numerics = 1

    def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
        return images


class Flip(Drawn):
    """Flips horizontally with probability 1/2 (arXiv 2205.01580, section 2)."""

    numerics = 1

    def choices(self, keys: Tensor, side: int) -> Tensor:
        return flips(keys)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        return flip(images.clone(), choices[:, 0], fixed)


class Shift(Augment.Options):
    """The options of a random crop."""

    pad: Annotated[int, Field(ge=1, le=1024)] = 4  #: Pixels of padding on each side.
    fill: Literal["zeros", "reflect"] = "zeros"  #: Content of the padding.


class Crop(Drawn):
    """Pads the image and crops it at a random place (arXiv 1512.03385, section 4.2)."""

    numerics = 1

    Options = Shift

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
    """Pads, crops at a random place, and flips with probability 1/2 (arXiv 1512.03385, section 4.2)."""

    numerics = 1

    def choices(self, keys: Tensor, side: int) -> Tensor:
        return torch.cat([flips(keys), super().choices(keys, side)], dim=1)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        return flip(super().apply(images, choices[:, 1:], fixed), choices[:, 0], fixed)


class Strength(Augment.Options):
    """The number of operations and their strength.

    TensorFlow's RandAugment, and so big_vision's, counts magnitudes to 10: its randaug(2, 10) rotates by 30 degrees and
    shears by 0.3, which is torchvision's magnitude 30.
    """

    layers: Annotated[int, Field(ge=1, le=100)] = 2  #: Operations per image.
    magnitude: Annotated[int, Field(ge=0, lt=LEVELS)] = 10  #: Strength, up to torchvision's 30.


class FullRange(Drawn):
    """Base of augmentations that apply torchvision's operations, for which black is 0 and white is 255.

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
        """Return a version one higher for images that are scaled, which earlier versions did not scale."""
        own = super().version(config)
        return own + 1 if isinstance(own, int) and describe(config.data).levels - 1 < WHITE else own

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        return scale(self.distort(scale(images, self.white, WHITE), choices, fixed), WHITE, self.white)

    def distort(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        """Apply the operations to bytes (B, C, H, W) from 0 to 255. Leaves `images` unchanged."""
        raise NotImplementedError

    def operate(self, images: Tensor, choices: Tensor, levels: Tensor, sign: Tensor, fixed: bool) -> Tensor:
        """Apply to each image the operation chosen for it, at its level and sign; all three are (B,)."""
        table, signed = self.amounts(choices.device)
        return self.operate_by(images, choices, table[choices, levels] * sign.where(signed[choices], 1), fixed)

    def operate_by(self, images: Tensor, choices: Tensor, amounts: Tensor, fixed: bool) -> Tensor:
        """Return each image after the operation of its choice by its amount, both (B,)."""
        if fixed:
            return image_ops.at_once(images, [operation.apply for operation in self.operations], choices, amounts)
        return grouped(images, self.operations, choices, amounts)

    def amounts(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return each operation's amount at each level (operations, LEVELS), and whether it takes a sign."""
        if device not in self.magnitudes:  # sent once: a CUDA graph cannot hold the transfer
            table = torch.stack([operation.amounts for operation in self.operations])
            signed = torch.tensor([operation.signed for operation in self.operations])
            self.magnitudes[device] = table.to(device), signed.to(device)
        return self.magnitudes[device]


class RandAugment(FullRange):
    """Applies random operations at one magnitude (arXiv 1909.13719), as torchvision.transforms.RandAugment.

    Does not flip or crop.
    """

    numerics = 1

    Options = Strength

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.strength: Strength = config.options_of(self.slot, self.Options)
        self.operations = moderate(config.image_size)

    def choices(self, keys: Tensor, side: int) -> Tensor:
        """Draw an operation for each layer, then a sign for each: (B, 2 layers)."""
        layers = self.strength.layers
        return torch.cat([decided(len(self.operations), keys, code("operation"), layers), signs(keys, layers)], dim=1)

    def distort(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        levels = torch.full_like(choices[:, 0], self.strength.magnitude)
        for operation, sign in zip(*(part.unbind(1) for part in choices.chunk(2, dim=1)), strict=True):
            images = self.operate(images, operation, levels, sign, fixed)
        return images


class FlipCropRandAugment(RandAugment):
    """Applies `flip-crop`, then `randaugment` (arXiv 1909.13719, section 4.2)."""

    numerics = 1

    class Options(Shift, Strength):
        """The options of `crop` and of `randaugment`."""

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
    """The options of a random box."""

    area: Annotated[float, Field(gt=0, le=1)] = 0.08  #: Smallest share of the image's area.
    ratio: Annotated[float, Field(ge=1)] = 4 / 3  #: Largest ratio of the longer side to the shorter.


class RandomResizedCrop(Drawn):
    """Crops a random box and resizes it (arXiv 1409.4842, section 6), as torchvision's RandomResizedCrop.

    Resizing is bilinear with antialiasing. In a pack, the box lies in the stored square, not in the whole photograph.
    """

    numerics = 1
    cuts = True

    Options = Piece

    def __init__(self, config: Config) -> None:
        self.size = config.image_size
        self.piece = config.options_of(self.slot, self.Options)

    def choices(self, keys: Tensor, side: int) -> Tensor:
        return random_boxes(keys, side, self.piece.area, self.piece.ratio)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        return cut(images, choices, self.size, fixed)


class FlipRandomResizedCrop(RandomResizedCrop):
    """Applies `random-resized-crop`, then flips with probability 1/2 (arXiv 1409.4842, section 6)."""

    numerics = 1

    def choices(self, keys: Tensor, side: int) -> Tensor:
        return torch.cat([flips(keys), super().choices(keys, side)], dim=1)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        return flip(super().apply(images, choices[:, 1:], fixed), choices[:, 0], fixed)


class FlipRandomResizedCropRandAugment(RandAugment):
    """Applies `flip-random-resized-crop`, then `randaugment` (arXiv 2205.01580, appendix A)."""

    numerics = 1
    cuts = True

    class Options(Piece, Strength):
        """The options of `random-resized-crop` and of `randaugment`."""

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
    """Applies one operation at a random magnitude (arXiv 2103.10158), as torchvision.transforms.TrivialAugmentWide.

    Does not flip or crop.
    """

    numerics = 1

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.operations = wide()

    def choices(self, keys: Tensor, side: int) -> Tensor:
        """Draw an operation, its magnitude and its sign: (B, 3)."""
        operation = decided(len(self.operations), keys, code("operation"), 1)
        return torch.cat([operation, decided(LEVELS, keys, code("magnitude"), 1), signs(keys, 1)], dim=1)

    def distort(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        operation, level, sign = choices.unbind(1)
        return self.operate(images, operation, level, sign, fixed)


class Jitter(Augment.Options):
    """Whether images are flipped, and how far their colours are changed."""

    flip: bool = True  #: Left and right exchanged with probability a half. Not for what has a left and a right.
    #: Brightness, contrast and colour are multiplied by factors of at most 1 plus and at least 1 minus this.
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.3


class ThreeAugment(FullRange):
    """Flipped; gray, solarized or blurred; in other colours (DeiT III: arXiv 2204.07118, section 3).

    As `new_data_aug_generator` of https://github.com/facebookresearch/deit: each image has one of the three with equal
    probability, the blur with PIL's radius from 0.1 to 2. Then brightness, contrast and colour change in a random
    order. The image is not cropped.
    """

    numerics = 1

    class Options(Jitter):
        """Of the colours."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        options = config.options_of(self.slot, self.Options)
        self.jitter, self.flips = options.jitter, options.flip
        none = torch.zeros(LEVELS)
        self.operations = [
            Operation(apply, none, False) for apply in (image_ops.gray, image_ops.solarize, image_ops.gaussian_blur)
        ]

    def choices(self, keys: Tensor, side: int) -> Tensor:
        """The flip, one of the three, the blur's radius, the order of three changes, and their factors: (B, 9)."""
        one = decided(3, keys, code("one of three"), 1)
        radius = decided(STEPS, keys, code("radius"), 1)
        order = ORDERS[decided(len(ORDERS), keys, code("order of colours"), 1)[:, 0]]
        return torch.cat([flips(keys), one, radius, order, decided(STEPS, keys, code("colours"), 3)], dim=1)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        images = flip(images.clone(), choices[:, 0], fixed) if self.flips else images
        return super().apply(images, choices[:, 1:], fixed)

    def distort(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        one = choices[:, 0]
        amounts = (0.1 + 1.9 / STEPS * choices[:, 1]).where(one == 2, 128)  # of the blur, and of solarizing
        images = self.operate_by(images, one, amounts, fixed)
        order, factors = sent(choices[:, 2:], images.device).chunk(2, dim=1)
        return image_ops.colour_jitter(images, order, (2 * factors / STEPS - 1) * self.jitter)


class CropThreeAugment(ThreeAugment):
    """`crop` with reflected borders, DeiT III's simple random crop, then `three-augment` (arXiv 2204.07118)."""

    numerics = 1

    class Options(Shift, Jitter):
        """Of both."""

        fill: Literal["zeros", "reflect"] = "reflect"  #: What stands beyond the border.

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.shift = config.options_of(self.slot, self.Options)

    @classmethod
    def check(cls, config: Config) -> None:
        super().check(config)
        need_room(config, config.options_of(cls.slot, cls.Options))

    def choices(self, keys: Tensor, side: int) -> Tensor:
        return torch.cat([shifts(keys, self.shift), super().choices(keys, side)], dim=1)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        return super().apply(crop(images, choices[:, :2], self.shift, fixed), choices[:, 2:], fixed)


class RandomResizedCropThreeAugment(ThreeAugment):
    """`random-resized-crop`, then `three-augment` (arXiv 2204.07118, Table 1: on ImageNet-1k).

    Bilinear, where facebookresearch/deit is bicubic.
    """

    numerics = 1
    cuts = True

    class Options(Piece, Jitter):
        """Of both."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.size = config.image_size
        self.piece = config.options_of(self.slot, self.Options)

    def choices(self, keys: Tensor, side: int) -> Tensor:
        box = random_boxes(keys, side, self.piece.area, self.piece.ratio)
        return torch.cat([box, super().choices(keys, side)], dim=1)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        return super().apply(cut(images, choices[:, :4], self.size, fixed), choices[:, 4:], fixed)


def need_room(config: Config, shift: Shift) -> None:
    if shift.pad >= config.image_size:
        raise ConfigError(f"augment.pad={shift.pad}: less than image_size={config.image_size}")


def scale(images: Tensor, white: int, wanted: int) -> Tensor:
    """Scale bytes from 0..white to 0..wanted, rounded to the nearest."""
    return images if white == wanted else ((images.int() * wanted + white // 2) // white).to(torch.uint8)


def flips(keys: Tensor) -> Tensor:
    """Draw whether each image is flipped: (B, 1)."""
    return decided(2, keys, code("flip"), 1)


def flip(images: Tensor, chosen: Tensor, fixed: bool) -> Tensor:
    """Flip the images for which `chosen` (B,) is not 0; in place unless `fixed`."""
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
    """Draw the top left corner of each crop in the padded image: (B, 2)."""
    return decided(2 * shift.pad + 1, keys, code("crop"), 2)


def crop(images: Tensor, places: Tensor, shift: Shift, fixed: bool) -> Tensor:
    """Crop each image at `places` (B, 2), the top left corners in the padded image."""
    take = gathered if fixed or images.device.type != "cpu" else copied
    return take(padded(images, shift), places, *images.shape[-2:])


def gathered(images: Tensor, places: Tensor, rows: int, columns: int) -> Tensor:
    """Crop by indexing a view of all windows."""
    top, left = sent(places, images.device).unbind(1)
    windows = images.unfold(2, rows, 1).unfold(3, columns, 1)  # (B, C, places, places, rows, columns)
    return windows[torch.arange(len(images), device=images.device), :, top, left]


def copied(images: Tensor, places: Tensor, rows: int, columns: int) -> Tensor:
    """Crop one image at a time: a CPU copies rows faster than it gathers bytes."""
    found = torch.empty((*images.shape[:2], rows, columns), dtype=images.dtype)
    for window, image, (top, left) in zip(found.numpy(), images.numpy(), places.tolist(), strict=True):
        window[...] = image[:, top : top + rows, left : left + columns]
    return found


def padded(images: Tensor, shift: Shift) -> Tensor:
    """Pad images to (B, C, H + 2 pad, W + 2 pad)."""
    if shift.fill == "zeros":
        return F.pad(images, [shift.pad] * 4)
    across, down = (reflected(size, shift.pad, images.device) for size in (images.shape[3], images.shape[2]))
    return images[:, :, down[:, None], across]


def reflected(size: int, pad: int, device: torch.device) -> Tensor:
    """Return indices that pad by reflection: pad .. 1, 0 .. size - 1, size - 2 .. size - 1 - pad."""
    places = torch.arange(-pad, size + pad, device=device).abs()
    return torch.minimum(places, 2 * (size - 1) - places)


class Operation(NamedTuple):
    """A function of `image_ops`, its amount at each magnitude (31,), and whether it takes a random sign."""

    apply: Callable[[Tensor, Tensor], Tensor]
    amounts: Tensor
    signed: bool


def signs(keys: Tensor, elements: int) -> Tensor:
    """Draw 1 or -1: (B, elements)."""
    return 2 * decided(2, keys, code("sign"), elements) - 1


def grouped(images: Tensor, operations: list[Operation], choices: Tensor, amounts: Tensor) -> Tensor:
    """Apply the operation chosen for each image (B,) by its amount (B,), both on the CPU, with one call each."""
    images = images.clone()
    places = choices.argsort(stable=True)  # grouped by operation, so that one transfer suffices
    counts = torch.bincount(choices, minlength=len(operations)).tolist()
    parts = (torch.split(sent(whole, images.device), counts) for whole in (places, amounts[places]))
    for operation, chosen, amount in zip(operations, *parts, strict=True):
        if len(chosen):
            images[chosen] = operation.apply(images[chosen], amount)
    return images


def moderate(size: int) -> list[Operation]:
    """Return RandAugment's operations, whose translations are proportional to the side of the image, `size` pixels."""
    return space(shear=0.3, translation=150 / 331 * size, angle=30.0, enhancement=0.9, bits=4)


def wide() -> list[Operation]:
    """Return TrivialAugment's operations."""
    return space(shear=0.99, translation=32.0, angle=135.0, enhancement=0.99, bits=6)


def space(shear: float, translation: float, angle: float, enhancement: float, bits: int) -> list[Operation]:
    """Return the operations, given their amounts at the largest magnitude."""

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
    "three-augment": ThreeAugment,
    "crop-three-augment": CropThreeAugment,
    "random-resized-crop-three-augment": RandomResizedCropThreeAugment,
}
