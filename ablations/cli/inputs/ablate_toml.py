"""The settings of a working directory, in its file ablate.toml.

A pack is searched for in this order: --data-dir, [data], the profile's data_dir, data_dir, ABLATE_DATA. Built-in data
sets are read from the first of these that is set, except [data].
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from results.store.schemas import Settings
from vitcore.data.files import reason
from vitcore.data.homes import more_homes
from vitcore.options import ConfigError, Options

FOLDER = "imagefolder:"  # equal to vitcore.data.lookup.FOLDER, whose import loads numpy


class AblateToml(Options):
    """The content of an ablate.toml, in which every key is optional."""

    runs: str = "runs"  #: The run directory: the default of `--runs`.
    data_dir: str | None = None  #: Folder of data sets. It precedes the environment variable `ABLATE_DATA`.
    plugins: list[str] = []  #: Plug-in files that every command loads, in addition to `--plugin`.
    profile: str | None = None  #: SLURM profile, by name or file: the default of `ablate submit --profile`.
    checkpoints: str | None = None  #: Scratch space for checkpoints: the default of `--checkpoints`.
    keep_weights: Literal["all", "baseline", "none"] = "all"  #: The trials whose final weights are kept.
    data: dict[str, str] = {}  #: Names for folders of images or packs: `pets = "~/pets"` makes `data=pets` known.


def read() -> AblateToml:
    """Return the settings in ./ablate.toml, or the defaults.

    Raises a ValueError that names file and key if the file cannot be read or a key is invalid.
    """
    path = Path("ablate.toml")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return AblateToml()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read ({reason(error)})") from None
    try:
        return AblateToml(**tomllib.loads(text))
    except (tomllib.TOMLDecodeError, ConfigError) as error:
        raise ValueError(f"{path}: {error}") from None


@dataclass(frozen=True)
class Places:
    folder: Path | None  # the default folder; None for ABLATE_DATA
    more: tuple[str, ...]  # further folders to search for packs, in this order
    packs: dict[str, str]  # name -> folder of a pack that may not exist yet
    images: dict[str, str]  # name -> folder of class folders


def places(explicit: Path | None = None, profile: str | None = None) -> Places:
    """Return the folders in which data sets are found. explicit: --data-dir. profile: the data_dir of a SLURM profile.

    Raises the errors of `read`. Also raises ValueError if [data] contains the name of a built-in data set, or if
    ABLATE_MORE_DATA is invalid.
    """
    settings = read()
    named = {name: os.path.expanduser(folder) for name, folder in settings.data.items()}
    if named:
        from vitcore.data.builtin import BUILT_IN  # imported here because it loads NumPy

        for name in sorted(named.keys() & BUILT_IN.keys()):
            raise ValueError(f"ablate.toml: data.{name}={settings.data[name]}: is the name of a built-in data set")
    if explicit:
        own = {name: str(explicit / name) for name in named}
        named |= {name: folder for name, folder in own.items() if is_pack(folder)}
    # an unfinished pack contains no folders
    images = {name: folder for name, folder in named.items() if not is_pack(folder) and any(Path(folder).glob("*/"))}
    packs = {name: os.path.abspath(folder) for name, folder in named.items() if name not in images}
    said = [Path(os.path.expanduser(folder)) for folder in (explicit, profile, settings.data_dir) if folder]
    if not said:
        return Places(None, (), packs, images)
    below = [*map(str, said[1:]), os.environ.get("ABLATE_DATA"), *more_homes()]
    _, *more = dict.fromkeys(os.path.abspath(folder) for folder in [str(said[0]), *below] if folder)
    return Places(said[0], tuple(more), packs, images)


def is_pack(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, "manifest.json"))


def resolve_images(content: Any, images: Mapping[str, str]) -> Any:
    """Return a copy of settings in which each image folder in `data` is 'imagefolder:' followed by its absolute path.

    images: name -> folder. Names of packs and lists of values are unchanged.
    """
    if not isinstance(content, dict):
        return content
    found = {}
    for key, value in content.items():
        if key.rpartition(".")[2] == "data" and isinstance(value, str):
            folder = images.get(value, value.removeprefix(FOLDER) if value.startswith(FOLDER) else None)
            found[key] = value if folder is None else FOLDER + os.path.abspath(os.path.expanduser(folder))
        else:
            found[key] = resolve_images(value, images)
    return found


def scratch(folder: str) -> Path:
    """Return the folder of checkpoints. Raises ValueError if it is a file, or not a plain absolute path."""
    path = Path(folder).expanduser()
    if not path.is_absolute() or "%" in folder or not folder.isprintable() or ".." in path.parts:
        raise ValueError(f"checkpoints={folder!r}: an absolute folder, without %, '..' and control characters")
    if path.exists() and not path.is_dir():
        raise ValueError(f"checkpoints={folder!r}: is not a folder")
    return path


def resolve_settings(config: Settings, data_dir: Path | None = None) -> Settings:
    """Return `config` with paths for image folders that ablate.toml names. Raises ValueError if the file is invalid."""
    return dict(resolve_images(config, places(data_dir).images))
