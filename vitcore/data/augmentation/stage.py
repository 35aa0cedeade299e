"""The base of an augmentation's stages, such as a flip, a crop or a distortion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

if TYPE_CHECKING:
    from vitcore.config import Config

LARGE = 2**15  # bytes of an image; from this size on, a CPU flips images one at a time, which stay in its cache


class Stage:
    """One step of an augmentation: changes bytes (B, C, H, W) by draws made before any image is touched.

    draws: number of draws per image. in_place: whether `apply` changes the given images. options: a record that has the
    options of this stage, and may have others.
    """

    draws: int
    in_place: ClassVar[bool] = False

    def __init__(self, config: Config, options: Any) -> None: ...

    @classmethod
    def check(cls, config: Config, options: Any) -> None:
        """Raise ConfigError if the stage cannot be applied to images of `config`."""

    @classmethod
    def scales(cls, config: Config) -> bool:
        """Return whether the stage scales images of `config` to 0-255."""
        return False

    def choices(self, keys: Tensor, side: int) -> Tensor:
        """Draw the choices for images of `side` pixels from keys (B,) on the CPU: (B, draws), int64."""
        raise NotImplementedError

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        """Return the changed images.

        choices: (B, draws), on the images' device if `fixed`, else on the CPU. fixed: launch kernels that depend on
        shapes only, as a CUDA graph needs; otherwise the fastest kernels for these choices.
        """
        raise NotImplementedError
