"""The training, validation and test images of a trial, and the order in which training sees them.

Every choice (fold, validation, subset, order) is a pure function of a seed and of the kind of choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from commonfloor.options import ConfigError
from vitcore.data.augment_stages import center_crop
from vitcore.data.builtin import BUILT_IN
from vitcore.data.dataset import About, Raw, moments
from vitcore.data.homes import data_home
from vitcore.data.imagefolder import read_images
from vitcore.data.lookup import IN_FILES, STATED, describe, images_in_files, pack_hint
from vitcore.data.pack import Manifest, find_pack, manifest, open_pack
from vitcore.data.shuffle import Indices, folds, random_order, stratified_split
from vitcore.data.stream import Stored
from vitcore.runtime.device import send
from vitcore.runtime.memory import image_memory
from vitcore.settings import Settings, Shape


@dataclass(frozen=True)
class Images:
    """Images of a dataset: uint8 pixels (n, C, H, W), labels (n,), and indices in the whole dataset (n,).

    window: for a pack, whose images are channels-last, the center crop for evaluation. None for other images.
    """

    pixels: Tensor | Stored
    labels: Tensor
    index: Indices
    window: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        return len(self.index)

    def to(self, device: torch.device, resident: bool = False) -> Images:
        """Return these images on a device. A pack's images are streamed from disk unless `resident` is True."""
        if resident and isinstance(self.pixels, Stored):
            pixels: Tensor | Stored = self.pixels.resident(device)
        else:
            pixels = self.pixels.to(device)
        return replace(self, pixels=pixels, labels=self.labels.to(device))

    def select(self, indices: Indices | slice) -> Images:
        on_device: Tensor | Indices | slice = indices
        if not isinstance(indices, slice):
            on_device = send(torch.from_numpy(indices), self.labels.device)
        pixels = self.pixels[indices] if isinstance(self.pixels, Stored) else self.pixels[on_device]
        return replace(self, pixels=pixels, labels=self.labels[on_device], index=self.index[indices])

    def evaluation_view(self, pixels: Tensor) -> Tensor:
        """Return stored images (m, C, S, S) as evaluation sees them, which for a pack is their center crop."""
        return self.window(pixels) if self.window else pixels

    def batches(self, size: int) -> Iterator[Tensor]:
        """Yield batches (m, C, H, W) of up to `size` images as evaluation sees them."""
        return map(self.evaluation_view, self.pixels.split(size))


@dataclass(frozen=True)
class Data:
    """The images of a trial, and the mean and standard deviation (1, C, 1, 1) that standardize them."""

    train: Images
    val: Images
    test: Images
    mean: Tensor
    std: Tensor

    def standardize(self, images: Tensor) -> Tensor:
        """Return uint8 images (n, C, H, W) as floats of approximately zero mean and unit variance."""
        return images.to(self.mean.dtype, copy=True).sub_(self.mean).div_(self.std)  # in place: half the time

    def with_levels(self, levels: int, other: int) -> Data:
        """Return data that standardize images of `other` possible values as these do images of `levels`."""
        scale = (other - 1) / (levels - 1)
        return replace(self, mean=self.mean * scale, std=self.std * scale)

    def to(self, device: torch.device) -> Data:
        """Return the data on a device; a pack's images stay on disk if above `image_memory`. Raises as `Pack.read`."""
        size = self.train.pixels.nbytes + self.val.pixels.nbytes + self.test.pixels.nbytes
        fit = size <= image_memory(device)
        return Data(
            self.train.to(device, fit),
            self.val.to(device, fit),
            self.test.to(device, fit),
            self.mean.to(device),
            self.std.to(device),
        )


def check(config: Settings) -> None:
    """Raise ConfigError if `config` and its data differ in the number of channels or classes."""
    about = describe(config.data)
    for name in ("channels", "classes"):
        if getattr(config, name) != getattr(about, name):
            raise ConfigError(f"{name}={getattr(config, name)}: data={config.data} has {getattr(about, name)}")


def load(config: Settings, data_dir: Path | None = None) -> Data:
    """Load a trial's images on the CPU, resized to `config.image_shape`. A pack's images stay on disk.

    data_dir: folder of downloads and packs, by default ABLATE_DATA. Raises ValueError if the data are missing, damaged
    or not those of `config`, and OSError if a read fails.
    """
    check(config)
    folder = find_pack(config.data, data_dir)
    if folder is not None:
        return load_pack(config, folder)
    if config.data in STATED:
        raise ValueError(f"data={config.data}: not packed: {pack_hint(config.data)}")
    raw = read(config.data, data_home(data_dir), config.image_shape)
    images = Images(torch.from_numpy(raw.images), torch.from_numpy(raw.labels), np.arange(len(raw.labels)))
    return split_images(images, raw.train, raw.test, config, *channel_statistics(raw, describe(config.data)))


def load_pack(config: Settings, folder: Path) -> Data:
    content = manifest(folder, config.data)
    if content.about().fingerprint != describe(config.data).fingerprint:
        raise ValueError(f"data={config.data}: {folder} is not the pack that the config was made for")
    images = pack_images(folder, content, config.image_shape)
    train, test = np.split(images.index, [content.train])
    return split_images(images, train, test, config, content.mean, content.std)


def pack_images(folder: Path, content: Manifest, shape: Shape) -> Images:
    """Return all images of a pack, which evaluation sees as center crops resized to `shape`."""
    pack = open_pack(folder, content)
    window = partial(center_crop, crop=content.image_size, shape=shape)
    indices = np.arange(content.images)
    return Images(Stored(pack, indices), torch.from_numpy(pack.labels), indices, window)


def split_images(
    images: Images, train: Indices, test: Indices, config: Settings, mean: Sequence[float], std: Sequence[float]
) -> Data:
    """Return a trial's data. train, test: indices of the published parts. mean, std: of each channel."""
    indices = split(images.labels.numpy(), train, test, config, describe(config.data).folds)
    train_images, val_images, test_images = map(images.select, indices)
    return Data(train_images, val_images, test_images, per_channel(mean), per_channel(std))


def channel_statistics(raw: Raw, about: About) -> tuple[Sequence[float], Sequence[float]]:
    """Return the mean and the standard deviation of each channel, as published or else of the training images."""
    if about.mean and about.std:
        return about.mean, about.std
    counts = []
    for channel in range(raw.images.shape[1]):  # one at a time, which takes less memory
        counts.append(np.bincount(raw.images[raw.train, channel].ravel(), minlength=256))
    return moments(np.stack(counts))


def per_channel(values: Sequence[float]) -> Tensor:
    return torch.tensor(values).view(1, -1, 1, 1)


@cache  # a worker that serves many trials decodes once
def read(name: str, home: Path | None, shape: Shape) -> Raw:
    """Read each image's largest centered window of a built-in dataset or images in files, resized to `shape`."""
    if name.startswith(IN_FILES):
        return read_images(images_in_files(name), shape, describe(name).channels)
    raw = BUILT_IN[name].read(home)
    if shape == raw.images.shape[2:]:
        return raw
    images = center_crop(torch.from_numpy(raw.images), raw.images.shape[-1], shape)
    return replace(raw, images=images.numpy())


def split(
    labels: Indices, train: Indices, test: Indices, config: Settings, fold_count: int | None
) -> tuple[Indices, Indices, Indices]:
    """Return the indices of a trial's training, validation and test images, balanced over the classes.

    train, test: indices of the published parts. fold_count: number of folds, or None to keep the published test images.
    With 5 folds, data seed s tests fold s mod 5 of random partition number s div 5. All values of `data_fraction` share
    the validation images. The images of a smaller fraction are a subset of a larger fraction's images.
    """
    seed = config.data_seed
    if fold_count:
        test = folds(labels, fold_count, "folds", seed // fold_count)[seed % fold_count]
        train = np.setdiff1d(train, test)
    val, rest = stratified_split(labels, train, config.val_fraction, "validation", seed)
    if config.data_fraction < 1:
        rest, _ = stratified_split(labels, rest, config.data_fraction, "fraction", seed)
    return np.sort(rest), np.sort(val), np.sort(test)


class Order:
    """The order in which training sees its `n` images: one random permutation per epoch, end to end.

    repeats: number of consecutive times that each image is seen. An epoch still ends after `n` images, as in the
    RASampler of https://github.com/facebookresearch/deit.
    """

    def __init__(self, n: int, seed: int, repeats: int = 1) -> None:
        self.n = n
        self.seed = seed
        self.repeats = repeats
        self.epoch = -1  # whose order is in `current`
        self.current = np.empty(0, np.int64)

    def indices(self, start: int, count: int) -> Indices:
        """Return the indices (count,) of the images that training sees after the first `start` images."""
        epochs, positions = np.divmod(np.arange(start, start + count), self.n)
        indices = []
        for epoch in np.unique(epochs).tolist():
            indices.append(self.permutation(epoch)[positions[epochs == epoch]])
        return np.concatenate(indices)

    def epochs(self, start: int, count: int) -> Indices:
        """Return the epoch (count,) for the key of each image of `indices`. With repeats, each view has its own."""
        epoch, position = np.divmod(np.arange(start, start + count), self.n)
        return epoch * self.repeats + position % self.repeats

    def permutation(self, epoch: int) -> Indices:
        if epoch != self.epoch:
            images = random_order(self.n, "order", self.seed, epoch)
            self.epoch = epoch
            self.current = np.repeat(images, self.repeats)[: self.n]
        return self.current
