"""The data of trials: their numbers of images, how they are split, and the state of their files."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from results.store.schemas.base import Settings
from results.store.schemas.plans import PlannedData, Split
from vitcore.config import Config
from vitcore.data.builtin import BUILT_IN
from vitcore.data.dataset import About
from vitcore.data.homes import data_home
from vitcore.data.imagefolder import check_images
from vitcore.data.lookup import IN_FILES, STATED, describe, images_in_files, pack_hint
from vitcore.data.pack import find_pack, manifest, open_pack
from vitcore.settings import image_shape
from vitcore.training import parents

WILDCARDS = re.compile(r"[*?\[{]")


def describe_data(settings: Settings) -> PlannedData:
    name = settings["data"]
    about = describe(name)
    return PlannedData(
        name=display_name(name),
        train=about.train_size,
        test=about.test_size,
        folds=about.folds,
        classes=about.classes,
        image_size=about.image_size,
        channels=about.channels,
        of_recipe=True,
    )


def display_name(name: str) -> str:
    """Return the display name of a data set. For images in files, it is the last name without wildcards in the path."""
    if not name.startswith(IN_FILES):
        return name
    path = os.path.abspath(name.partition(":")[2].partition("#")[0])
    while WILDCARDS.search(os.path.basename(path)):
        path = os.path.dirname(path)
    return os.path.basename(path)


def assume_data(name: str, facts: Mapping[str, int], data_dir: Path | None) -> str:
    """See Trainable.assume_data. The facts suffice to plan, not to train."""
    if find_pack(name, data_dir) is not None:
        return ""
    sizes = facts["image_size"], facts["channels"], facts["classes"], facts["train"], facts["test"]
    STATED[name] = About(*sizes, {"pack": name, "sha256": ""})
    return pack_hint(name)


def split(settings: Settings) -> Split:
    about = describe(settings["data"])
    if about.folds:
        return Split(kind="folds", folds=about.folds, images=about.train_size + about.test_size)
    return Split(kind="official", images=about.test_size)


def fingerprints(values: Callable[[str], Iterable[str]]) -> Settings:
    """See Trainable. Raises ConfigError or OSError if data or a file of weights cannot be read."""
    names = {Config.model_fields["data"].default, *values("data")}
    data = {name: describe(name).fingerprint for name in sorted(names)}
    starts: dict[str, Any] = {}
    for link in parents.LINKS:
        files = {parents.normalized(link, name) for name in values(link) if parents.names_file(link, name)}
        starts |= {name: parents.identifying_value(link, name) for name in sorted(files)}
    return {"data": data, "starts": starts}


def check_data(trials: Sequence[Settings], to_train: Sequence[Settings], data_dir: Path | None) -> None:
    left = {settings["data"] for settings in to_train}
    for name in sorted({settings["data"] for settings in trials}):
        if name in BUILT_IN:
            BUILT_IN[name].read(data_home(data_dir))
            continue
        folder = find_pack(name)
        if folder is not None:
            open_pack(folder, manifest(folder, name))
        elif name.startswith(IN_FILES) and name in left:  # every image is decoded, which only training needs
            check_images(images_in_files(name), describe(name).channels)


def warnings(settings: Settings) -> list[str]:
    return list(enlargement_notes(settings["data"], settings["image_size"]))


def enlargement_notes(data: str, size: int | str) -> Iterator[str]:
    """Yield a note if images are enlarged beyond their stored size: in folders, that of the first image."""
    about = describe(data)
    shape = image_shape(size)
    least = min(shape) if data.startswith(IN_FILES) else max(shape)  # side of an image that need not be enlarged
    if least <= about.image_size:
        return
    if data.startswith(IN_FILES):
        stored = "that the first image of the folder has"
    else:
        stored = f"of them that {data} is packed with" if "pack" in about.fingerprint else f"that {data} has"
    yield f"images of {size} px are enlarged from the {about.image_size} px {stored}"
