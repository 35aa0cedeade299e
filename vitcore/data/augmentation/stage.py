"""Stage: one step of an augmentation, such as a flip, a crop or a distortion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

if TYPE_CHECKING:
    from vitcore.config import Config

LARGE = 2**15  # bytes; from this size on, a CPU flips images one at a time, which keeps them in its cache


class Stage:
    """Changes a batch of bytes (B, C, H, W) by draws made before any image is touched.

    draws: the number n of an image's draws. in_place: changes the images that it is given. `options` is a record that
    has the stage's own options among others.
    """

    draws: int
    in_place: ClassVar[bool] = False

    def __init__(self, config: Config, options: Any) -> None: ...

    @classmethod
    def check(cls, config: Config, options: Any) -> None:
        """Raise ConfigError where the stage cannot be applied to images of `config`."""

    @classmethod
    def scales(cls, config: Config) -> bool:
        """Return whether the stage scales images of `config` to 0-255."""
        return False

    def choices(self, keys: Tensor, side: int) -> Tensor:
        """Draw on the CPU, from keys (B,), what to do with images of `side` pixels: (B, draws), int64."""
        raise NotImplementedError

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        """Return the changed images.

        fixed: the choices are on the images' device, and the kernels launched depend on shapes only. Otherwise the
        choices are on the CPU, which picks the fastest way for them.
        """
        raise NotImplementedError
