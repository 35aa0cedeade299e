"""Data: what a name stands for, and which images train, validate and test a trial, in which order.

`describe` reads no file of built-in data; `load` never touches the network. Every choice (fold, validation,
subset, order) is a pure function of a seed and of what it is for.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitcore.datasets import (
    BUILT_IN,
    TORCHVISION,
    About,
    Indices,
    Raw,
    data_home,
    download,
    read_digits,
    read_torchvision,
)
from vitcore.imagefolder import describe_folder, read_folder
from vitcore.pack import MANIFEST, find, manifest
from vitcore.shuffle import folds, order, stratified

if TYPE_CHECKING:
    from vitcore.config import Config

__all__ = ["About", "Data", "Images", "Order", "describe", "download", "load"]

FOLDER = "imagefolder:"


@dataclass(frozen=True)
class Images:
    """Some of a dataset: bytes (n, C, H, W), labels (n,), and where each stands in the whole dataset (n,)."""

    pixels: Tensor
    labels: Tensor
    index: Indices

    def __len__(self) -> int:
        return len(self.index)

    def to(self, device: torch.device) -> Images:
        return replace(self, pixels=self.pixels.to(device), labels=self.labels.to(device))


@dataclass(frozen=True)
class Data:
    """What one trial sees, and the statistics (1, C, 1, 1) that standardise it."""

    train: Images
    val: Images
    test: Images
    mean: Tensor
    std: Tensor

    def standardise(self, images: Tensor) -> Tensor:
        """Bytes (n, C, H, W) to floats of about zero mean and unit variance."""
        return images.to(self.mean.dtype, copy=True).sub_(self.mean).div_(self.std)  # in place: half the time

    def to(self, device: torch.device) -> Data:
        return Data(
            self.train.to(device),
            self.val.to(device),
            self.test.to(device),
            self.mean.to(device),
            self.std.to(device),
        )


def describe(name: str) -> About:
    """What `name` stands for: a built-in dataset, 'imagefolder:PATH', or a pack where ABLATE_DATA or ABLATE_PACKS say.

    Raises ConfigError for an unknown name, and for a folder that is no dataset.
    """
    from vitcore.config import ConfigError

    if name in BUILT_IN:
        return BUILT_IN[name]
    if name.startswith(FOLDER):
        return describe_folder(folder_of(name))
    if (folder := find(name)) is not None:
        return manifest(folder, name).about()
    close = difflib.get_close_matches(name, [*BUILT_IN, FOLDER], n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    home = os.environ.get("ABLATE_DATA")
    where = f"in {home} there is no {name}/{MANIFEST}" if home else "none without --data-dir or ABLATE_DATA"
    raise ConfigError(f"data={name}: one of {', '.join(BUILT_IN)}, {FOLDER}PATH, or a pack ({where}){hint}")


def check(config: Config) -> None:
    """Raises ConfigError where `config` has other channels or classes than its data, of which no image is read.

    A Config alone may have them: the weights of a model for other data are still a model.
    """
    from vitcore.config import ConfigError

    about = describe(config.data)
    for name in ("channels", "classes"):
        if getattr(config, name) != getattr(about, name):
            raise ConfigError(f"{name}={getattr(config, name)}: data={config.data} has {getattr(about, name)}")


def load(config: Config, data_dir: Path | None = None) -> Data:
    """The images of one trial, on the CPU. Downloaded data lie in `data_dir`, or else where ABLATE_DATA says.

    Validation is carved out of the training images before the fraction is taken and is the same at every
    fraction; a smaller fraction is inside a larger; all are balanced over the classes. Images are resized
    where `config.image_size` is not theirs. Raises ValueError where data are missing, damaged, or not what
    `config` says.
    """
    check(config)
    about = describe(config.data)
    home = data_home(config.data, data_dir) if config.data in TORCHVISION else None
    raw = read(config.data, home, config.image_size)
    train, val, test = split(raw, config, about.folds)
    mean, std = (about.mean, about.std) if about.mean and about.std else statistics(raw)
    return Data(
        part(raw, train),
        part(raw, val),
        part(raw, test),
        torch.tensor(mean).view(1, -1, 1, 1),
        torch.tensor(std).view(1, -1, 1, 1),
    )


@cache  # a worker that serves many trials decodes once
def read(name: str, home: Path | None, size: int) -> Raw:
    """All images of a dataset at `size`."""
    if name.startswith(FOLDER):
        return read_folder(folder_of(name), size, describe(name).channels)
    raw = read_digits() if home is None else read_torchvision(name, home)
    return raw if size == raw.images.shape[-1] else replace(raw, images=resize(raw.images, size))


def folder_of(name: str) -> Path:
    return Path(os.path.expanduser(name.removeprefix(FOLDER))).resolve()  # Path's own raises for '~nobody'


def split(raw: Raw, config: Config, fold_count: int | None) -> tuple[Indices, Indices, Indices]:
    """Where the training, validation and test images of one trial stand in the dataset.

    With folds, data seed s tests fold s mod 5 of the (s div 5)th random partition, so that any five seeds
    from a multiple of five test every image once.
    """
    seed, train, test = config.data_seed, raw.train, raw.test
    if fold_count:
        test = folds(raw.labels, fold_count, "folds", seed // fold_count)[seed % fold_count]
        train = np.setdiff1d(raw.train, test)
    val, rest = stratified(raw.labels, train, config.val_fraction, "validation", seed)
    if config.data_fraction < 1:
        rest, _ = stratified(raw.labels, rest, config.data_fraction, "fraction", seed)
    return np.sort(rest), np.sort(val), np.sort(test)


def part(raw: Raw, index: Indices) -> Images:
    return Images(torch.from_numpy(raw.images[index]), torch.from_numpy(raw.labels[index]), index)


def statistics(raw: Raw) -> tuple[list[float], list[float]]:
    """Mean and deviation of each channel over the dataset's own training images: one for all trials."""
    channels = range(raw.images.shape[1])
    counts = np.stack([np.bincount(raw.images[raw.train, c].ravel(), minlength=256) for c in channels])  # (C, 256)
    share, level = counts / counts.sum(axis=1, keepdims=True), np.arange(256)
    mean = share @ level
    std = np.sqrt((share * (level - mean[:, None]) ** 2).sum(axis=1))
    return mean.tolist(), np.where(std > 0, std, 1.0).tolist()


def resize(images: np.ndarray, size: int) -> np.ndarray:
    """(M, C, H, W) bytes to (M, C, size, size), bilinear with antialiasing."""
    return F.interpolate(torch.from_numpy(images), (size, size), mode="bilinear", antialias=True).numpy()


class Order:
    """The training images in the order they are seen: one random permutation an epoch, end to end.

    Batches are always full, so one may span two epochs. A pure function of (seed, epoch, place), so there is
    nothing to save.
    """

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.seed = n, seed
        self.epoch, self.current = -1, np.empty(0, np.int64)

    def places(self, start: int, count: int) -> Indices:
        """The images seen as number `start`, `start + 1`, ... `start + count - 1` of the training."""
        taken = []
        while count:
            epoch, first = divmod(start, self.n)
            some = self.permutation(epoch)[first : first + count]
            taken.append(some)
            start, count = start + len(some), count - len(some)
        return np.concatenate(taken)

    def epochs(self, start: int, count: int) -> Indices:
        """In which epoch each of them is seen."""
        return np.arange(start, start + count) // self.n

    def permutation(self, epoch: int) -> Indices:
        if epoch != self.epoch:
            self.epoch, self.current = epoch, order(self.n, "order", self.seed, epoch)
        return self.current
