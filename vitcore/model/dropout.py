"""Dropout and stochastic depth whose masks are keyed by image, so that micro-batches, ranks and resumes agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor, nn

from vitcore.keyed_random import Keys, bits, code, kept
from vitcore.model.position import POSITION, Position
from vitcore.options import ConfigError, listed

if TYPE_CHECKING:
    from vitcore.config import Config

Noise = Callable[[Tensor, Keys], Tensor]


def dropout(rate: float, site: str) -> Noise:
    return Dropout(rate, site) if rate else unchanged


def drop_path(rate: float, site: str) -> Noise:
    return DropPath(rate, site) if rate else unchanged


def patch_dropout(rate: float) -> Noise:
    return PatchDropout(rate) if rate else unchanged


def unchanged(x: Tensor, keys: Keys = None) -> Tensor:
    """Return x: no noise, or no norm. A function costs less than calling a module that does nothing."""
    return x


class Dropout(nn.Module):
    """Each element is zero with probability `rate` in training, the others scaled up (arXiv 1207.0580)."""

    def __init__(self, rate: float, site: str) -> None:
        super().__init__()
        self.rate, self.site = rate, code(site)

    def forward(self, x: Tensor, keys: Keys) -> Tensor:
        """Return x (B, ...) with the noise of training."""
        if not self.training:
            return x
        assert keys is not None, "dropout in training needs the images' keys"
        mask = kept(keys, self.site, x[0].numel(), self.rate).view(x.shape)
        return x * (mask.to(x.dtype) / (1 - self.rate))


class DropPath(nn.Module):
    """Stochastic depth: the branch of an image is left out with probability `rate` (arXiv 1603.09382)."""

    def __init__(self, rate: float, site: str) -> None:
        super().__init__()
        self.rate, self.site = rate, code("path " + site)

    def forward(self, x: Tensor, keys: Keys) -> Tensor:
        """Return x (B, ...) with the noise of training."""
        if not self.training:
            return x
        assert keys is not None, "stochastic depth in training needs the images' keys"
        mask = kept(keys, self.site, 1, self.rate).view(-1, *[1] * (x.ndim - 1))
        return x * (mask.to(x.dtype) / (1 - self.rate))


class PatchDropout(nn.Module):
    """A random share of each image's patches is left out, the others stay in order (arXiv 2208.07220, section 3)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor, keys: Keys) -> Tensor:
        """Return n of the patches of each image: x (B, N, D) to (B, n, D), n at least 1."""
        if not self.training:
            return x
        assert keys is not None, "patch dropout in training needs the images' keys"
        stay = max(1, int(x.shape[1] * (1 - self.rate)))  # as timm rounds
        places = bits(keys, code("patches"), x.shape[1]).argsort(dim=1, stable=True)[:, :stay].sort(dim=1).values
        return x.gather(1, places[..., None].expand(-1, -1, x.shape[2]))


def check_patches_may_leave(config: Config, what: str) -> None:
    """Raise ConfigError, beginning with `what`, for parts that need every patch on the grid inside of the encoder."""
    sites = ("rotate", "bias", "between")
    free = [name for name, kind in POSITION.items() if all(getattr(kind, s) is getattr(Position, s) for s in sites)]
    if config.position not in free:
        raise ConfigError(f"{what}: position={config.position} acts where patches are gone: {listed(free)}")
    if config.position_at not in ("", "input"):
        raise ConfigError(f"{what}: position_at={config.position_at}: input, as later patches are gone")
    if config.self_attention == "axial":
        raise ConfigError(f"{what}: self_attention=axial needs every patch of a row")
