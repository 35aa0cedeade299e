"""Random numbers that are hashes of (seed, epoch, image, site, element).

An image's key combines seed, epoch and image. A site is a named place in the program that draws random numbers, such as
a dropout layer. No number depends on the batch, the device or earlier draws.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

Indices = np.ndarray[Any, np.dtype[np.int64]]
Words = np.ndarray[Any, np.dtype[np.uint64]]
Array = TypeVar("Array", Tensor, np.ndarray[Any, np.dtype[np.int32]])
RngKeys = Tensor | None  # (B,), int64: the key of each image in this epoch; None if no random numbers are drawn


def seed_of(seed: int, name: str) -> int:
    """Return the seed of the random generator that draws the initial values called `name`."""
    key = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(key[:8], "big") >> 1


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed PyTorch's random generators within the block. The generators of the CPU and of `device` are restored."""
    cuda = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(seed)
        yield


def image_keys(seed: int, epochs: Indices, places: Indices) -> Tensor:
    """Return an int64 key (B,) for each image from the seed, its epoch (B,) and its index in the dataset (B,)."""
    image = (epochs.astype(np.uint64) << np.uint64(32)) | places.astype(np.uint64)
    return torch.from_numpy(mix64(mix64(np.array([seed], np.uint64)) ^ image).view(np.int64))


def view_keys(rng_keys: Tensor, views: int) -> Tensor:
    """Return a key for each of up to 128 views of each image: (B * views,), an image's views one after the other."""
    if views == 1:
        return rng_keys
    return torch.stack([rng_keys ^ site for site in VIEWS[:views]], dim=1).flatten()


def site_code(site: str) -> int:
    """Return a signed 32-bit integer that stands for `site`, the name of a site in the model."""
    return int.from_bytes(hashlib.sha256(site.encode()).digest()[:4], "big", signed=True)


VIEWS = [site_code(f"view {view}") for view in range(128)]  # constants, because torch.compile cannot trace a hash


def keep_mask(rng_keys: Tensor, site: int, elements: int, rate: float) -> Tensor:
    """Return a random boolean mask (B, elements), in which each element is True with probability 1 - rate."""
    return bits(rng_keys, site, elements) >= round((rate - 0.5) * 2**32)


def integers(limit: int, rng_keys: Tensor, site: int, elements: int) -> Tensor:
    """Return a random int64 integer in [0, limit) for each element of each image: (B, elements)."""
    return (bits(rng_keys, site, elements).to(torch.int64) + 2**31) * limit >> 32


def integers_on_cpu(limit: int, rng_keys: Tensor, site: int, elements: int) -> Tensor:
    """Return the result of `integers` for keys on the CPU, computed with NumPy, which is faster for few elements."""
    numbers = rng_keys.numpy()
    low = numbers.astype(np.int32) ^ np.int32(site)
    high = (numbers >> 32).astype(np.int32)
    drawn = hashed_bits(low, high, np.arange(elements, dtype=np.int32))
    return torch.from_numpy((drawn.astype(np.int64) + 2**31) * limit >> 32)


def uniforms(rng_keys: Tensor, site: int, elements: int) -> Tensor:
    """Return a random float64 in [0, 1) for each element of each image: (B, elements). site: from `site_code`."""
    return (bits(rng_keys, site, elements).double() + 2**31) / 2**32


def bits(rng_keys: Tensor, site: int, elements: int) -> Tensor:
    """Return a uniform random int32 for each element of each image: (B, elements). site: from `site_code`."""
    each = torch.arange(elements, dtype=torch.int32, device=rng_keys.device)
    return hashed_bits(rng_keys.to(torch.int32) ^ site, (rng_keys >> 32).to(torch.int32), each)


def hashed_bits(low: Array, high: Array, each: Array) -> Array:
    """Return uniform random int32 numbers (B, elements), hashes of keys and element numbers `each` (elements,).

    low, high: the lower 32 bits of the keys XOR the site (B,), and the upper ones. `low` and `each` are overwritten.
    """
    image = mix(mix(low) ^ high)  # (B,)
    return mix(image[:, None] + mix(each))


def mix(x: Array) -> Array:
    """Return `x` after hashing it in place by lowbias32, a bijection (https://nullprogram.com/blog/2018/07/31/)."""
    x ^= x >> 16 & 0xFFFF
    x *= 0x7FEB352D
    x ^= x >> 15 & 0x1FFFF
    x *= 0x846CA68B - 2**32
    x ^= x >> 16 & 0xFFFF
    return x


def mix64(x: Words) -> Words:
    """Return 64-bit words hashed by the finalizer of SplitMix64 (https://prng.di.unimi.it/splitmix64.c)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
