"""Stages that apply torchvision's operations: those of RandAugment, TrivialAugment and 3-Augment."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from vitcore.data.augmentation import image_ops
from vitcore.data.augmentation.geometry import RandomFlip, Stage
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


class Operation(NamedTuple):
    """A function of `image_ops`, its amounts (31,) by magnitude, and whether the amount has a random sign."""

    apply: Callable[[Tensor, Tensor], Tensor]
    amounts: Tensor
    signed: bool


class Distortion(Stage):
    """Base of stages that apply torchvision's operations, for which black is 0 and white is 255.

    Images with fewer levels (digits: 0 to 16) are scaled to 0-255 before the operations and rounded back after them.
    Color operations leave grayscale images unchanged, as in torchvision.
    """

    operations: list[Operation]

    def __init__(self, config: Config, options: Any) -> None:
        self.white = describe(config.data).levels - 1
        self.magnitudes: dict[torch.device, tuple[Tensor, Tensor]] = {}

    @classmethod
    def check(cls, config: Config, options: Any) -> None:
        if config.channels not in (1, 3):
            raise ConfigError(f"channels={config.channels}: augment={config.augment} takes 1 (gray) or 3 (colour)")

    @classmethod
    def scales(cls, config: Config) -> bool:
        return describe(config.data).levels - 1 < WHITE

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        return scale(self.distort(scale(images, self.white, WHITE), choices, fixed), WHITE, self.white)

    def distort(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        """Apply the operations to bytes (B, C, H, W) from 0 to 255. fixed: see `Stage`. Leaves `images` unchanged."""
        raise NotImplementedError

    def operate(self, images: Tensor, choices: Tensor, levels: Tensor, sign: Tensor, fixed: bool) -> Tensor:
        """Apply to each image the operation number `choices` (B,) at magnitude `levels` (B,), with `sign` (B,)."""
        table, signed = self.amounts(choices.device)
        return self.operate_by(images, choices, table[choices, levels] * sign.where(signed[choices], 1), fixed)

    def operate_by(self, images: Tensor, choices: Tensor, amounts: Tensor, fixed: bool) -> Tensor:
        """Apply to each image the operation number `choices` (B,) by `amounts` (B,)."""
        if fixed:
            return image_ops.at_once(images, [operation.apply for operation in self.operations], choices, amounts)
        return grouped(images, self.operations, choices, amounts)

    def amounts(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the amounts of all operations (operations, LEVELS), and which have a sign (operations,)."""
        if device not in self.magnitudes:  # copied once: a CUDA graph cannot hold the transfer
            table = torch.stack([operation.amounts for operation in self.operations])
            signed = torch.tensor([operation.signed for operation in self.operations])
            self.magnitudes[device] = table.to(device), signed.to(device)
        return self.magnitudes[device]


class Strength(Variant.Options):
    """The number of operations and their strength.

    In TensorFlow and big_vision, magnitude 10 is the largest: randaug(2, 10) there is torchvision's magnitude 30.
    """

    layers: Annotated[int, Field(ge=1, le=100)] = 2  #: Operations per image.
    magnitude: Annotated[int, Field(ge=0, lt=LEVELS)] = 10  #: Strength, up to torchvision's 30.


class RandomDistortion(Distortion):
    """Applies `layers` random operations at one magnitude, as RandAugment."""

    def __init__(self, config: Config, options: Strength) -> None:
        super().__init__(config, options)
        self.layers, self.magnitude = options.layers, options.magnitude
        self.draws = 2 * self.layers  # an operation for each layer, then a sign for each
        self.operations = moderate(config.image_size)

    def choices(self, keys: Tensor, side: int) -> Tensor:
        operations = decided(len(self.operations), keys, code("operation"), self.layers)
        return torch.cat([operations, signs(keys, self.layers)], dim=1)

    def distort(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        levels = torch.full_like(choices[:, 0], self.magnitude)
        for operation, sign in zip(*(part.unbind(1) for part in choices.chunk(2, dim=1)), strict=True):
            images = self.operate(images, operation, levels, sign, fixed)
        return images


class TrivialDistortion(Distortion):
    """Applies one random operation at a random magnitude, as TrivialAugment."""

    draws = 3  # the operation, its magnitude and its sign

    def __init__(self, config: Config, options: Any) -> None:
        super().__init__(config, options)
        self.operations = wide()

    def choices(self, keys: Tensor, side: int) -> Tensor:
        operation = decided(len(self.operations), keys, code("operation"), 1)
        return torch.cat([operation, decided(LEVELS, keys, code("magnitude"), 1), signs(keys, 1)], dim=1)

    def distort(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        operation, level, sign = choices.unbind(1)
        return self.operate(images, operation, level, sign, fixed)


class Jitter(Variant.Options):
    """The options of the flip and the color changes."""

    flip: bool = True  #: Exchange left and right with probability 1/2. Not for images in which the side matters.
    #: Largest change of brightness, contrast and color: factors from 1 - jitter to 1 + jitter.
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.3


class ThreeDistortions(Distortion):
    """Flips if `flip`; grays, solarizes or blurs; then changes the colors, as 3-Augment."""

    draws = 9  # the flip, one of the three, the blur's radius, the order of three changes, and their factors

    def __init__(self, config: Config, options: Jitter) -> None:
        super().__init__(config, options)
        self.jitter, self.flip = options.jitter, RandomFlip(config, options) if options.flip else None
        none = torch.zeros(LEVELS)
        self.operations = [
            Operation(apply, none, False) for apply in (image_ops.gray, image_ops.solarize, image_ops.gaussian_blur)
        ]

    def choices(self, keys: Tensor, side: int) -> Tensor:
        flips = decided(2, keys, code("flip"), 1)
        one = decided(3, keys, code("one of three"), 1)
        radius = decided(STEPS, keys, code("radius"), 1)
        order = ORDERS[decided(len(ORDERS), keys, code("order of colours"), 1)[:, 0]]
        return torch.cat([flips, one, radius, order, decided(STEPS, keys, code("colours"), 3)], dim=1)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        images = self.flip.apply(images.clone(), choices[:, :1], fixed) if self.flip else images
        return super().apply(images, choices[:, 1:], fixed)

    def distort(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        one = choices[:, 0]
        amounts = (0.1 + 1.9 / STEPS * choices[:, 1]).where(one == 2, 128)  # blur's radius, solarize's threshold
        images = self.operate_by(images, one, amounts, fixed)
        order, factors = sent(choices[:, 2:], images.device).chunk(2, dim=1)
        return image_ops.colour_jitter(images, order, (2 * factors / STEPS - 1) * self.jitter)


def scale(images: Tensor, white: int, wanted: int) -> Tensor:
    """Scale bytes from the range 0..white to 0..wanted, rounded to the nearest."""
    return images if white == wanted else ((images.int() * wanted + white // 2) // white).to(torch.uint8)


def signs(keys: Tensor, elements: int) -> Tensor:
    """Draw 1 or -1 for keys (B,): (B, elements)."""
    return 2 * decided(2, keys, code("sign"), elements) - 1


def grouped(images: Tensor, operations: list[Operation], choices: Tensor, amounts: Tensor) -> Tensor:
    """Apply to each image its operation (B,) by its amount (B,), both on the CPU: one call per operation."""
    images = images.clone()
    places = choices.argsort(stable=True)  # grouped by operation, so that one transfer suffices
    counts = torch.bincount(choices, minlength=len(operations)).tolist()
    parts = (torch.split(sent(whole, images.device), counts) for whole in (places, amounts[places]))
    for operation, chosen, amount in zip(operations, *parts, strict=True):
        if len(chosen):
            images[chosen] = operation.apply(images[chosen], amount)
    return images


def moderate(size: int) -> list[Operation]:
    """Return RandAugment's operations for images of `size` pixels."""
    return space(shear=0.3, translation=150 / 331 * size, angle=30.0, enhancement=0.9, bits=4)


def wide() -> list[Operation]:
    """Return TrivialAugment's operations."""
    return space(shear=0.99, translation=32.0, angle=135.0, enhancement=0.99, bits=6)


def space(shear: float, translation: float, angle: float, enhancement: float, bits: int) -> list[Operation]:
    """Return the operations, given their amounts at the largest magnitude (pixels, degrees, bits, factors)."""

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
