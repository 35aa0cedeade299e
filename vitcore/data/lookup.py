"""Finding data by name: a built-in dataset, images in files or a pack. This module does not import torch."""

import os
from functools import cache
from pathlib import Path

from commonfloor.messages import spelling_hint
from commonfloor.options import ConfigError
from vitcore.data.builtin import BUILT_IN
from vitcore.data.dataset import About, small_class
from vitcore.data.formats import FORMATS, list_stored
from vitcore.data.homes import data_homes, own_packs
from vitcore.data.imagefolder import Listing, describe_images, list_images
from vitcore.data.pack import NAME, find_pack, manifest, missing_pack, pack_names

FOLDER = "imagefolder:"
IN_FILES = (FOLDER, *FORMATS)  # names of images in files begin so
STATED: dict[str, About] = {}  # facts that recipes state about missing packs: enough to plan, not to train


def describe(name: str, data_dir: Path | None = None) -> About:
    """Return the facts about a built-in dataset, images in files or a pack, which a recipe may state if it is missing.

    data_dir: see `parent_folders`. Raises ConfigError if name, folder or pack is invalid, and OSError if a read fails.
    """
    if name in BUILT_IN:
        return BUILT_IN[name].about
    if name.startswith(IN_FILES):
        return describe_files(name)
    folder = find_pack(name, data_dir)
    if folder is not None:
        return manifest(folder, name).about()
    if name in STATED:
        return STATED[name]
    names = list(IN_FILES)
    hint = ""
    if NAME.fullmatch(name):
        names = pack_names(data_dir)
        hint = f"; {pack_hint(name)}"
    if name not in own_packs():
        hint = spelling_hint(name.lower(), [*BUILT_IN, *names]) or hint
    if Path(name).expanduser().is_dir():
        hint = f"; a folder of images is data={FOLDER}{name}"
    where = searched_folders(name, data_dir)
    raise ConfigError(
        f"data={name}: one of {', '.join(BUILT_IN)}, {'PATH, '.join(IN_FILES)}PATH, or a pack ({where}){hint}"
    )


@cache
def describe_files(name: str) -> About:
    return describe_images(images_in_files(name))


def images_in_files(name: str) -> Listing:
    """Return the images of 'imagefolder:PATH' or another format; raise ConfigError if a class has too few."""
    listing = list_images(image_folder(name)) if name.startswith(FOLDER) else list_stored(name)
    why = small_class(listing.labels, listing.train, listing.classes)
    if why:
        raise ConfigError(f"data={name}: {why}")
    return listing


def searched_folders(name: str, data_dir: Path | None = None) -> str:
    """Return text that says where a pack was searched, or which characters a pack's name may have."""
    if not NAME.fullmatch(name):
        return "small letters, digits and . _ -"
    key = {own_packs().get(name): f"ablate.toml: data.{name}="}
    searched = [key.get(str(home), "") + missing_pack(home) for home in data_homes(name, data_dir)]
    return ", ".join(searched) or "none without --data-dir or ABLATE_DATA"


def pack_hint(name: str) -> str:
    return f"`ablate data pack {name} SOURCE --data-dir DIR` makes one"


def image_folder(name: str) -> Path:
    return Path(os.path.expanduser(name.removeprefix(FOLDER))).resolve()  # Path.expanduser raises for '~nobody'
