"""Dropout and stochastic depth whose masks are keyed by image, so that micro-batches, ranks and resumes agree."""

from collections.abc import Callable

from torch import Tensor, nn

from vitcore.keyed_random import Keys, code, kept

Noise = Callable[[Tensor, Keys], Tensor]


def dropout(rate: float, site: str) -> Noise:
    return Dropout(rate, site) if rate else unchanged


def drop_path(rate: float, site: str) -> Noise:
    return DropPath(rate, site) if rate else unchanged


def unchanged(x: Tensor, keys: Keys = None) -> Tensor:
    """No noise, or no norm: a function, as the calls of modules that do nothing show in a small model's step."""
    return x


class Dropout(nn.Module):
    """Each element is zero with probability `rate` in training, the others scaled up (arXiv 1207.0580)."""

    def __init__(self, rate: float, site: str) -> None:
        super().__init__()
        self.rate, self.site = rate, code(site)

    def forward(self, x: Tensor, keys: Keys) -> Tensor:
        """x (B, ...)"""
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
        """x (B, ...)"""
        if not self.training:
            return x
        assert keys is not None, "stochastic depth in training needs the images' keys"
        mask = kept(keys, self.site, 1, self.rate).view(-1, *[1] * (x.ndim - 1))
        return x * (mask.to(x.dtype) / (1 - self.rate))
