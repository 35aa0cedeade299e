"""The augmentations of the setting `augment`. `flip+randaugment` joins two of them, from left to right.

Every random choice depends only on the image's key, and is drawn on the CPU. Images stay on their device.
"""

from collections.abc import Iterable
from functools import cache
from typing import ClassVar, Literal, TypeGuard

import torch
from pydantic import create_model
from torch import Tensor

from commonfloor.options import ConfigError
from vitcore.data.augment_stages import (
    LARGE,
    WHITE,
    Distortion,
    PolicyDistortion,
    RandomBox,
    RandomDistortion,
    RandomFlip,
    RandomShift,
    ShiftOptions,
    Stage,
    ThreeAugmentOptions,
    ThreeDistortions,
    TimmDistortion,
    TrivialDistortion,
)
from vitcore.data.lookup import describe
from vitcore.runtime.device import send
from vitcore.settings import Settings, Shape
from vitcore.variant import Variant


class Augment(Variant):
    """Base class of augmentations, which turn uint8 images (B, C, H, W) into uint8 images on the same device.

    cuts: whether images are taken as stored and cropped to `image_size`, or taken as evaluation sees them.
    """

    slot = "augment"
    cuts: ClassVar[bool] = False

    def __init__(self, config: Settings) -> None: ...

    def __call__(self, images: Tensor, rng_keys: Tensor) -> Tensor:
        """Return augmented images, and leave `images` unchanged. rng_keys: the images' keys (B,), int64, on the CPU."""
        raise NotImplementedError


class Staged(Augment):
    """Base class of augmentations that apply `stages`, and have their options.

    All random numbers are drawn before an image is changed, so that a CUDA graph can hold the augmentation.
    """

    stages: ClassVar[tuple[type[Stage], ...]]

    def __init_subclass__(cls) -> None:
        if "stages" in vars(cls) and "Options" not in vars(cls):
            cls.Options = options_of_all(cls.stages)  # type: ignore[misc]

    def __init__(self, config: Settings) -> None:
        options = config.options_of(self.slot, self.Options)
        self.parts = [stage(config, options) for stage in self.stages]

    @classmethod
    def check(cls, config: Settings) -> None:
        for stage in cls.stages:
            stage.check(config, config.options_of(cls.slot, cls.Options))

    @classmethod
    def version(cls, config: Settings) -> int | str:
        """Return `numerics`, plus 1 if a stage scales the images to 0-255, or the hash of a plug-in's file."""
        version = super().version(config)
        distorts = any(issubclass(stage, Distortion) for stage in cls.stages)
        if isinstance(version, int) and distorts and describe(config.data).levels <= WHITE:
            return version + 1
        return version

    def __call__(self, images: Tensor, rng_keys: Tensor) -> Tensor:
        choices = self.choices(rng_keys, (images.shape[2], images.shape[3]))
        fixed = images.device.type != "cpu" and augments_in_graph(self, images[0].numel())
        return self.apply(images, send(choices, images.device) if fixed else choices, fixed)

    def choices(self, rng_keys: Tensor, stored: Shape) -> Tensor:
        """Draw the choices (B, n), int64, of all stages, for images of shape `stored`. rng_keys: (B,), on the CPU."""
        return torch.cat([part.choices(rng_keys, stored) for part in self.parts], dim=1)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        """Return images augmented by the choices (B, n), and leave `images` unchanged. fixed: see `Stage.apply`."""
        for part, part_choices in zip(
            self.parts, torch.split(choices, [part.draws for part in self.parts], 1), strict=True
        ):
            images = part.apply(images, part_choices, fixed)
        return images


def options_of_all(parts: Iterable[type[Stage] | type[Augment]]) -> type[Variant.Options]:
    schemas = tuple(part.Options for part in parts if part.Options.model_fields)
    return create_model("Options", __base__=schemas or Variant.Options)


def augments_in_graph(augment: Augment, size: int) -> TypeGuard[Staged]:
    """Return whether a CUDA graph, which distorts every image in every way, makes `augment` faster. size: in bytes."""
    if not isinstance(augment, Staged) or type(augment).__call__ is not Staged.__call__:
        return False
    return size < LARGE or not any(isinstance(part, Distortion) for part in augment.parts)


class NoAugment(Augment):
    """No augmentation: images stay as they are. Table 3 of arXiv 2010.11929 lists none."""

    numerics = 1

    def __call__(self, images: Tensor, rng_keys: Tensor) -> Tensor:
        return images


class Flip(Staged):
    """A horizontal flip with probability 1/2 (arXiv 2205.01580, section 2)."""

    numerics = 1
    stages = (RandomFlip,)


class Crop(Staged):
    """A crop of image size at a random position in the padded image (arXiv 1512.03385, section 4.2)."""

    numerics = 1
    stages = (RandomShift,)


class FlipCrop(Staged):
    """`crop`, then a horizontal flip with probability 1/2 (arXiv 1512.03385, section 4.2)."""

    numerics = 1
    stages = (RandomShift, RandomFlip)


class RandAugment(Staged):
    """Random operations at one magnitude (arXiv 1909.13719), as in torchvision.transforms.RandAugment."""

    numerics = 1
    stages = (RandomDistortion,)


class FlipCropRandAugment(Staged):
    """`flip-crop`, then `randaugment` (arXiv 1909.13719, section 4.2)."""

    numerics = 1
    stages = (RandomShift, RandomFlip, RandomDistortion)


class RandomResizedCrop(Staged):
    """A random box, resized to the image size (arXiv 1409.4842, section 6), as in torchvision's RandomResizedCrop.

    Resizing has antialiasing. In a pack, the box lies in the stored square, not in the whole photograph.
    """

    numerics = 1
    cuts = True
    stages = (RandomBox,)


class FlipRandomResizedCrop(Staged):
    """`random-resized-crop`, then a horizontal flip with probability 1/2 (arXiv 2205.01580, section 2)."""

    numerics = 1
    cuts = True
    stages = (RandomBox, RandomFlip)


class FlipRandomResizedCropRandAugment(Staged):
    """`flip-random-resized-crop`, then `randaugment` (arXiv 2205.01580, appendix A)."""

    numerics = 1
    cuts = True
    stages = (RandomBox, RandomFlip, RandomDistortion)


class TrivialAugment(Staged):
    """One random operation at a random magnitude (arXiv 2103.10158), as in torchvision's TrivialAugmentWide."""

    numerics = 1
    stages = (TrivialDistortion,)


class AutoAugment(Staged):
    """A random pair of operations of a learned policy (arXiv 1805.09501), as in torchvision.transforms.AutoAugment."""

    numerics = 1
    stages = (PolicyDistortion,)


class TimmRandAugment(Staged):
    """RandAugment as in timm, by default `rand-m9-mstd0.5-inc1` (https://github.com/huggingface/pytorch-image-models).

    Moved pixels are interpolated bilinearly, and the outside is middle gray. timm's scripts choose between bilinear and
    bicubic for each operation, and fill with ImageNet's mean color.
    """

    numerics = 1
    stages = (TimmDistortion,)


class ThreeAugment(Staged):
    """A random flip, then grayscale, solarize or blur, then color jitter (DeiT III: arXiv 2204.07118, section 3).

    The augmentation follows `new_data_aug_generator` of https://github.com/facebookresearch/deit. Grayscale, solarize
    and blur have equal probability. The blur's radius, as defined by PIL, is from 0.1 to 2. Brightness, contrast and
    color change in a random order.
    """

    numerics = 1
    stages = (ThreeDistortions,)


class CropThreeAugment(Staged):
    """`crop`, by default padded by reflection, then `three-augment` (simple random crop: arXiv 2204.07118)."""

    numerics = 1
    stages = (RandomShift, ThreeDistortions)

    class Options(ShiftOptions, ThreeAugmentOptions):
        fill: Literal["zeros", "reflect"] = "reflect"  #: Content of the padding.


class RandomResizedCropThreeAugment(Staged):
    """`random-resized-crop`, then `three-augment` (arXiv 2204.07118, Table 1: on ImageNet-1k).

    Resizing is bilinear unless set. facebookresearch/deit uses bicubic.
    """

    numerics = 1
    cuts = True
    stages = (RandomBox, ThreeDistortions)


class Joined(Staged):
    """Base class of several augmentations of `kinds`, one after another."""

    kinds: ClassVar[tuple[type[Staged], ...]]

    @classmethod
    def version(cls, config: Settings) -> str:
        return "+".join(str(kind.version(config)) for kind in cls.kinds)


def joinable(kind: type[Augment]) -> TypeGuard[type[Staged]]:
    """Return whether an augmentation is nothing but its stages, which a plug-in's need not be."""
    return issubclass(kind, Staged) and kind.__module__ == __name__


@cache
def joined(name: str, kinds: tuple[type[Augment], ...]) -> type[Joined]:
    """Return the augmentation `name`, which consists of `kinds`; raise ConfigError if they cannot be joined."""
    stages: list[type[Stage]] = []
    done: set[str] = set()  # what these stages do
    for part, kind in zip(name.split("+"), kinds, strict=True):
        if not joinable(kind):
            raise ConfigError(f"augment={name}: {part} cannot be joined with others")
        if kind.cuts and stages:
            raise ConfigError(f"augment={name}: {part} has to come first")
        does = set().union(*(stage.does for stage in kind.stages))
        if done & does:
            again = " and ".join(sorted(done & does))
            raise ConfigError(f"augment={name}: {part} does again what comes before it: {again}")
        done |= does
        stages += kind.stages
    contents = {"kinds": kinds, "stages": tuple(stages), "cuts": kinds[0].cuts}
    contents["Options"] = options_of_all(kinds)  # whose defaults may differ from the stages', as of crop-three-augment
    return type("Joined", (Joined,), contents)


class Augmentations(dict[str, type[Augment]]):
    """Augmentations by name. A name such as `flip+randaugment` stands for several, which are not listed."""

    def __contains__(self, name: object) -> bool:
        return all(dict.__contains__(self, part) for part in str(name).split("+"))

    def __missing__(self, name: str) -> type[Augment]:
        if "+" not in name:
            raise KeyError(name)
        return joined(name, tuple(self[part] for part in name.split("+")))

    def canonical(self, name: str) -> str:
        """Return the name of the entry that does the same as the augmentation `name`, or else `name`."""
        kind = self[name]
        if issubclass(kind, Joined):
            defaults = kind.Options().model_dump()
            for entry, other in self.items():
                if joinable(other) and other.stages == kind.stages and other.Options().model_dump() == defaults:
                    return entry
        return name


AUGMENT: Augmentations = Augmentations(
    {
        "none": NoAugment,
        "flip": Flip,
        "crop": Crop,
        "flip-crop": FlipCrop,
        "randaugment": RandAugment,
        "flip-crop-randaugment": FlipCropRandAugment,
        "trivial": TrivialAugment,
        "autoaugment": AutoAugment,
        "timm-randaugment": TimmRandAugment,
        "random-resized-crop": RandomResizedCrop,
        "flip-random-resized-crop": FlipRandomResizedCrop,
        "flip-random-resized-crop-randaugment": FlipRandomResizedCropRandAugment,
        "three-augment": ThreeAugment,
        "crop-three-augment": CropThreeAugment,
        "random-resized-crop-three-augment": RandomResizedCropThreeAugment,
    }
)
