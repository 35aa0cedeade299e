"""The folders in which packs are found: --data-dir, [data], the profile's data_dir, data_dir, ABLATE_DATA.

Built-in data sets are read from the first of these that is set, except [data].
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = "imagefolder:"
IN_FILES = (FOLDER, "hf:", "parquet:", "wds:")  # equal to vitcore.data.lookup.IN_FILES, whose import loads numpy


@dataclass(frozen=True)
class DataFolders:
    folder: Path | None = None  # the default folder; None for ABLATE_DATA
    more: Sequence[str] = ()  # further folders to search for packs, in this order
    packs: Mapping[str, str] = field(default_factory=dict)  # name -> folder of a pack that may not exist yet
    images: Mapping[str, str] = field(default_factory=dict)  # name -> folder of class folders

    def use(self) -> Path | None:
        """Set the variables by which this process and its children find packs. Return the default folder."""
        if self.folder:
            os.environ["ABLATE_MORE_DATA"] = json.dumps(self.more)
            os.environ["ABLATE_DATA"] = str(self.folder.absolute())
        named = {**self.packs, **self.images}
        if named:
            absolute = {name: os.path.abspath(folder) for name, folder in named.items()}
            os.environ["ABLATE_PACKS"] = json.dumps(absolute)
        return self.folder

    def resolve(self, content: Any, is_data: bool = False) -> Any:
        """Return a copy of settings in which `data` names image folders and files by absolute paths."""
        if isinstance(content, dict):
            resolved = {}
            for key, value in content.items():
                resolved[key] = self.resolve(value, key.rpartition(".")[2] == "data")
            return resolved
        if is_data and isinstance(content, list):
            return [self.resolve(name, is_data) for name in content]
        if is_data and isinstance(content, str):
            return self.resolve_name(content)
        return content

    def resolve_name(self, name: str) -> str:
        folder = self.images.get(name)
        if folder is not None:
            return FOLDER + os.path.abspath(os.path.expanduser(folder))
        if name.startswith(IN_FILES):
            kind, _, path = name.partition(":")
            return f"{kind}:{os.path.abspath(os.path.expanduser(path))}"
        return name


def data_folders(explicit: Path | None, *others: str | None, named: Mapping[str, str]) -> DataFolders:
    """Return the folders in which data sets are found. explicit: --data-dir. named: [data] in ablate.toml.

    others: the folders of the profile and of ablate.toml. Raises ValueError if `named` has a built-in data set's name.
    """
    packs: dict[str, str] = {}
    images: dict[str, str] = {}
    for name, folder in located(named, explicit).items():
        # an unfinished pack contains no folders
        if is_pack(folder) or not any(Path(folder).glob("*/")):
            packs[name] = os.path.abspath(folder)
        else:
            images[name] = folder
    given = [os.path.expanduser(folder) for folder in (explicit, *others) if folder]
    if not given:
        return DataFolders(packs=packs, images=images)
    from vitcore.data.homes import more_homes  # imported here because training code of users needs no vitcore

    searched = [*given, os.environ.get("ABLATE_DATA"), *more_homes()]
    _, *more = dict.fromkeys(os.path.abspath(folder) for folder in searched if folder)
    return DataFolders(Path(given[0]), more, packs, images)


def located(named: Mapping[str, str], explicit: Path | None) -> dict[str, str]:
    """Return name -> folder of the data sets in ablate.toml. A pack of that name in --data-dir precedes its folder."""
    if not named:
        return {}
    from vitcore.data.builtin import BUILT_IN  # imported here because it loads NumPy

    folders = {}
    for name, folder in named.items():
        if name in BUILT_IN:
            raise ValueError(f"ablate.toml: data.{name}={folder}: is the name of a built-in data set")
        folders[name] = os.path.expanduser(folder)
        if explicit and is_pack(explicit / name):
            folders[name] = str(explicit / name)
    return folders


def is_pack(folder: str | Path) -> bool:
    return os.path.isfile(os.path.join(folder, "manifest.json"))
