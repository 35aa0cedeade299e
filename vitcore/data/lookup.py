"""Look up data by name: a built-in dataset, a folder of images or a pack. Importing this loads no torch."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from vitcore.data.datasets import BUILT_IN, About, data_homes
from vitcore.data.imagefolder import describe_folder
from vitcore.data.pack import NAME, find, lacking, manifest, names
from vitcore.options import ConfigError

FOLDER = "imagefolder:"
STATED: dict[str, About] = {}  # packs that are not there, as somebody states them: enough to plan, not to train


def describe(name: str, data_dir: Path | None = None) -> About:
    """Return the facts about a built-in dataset, 'imagefolder:PATH' or a pack (vitcore.data.datasets.data_homes).

    Reads no file of built-in data. Raises ConfigError for an unknown name or an invalid folder.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name.startswith(FOLDER):
        return describe_folder(folder_of(name))
    if (folder := find(name, data_dir)) is not None:
        return manifest(folder, name).about()
    if name in STATED:
        return STATED[name]
    may_be_pack = NAME.fullmatch(name) is not None
    close = difflib.get_close_matches(name, [*BUILT_IN, *(names(data_dir) if may_be_pack else [FOLDER])], n=1)
    hint = f"; did you mean '{close[0]}'?" if close else f"; {unpacked(name)}" if may_be_pack else ""
    looked_in = ", ".join(map(lacking, data_homes(name, data_dir))) or "none without --data-dir or ABLATE_DATA"
    where = looked_in if may_be_pack else "small letters, digits and . _ -"
    raise ConfigError(f"data={name}: one of {', '.join(BUILT_IN)}, {FOLDER}PATH, or a pack ({where}){hint}")


def unpacked(name: str) -> str:
    """Say how to make a missing pack."""
    return f"`ablate data pack {name} SOURCE --data-dir DIR` makes one"


def pack_of(name: str, data_dir: Path | None = None) -> Path | None:
    """Return the folder of the pack of this name; None for other data."""
    return None if name in BUILT_IN or name.startswith(FOLDER) else find(name, data_dir)


def folder_of(name: str) -> Path:
    return Path(os.path.expanduser(name.removeprefix(FOLDER))).resolve()  # Path's own raises for '~nobody'
