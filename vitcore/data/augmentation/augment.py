"""The augmentations that the setting `augment` names. A new augmentation is a class and a line of AUGMENT.

Every draw is a pure function of the image's key, (seed, epoch, index in the dataset), so batching and resuming do not
change it. Draws are made on the CPU; bytes are changed on the device that holds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, TypeGuard

import torch
from torch import Tensor

from vitcore.data.augmentation.distortions import (
    Distortion,
    Jitter,
    RandomDistortion,
    Strength,
    ThreeDistortions,
    TrivialDistortion,
)
from vitcore.data.augmentation.geometry import LARGE, Piece, RandomBox, RandomFlip, RandomShift, Shift, Stage
from vitcore.runtime.device import sent
from vitcore.variant import Variant

if TYPE_CHECKING:
    from vitcore.config import Config


class Augment(Variant):
    """Base of augmentations, from bytes (B, C, H, W) to bytes on the device that holds them.

    cuts: whether the augmentation takes images as stored, which in packs are larger, and returns `image_size`.
    Otherwise it takes and returns the center crop for evaluation.
    """

    slot = "augment"
    cuts: ClassVar[bool] = False

    def __init__(self, config: Config) -> None: ...

    def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
        """Return augmented images. keys: (B,), int64, on the CPU. Leaves `images` unchanged."""
        raise NotImplementedError


class Staged(Augment):
    """Base of augmentations that apply `stages` one after another.

    All draws are made before an image is touched, so that a CUDA graph can hold the augmentation. Graphs leave out a
    class that overrides `__call__`.
    """

    stages: ClassVar[tuple[type[Stage], ...]]

    def __init__(self, config: Config) -> None:
        options = config.options_of(self.slot, self.Options)
        self.parts = [stage(config, options) for stage in self.stages]

    @classmethod
    def check(cls, config: Config) -> None:
        for stage in cls.stages:
            stage.check(config, config.options_of(cls.slot, cls.Options))

    @classmethod
    def version(cls, config: Config) -> int | str:
        """Return `numerics`, plus 1 if a stage scales the images: earlier versions did not scale them."""
        own = super().version(config)
        return own + 1 if isinstance(own, int) and any(stage.scales(config) for stage in cls.stages) else own

    def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
        choices = self.choices(keys, images.shape[-1])
        if images.device.type == "cpu" or not augments_in_graph(self, images[0].numel()):
            return self.apply(images, choices, fixed=False)
        return self.apply(images, sent(choices, images.device), fixed=True)

    def choices(self, keys: Tensor, side: int) -> Tensor:
        """Draw the choices of all stages for images of `side` pixels from keys (B,) on the CPU: (B, n), int64."""
        return torch.cat([part.choices(keys, side) for part in self.parts], dim=1)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        """Return augmented images by the choices (B, n). fixed: see `Stage.apply`. Leaves `images` unchanged."""
        if self.parts[0].in_place:
            images = images.clone()
        for part, own in zip(self.parts, torch.split(choices, [part.draws for part in self.parts], 1), strict=True):
            images = part.apply(images, own, fixed)
        return images


def augments_in_graph(augment: Augment, size: int) -> TypeGuard[Staged]:
    """Return whether a CUDA graph can hold `augment` for images of `size` bytes, and makes it faster.

    Large images keep a GPU busy without a graph, and distorting some of them costs less than distorting all.
    """
    if not isinstance(augment, Staged) or type(augment).__call__ is not Staged.__call__:
        return False
    return size < LARGE or not any(isinstance(part, Distortion) for part in augment.parts)


class NoAugment(Augment):
    """Leaves images unchanged, as arXiv 2010.11929 does when pre-training on JFT."""

    numerics = 1

    def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
        return images


class Flip(Staged):
    """Flips horizontally with probability 1/2 (arXiv 2205.01580, section 2)."""

    numerics = 1
    stages = (RandomFlip,)


class Crop(Staged):
    """Pads the image and crops it at a random place (arXiv 1512.03385, section 4.2)."""

    numerics = 1
    Options = Shift
    stages = (RandomShift,)


class FlipCrop(Staged):
    """Pads, crops at a random place, and flips with probability 1/2 (arXiv 1512.03385, section 4.2)."""

    numerics = 1
    Options = Shift
    stages = (RandomShift, RandomFlip)


class RandAugment(Staged):
    """Applies random operations at one magnitude (arXiv 1909.13719), as torchvision.transforms.RandAugment."""

    numerics = 1
    Options = Strength
    stages = (RandomDistortion,)


class FlipCropRandAugment(Staged):
    """Applies `flip-crop`, then `randaugment` (arXiv 1909.13719, section 4.2)."""

    numerics = 1
    stages = (RandomShift, RandomFlip, RandomDistortion)

    class Options(Shift, Strength):
        """The options of `crop` and of `randaugment`."""


class RandomResizedCrop(Staged):
    """Crops a random box and resizes it (arXiv 1409.4842, section 6), as torchvision's RandomResizedCrop.

    Resizing is bilinear with antialiasing. In a pack, the box lies in the stored square, not in the whole photograph.
    """

    numerics = 1
    cuts = True
    Options = Piece
    stages = (RandomBox,)


class FlipRandomResizedCrop(Staged):
    """Applies `random-resized-crop`, then flips with probability 1/2 (arXiv 1409.4842, section 6)."""

    numerics = 1
    cuts = True
    Options = Piece
    stages = (RandomBox, RandomFlip)


class FlipRandomResizedCropRandAugment(Staged):
    """Applies `flip-random-resized-crop`, then `randaugment` (arXiv 2205.01580, appendix A)."""

    numerics = 1
    cuts = True
    stages = (RandomBox, RandomFlip, RandomDistortion)

    class Options(Piece, Strength):
        """The options of `random-resized-crop` and of `randaugment`."""


class TrivialAugment(Staged):
    """Applies one operation at a random magnitude (arXiv 2103.10158), as torchvision.transforms.TrivialAugmentWide."""

    numerics = 1
    stages = (TrivialDistortion,)


class ThreeAugment(Staged):
    """Flips; grays, solarizes or blurs; then changes the colors (DeiT III: arXiv 2204.07118, section 3).

    As `new_data_aug_generator` of https://github.com/facebookresearch/deit: gray, solarize and blur have equal
    probability, and the blur has PIL's radius from 0.1 to 2. Brightness, contrast and color change in a random order.
    """

    numerics = 1
    Options = Jitter
    stages = (ThreeDistortions,)


class CropThreeAugment(Staged):
    """Applies `crop` with reflected borders, then `three-augment` (DeiT III's simple random crop: arXiv 2204.07118)."""

    numerics = 1
    stages = (RandomShift, ThreeDistortions)

    class Options(Shift, Jitter):
        """The options of `crop` and of `three-augment`."""

        fill: Literal["zeros", "reflect"] = "reflect"  #: Content of the padding.


class RandomResizedCropThreeAugment(Staged):
    """Applies `random-resized-crop`, then `three-augment` (arXiv 2204.07118, Table 1: on ImageNet-1k).

    Resizing is bilinear; facebookresearch/deit uses bicubic.
    """

    numerics = 1
    cuts = True
    stages = (RandomBox, ThreeDistortions)

    class Options(Piece, Jitter):
        """The options of `random-resized-crop` and of `three-augment`."""


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
