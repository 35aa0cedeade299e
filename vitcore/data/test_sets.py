"""Test images of other datasets than a trial's, by name: a built-in dataset, a pack or a folder of class folders.

Digits and a folder of class folders, which have no test set, give all images.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from commonfloor.options import ConfigError
from vitcore.data.builtin import BUILT_IN
from vitcore.data.dataset import About
from vitcore.data.homes import data_home, data_homes
from vitcore.data.imagefolder import Listing, describe_images, list_images, read_images
from vitcore.data.lookup import searched_folders
from vitcore.data.pack import Manifest, find_pack, manifest
from vitcore.data.splits import Images, pack_images, read
from vitcore.settings import Shape

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class TestSet:
    """The test images of a dataset. Labels are indices of `class_names`.

    load: (height and width in pixels, channels) -> the images. fingerprint: returns values that identify them.
    channels: None for any number. label_sets: the right labels of each image, if there may be several, or none.
    """

    class_names: Sequence[str]
    load: Callable[[Shape, int], Images]
    fingerprint: Callable[[], dict[str, str | int]]
    levels: int = 256
    channels: int | None = None
    label_sets: Sequence[Sequence[int]] | None = None

    def trained_labels(self, trained: About, where: str) -> list[int]:
        """Return the label in the trial's data `trained` of each class; raise ConfigError if one has none."""
        if not trained.class_names:
            raise ConfigError(f"{where}: the names of the classes of the trial's data are not known: pack the data")
        labels = {name: label for label, name in enumerate(trained.class_names)}
        unknown = [name for name in self.class_names if name not in labels]
        if unknown:
            first = ", ".join(trained.class_names[:3])
            raise ConfigError(
                f"{where}: class '{unknown[0]}' is none of the {len(labels):,} that the model was trained on "
                f"({first} ...): classes are matched by name, so rename its folder (a pack is packed anew)"
            )
        return [labels[name] for name in self.class_names]


def find_test_set(name: str, data_dir: Path | None = None) -> TestSet:
    """Return the test set called `name`. Raises ConfigError if there is none, or if it is invalid."""
    if name in BUILT_IN:
        about = BUILT_IN[name].about
        load = partial(load_built_in, name, data_home(data_dir))
        return TestSet(about.class_names, load, lambda: about.fingerprint, about.levels, about.channels)
    folder = find_pack(name, data_dir)
    if folder is not None:
        content = manifest(folder, name)
        about = content.about()
        load = partial(load_pack_test, folder, content)
        channels = content.channels
        return TestSet(content.classes, load, lambda: about.fingerprint, about.levels, channels, content.label_sets)
    home = None
    if NAME.fullmatch(name):
        home = next(filter(Path.is_dir, data_homes(name, data_dir)), None)
    if home is not None:
        listing = tested_images(home)
        return TestSet(listing.classes, partial(load_files, listing), lambda: describe_images(listing).fingerprint)
    where = searched_folders(name, data_dir)
    raise ConfigError(f"{name}: one of {', '.join(BUILT_IN)}, a pack, or a folder beside the packs ({where})")


def load_built_in(name: str, home: Path | None, shape: Shape, channels: int) -> Images:
    raw = read(name, home, shape)
    indices = raw.test if len(raw.test) else raw.train
    images = Images(torch.from_numpy(raw.images), torch.from_numpy(raw.labels), np.arange(len(raw.labels)))
    return images.select(indices)


def load_pack_test(folder: Path, content: Manifest, shape: Shape, channels: int) -> Images:
    images = pack_images(folder, content, shape)
    return images.select(images.index[content.train :])


def load_files(listing: Listing, shape: Shape, channels: int) -> Images:
    raw = read_images(listing, shape, channels)
    return Images(torch.from_numpy(raw.images), torch.from_numpy(raw.labels), raw.test)


def tested_images(root: Path) -> Listing:
    """Return the test images of a folder alone."""
    listing = list_images(root)
    tested = listing.test if listing.parts else np.arange(len(listing.files))
    files = [listing.files[index] for index in tested.tolist()]
    return replace(listing, files=files, labels=listing.labels[tested], train=tested[:0], test=np.arange(len(files)))
