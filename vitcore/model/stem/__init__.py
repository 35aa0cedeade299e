"""The stems, which map images to patch tokens. To add a stem, write a class in this folder and add it to STEM."""

from vitcore.model.stem.convolutional import ConvStem, HMLPStem
from vitcore.model.stem.patch import PatchStem, Stem
from vitcore.model.stem.resnet import ResNetStem, SmallResNetStem
from vitcore.settings import Settings

__all__ = ["STEM", "ConvStem", "HMLPStem", "PatchStem", "ResNetStem", "SmallResNetStem", "Stem", "patch_sizes"]

STEM: dict[str, type[Stem]] = {
    "patch": PatchStem,
    "conv": ConvStem,
    "hmlp": HMLPStem,
    "resnet": ResNetStem,
    "resnet-small": SmallResNetStem,
}


def patch_sizes(config: Settings) -> list[int]:
    """Return the patch sizes in pixels that training steps draw from, by default only `patch`."""
    return STEM[config.stem].patches(config)
