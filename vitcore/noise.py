"""Dropout and stochastic depth whose masks are a hash of (seed, epoch, image, site, element).

The first three are an image's key. No mask depends on the batch that its image is in, on the device or on what was
drawn before: micro-batches, ranks and resumed trainings agree.
"""

import hashlib

import torch
from torch import Tensor, nn

Keys = Tensor | None  # (B,), int64: the key of each image in this epoch; None outside of training


class Dropout(nn.Module):
    """Each element is zero with probability `rate` in training, the others scaled up (arXiv 1207.0580)."""

    def __init__(self, rate: float, site: str) -> None:
        super().__init__()
        self.rate, self.site = rate, code(site)

    def forward(self, x: Tensor, keys: Keys) -> Tensor:
        """x (B, ...)"""
        if not self.rate or not self.training:
            return x
        assert keys is not None, "dropout in training needs the images' keys"
        return x * kept(keys, self.site, x[0].numel(), self.rate).view(x.shape).to(x.dtype) / (1 - self.rate)


class DropPath(nn.Module):
    """Stochastic depth: the branch of an image is left out with probability `rate` (arXiv 1603.09382)."""

    def __init__(self, rate: float, site: str) -> None:
        super().__init__()
        self.rate, self.site = rate, code("path " + site)

    def forward(self, x: Tensor, keys: Keys) -> Tensor:
        """x (B, ...)"""
        if not self.rate or not self.training:
            return x
        assert keys is not None, "stochastic depth in training needs the images' keys"
        mask = kept(keys, self.site, 1, self.rate).view(-1, *[1] * (x.ndim - 1))
        return x * mask.to(x.dtype) / (1 - self.rate)


def code(site: str) -> int:
    """32 bits that stand for a place in the model."""
    return int.from_bytes(hashlib.sha256(site.encode()).digest()[:4], "big", signed=True)


def kept(keys: Tensor, site: int, elements: int, rate: float) -> Tensor:
    """Which elements of each image stay (B, elements), each with probability 1 - rate."""
    image = mix(mix(keys.to(torch.int32) ^ site) ^ (keys >> 32).to(torch.int32))  # (B,)
    element = torch.arange(elements, dtype=torch.int32, device=keys.device)
    return mix(image[:, None] + mix(element)) >= round((rate - 0.5) * 2**32)


def mix(x: Tensor) -> Tensor:
    """A bijection of 32 bits in which each bit of x flips about half of the result (Chris Wellons' lowbias32)."""
    x = (x ^ (x >> 16 & 0xFFFF)) * 0x7FEB352D
    x = (x ^ (x >> 15 & 0x1FFFF)) * (0x846CA68B - 2**32)
    return x ^ (x >> 16 & 0xFFFF)
