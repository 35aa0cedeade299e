"""Random choices that are a hash of (seed, epoch, image, site, element).

Seed, epoch and image make an image's key. No choice depends on the batch, on the device or on earlier draws, so
micro-batches, ranks and resumed trainings agree.
"""

import hashlib
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

Indices = np.ndarray[Any, np.dtype[np.int64]]
Words = np.ndarray[Any, np.dtype[np.uint64]]
Array = TypeVar("Array", Tensor, np.ndarray[Any, np.dtype[np.int32]])
Keys = Tensor | None  # (B,), int64: the key of each image in this epoch; None outside of training


def image_keys(seed: int, epochs: Indices, places: Indices) -> Tensor:
    """Return the keys (B,), int64, of images by index `places` (B,) and `epochs` (B,), distinct within a seed."""
    image = (epochs.astype(np.uint64) << np.uint64(32)) | places.astype(np.uint64)
    return torch.from_numpy(mix64(mix64(np.array([seed], np.uint64)) ^ image).view(np.int64))


def code(site: str) -> int:
    """Return a 32-bit code for the name of a site in the model."""
    return int.from_bytes(hashlib.sha256(site.encode()).digest()[:4], "big", signed=True)


def kept(keys: Tensor, site: int, elements: int, rate: float) -> Tensor:
    """Draw which elements of each image stay (B, elements), each with probability 1 - rate."""
    return bits(keys, site, elements) >= round((rate - 0.5) * 2**32)


def below(limit: int, keys: Tensor, site: int, elements: int) -> Tensor:
    """Draw an integer in [0, limit) for each element of each image: (B, elements), int64."""
    return (bits(keys, site, elements).to(torch.int64) + 2**31) * limit >> 32


def decided(limit: int, keys: Tensor, site: int, elements: int) -> Tensor:
    """Draw the integers of `below` for keys on the CPU by NumPy, which is faster for a few elements."""
    own = keys.numpy()
    low, high = own.astype(np.int32) ^ np.int32(site), (own >> 32).astype(np.int32)
    found = spread(low, high, mixed(elements))
    return torch.from_numpy((found.astype(np.int64) + 2**31) * limit >> 32)


def bits(keys: Tensor, site: int, elements: int) -> Tensor:
    """Draw a uniform int32 for each element of each image: (B, elements)."""
    each = torch.arange(elements, dtype=torch.int32, device=keys.device)
    return spread(keys.to(torch.int32) ^ site, (keys >> 32).to(torch.int32), mix(each))


@cache
def mixed(elements: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return the mixed element numbers (elements,) of an image, cached."""
    return mix(np.arange(elements, dtype=np.int32))


def spread(low: Array, high: Array, each: Array) -> Array:
    """Mix the halves of keys (B,) with mixed element numbers (elements,), all int32: (B, elements)."""
    image = mix(mix(low) ^ high)  # (B,)
    return mix(image[:, None] + each)


def mix(x: Array) -> Array:
    """Mix 32 bits in place by lowbias32, a bijection (https://nullprogram.com/blog/2018/07/31/)."""
    x ^= x >> 16 & 0xFFFF
    x *= 0x7FEB352D
    x ^= x >> 15 & 0x1FFFF
    x *= 0x846CA68B - 2**32
    x ^= x >> 16 & 0xFFFF
    return x


def mix64(x: Words) -> Words:
    """Mix 64 bits with the finalizer of SplitMix64 (https://prng.di.unimi.it/splitmix64.c)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
