"""Settings in ablate.toml that a working directory gives to all commands.

A pack is looked for in this order: --data-dir, [data], the profile's data_dir, data_dir, ABLATE_DATA. Other data lie in
the first of these that is given.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from vitcore.data.files import reason

FOLDER = "imagefolder:"  # as in vitcore.data.lookup, which loads numpy


class Settings(BaseModel):
    """The content of an ablate.toml; every key is optional."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    runs: str = "runs"  #: The run directory: the default of `--runs`.
    data_dir: str | None = None  #: Where data sets lie, before the environment variable `ABLATE_DATA`.
    plugins: list[str] = []  #: Plug-in files that every command loads, in addition to `--plugin`.
    checkpoints: str | None = None  #: Scratch space for checkpoints: the default of `--checkpoints`.
    keep_weights: Literal["all", "baseline", "none"] = "all"  #: Whose final weights are kept.
    data: dict[str, str] = {}  #: Names for folders of images or packs: `pets = "~/pets"` makes `data=pets` known.


def read(folder: Path) -> Settings:
    """Read ablate.toml. Raises ValueError naming file and key if it is invalid."""
    path = folder / "ablate.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read ({reason(error)})") from None
    try:
        return Settings(**tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in problem["loc"])
        known = ", ".join(Settings.model_fields)
        raise ValueError(f"{path}: {key}={problem['input']}: {problem['msg'].lower()} (known keys: {known})") from None


@dataclass(frozen=True)
class Places:
    """Where data are: a default folder (None: ABLATE_DATA) and folders by name.

    more: further folders to search for packs, in this order. packs: names of packs; if there is no pack yet, the next
    place is searched. images: names of image folders.
    """

    folder: Path | None
    more: tuple[str, ...]
    packs: dict[str, str]
    images: dict[str, str]


def places(settings: Settings, explicit: Path | None = None, profile: str | None = None) -> Places:
    """Return the folders of data in this order: --data-dir, [data], the profile's data_dir, data_dir, ABLATE_DATA."""
    named = {name: os.path.expanduser(folder) for name, folder in settings.data.items()}
    if explicit:
        own = {name: str(explicit / name) for name in named}
        named |= {name: folder for name, folder in own.items() if is_pack(folder)}
    images = {name: folder for name, folder in named.items() if not is_pack(folder) and has_folders(folder)}
    packs = {name: os.path.abspath(folder) for name, folder in named.items() if name not in images}
    said = [Path(os.path.expanduser(folder)) for folder in (explicit, profile, settings.data_dir) if folder]
    if not said:
        return Places(None, (), packs, images)
    from vitcore.data.datasets import more_homes  # late: numpy

    below = [*map(str, said[1:]), os.environ.get("ABLATE_DATA"), *more_homes()]
    _, *more = dict.fromkeys(os.path.abspath(folder) for folder in [str(said[0]), *below] if folder)
    return Places(said[0], tuple(more), packs, images)


def searched_folders(name: str, settings: Settings, explicit: Path | None = None) -> str:
    """List the folders searched for a pack, and why each has none."""
    from vitcore.data.pack import lacking  # late: numpy

    said = {
        "--data-dir": explicit and explicit / name,
        "[data] of ablate.toml": settings.data.get(name),
        "data_dir of ablate.toml": settings.data_dir and Path(settings.data_dir) / name,
        "ABLATE_DATA": os.environ.get("ABLATE_DATA") and Path(os.environ["ABLATE_DATA"]) / name,
    }
    found = [
        f"{what} ({lacking(Path(os.path.expanduser(folder))) if folder else 'not set'})"
        for what, folder in said.items()
    ]
    found.insert(2, "a profile's data_dir (give it as --data-dir)")
    return ", ".join(found)


def is_pack(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, "manifest.json"))


def has_folders(folder: str) -> bool:
    """Return whether a folder holds one folder per class and is not an unfinished pack."""
    try:
        with os.scandir(folder) as inside:
            return any(one.is_dir() for one in inside)
    except OSError:
        return False


def named(content: Any, images: Mapping[str, str]) -> Any:
    """Replace names of image folders by their paths in settings, nested ones included.

    `pretrain.data=NAME` is replaced too. Packs keep their names. images: as in Places.
    """
    if isinstance(content, dict):
        return {
            key: folder_of(value, images) if is_data(key, value) else named(value, images)
            for key, value in content.items()
        }
    return content


def is_data(key: str, value: Any) -> bool:
    return key.rpartition(".")[2] == "data" and isinstance(value, str)


def folder_of(name: str, images: Mapping[str, str]) -> str:
    """Return 'imagefolder:' and the absolute path for a named or given folder; other names, as of packs, unchanged."""
    if name not in images and not name.startswith(FOLDER):
        return name
    folder = images[name] if name in images else name.removeprefix(FOLDER)
    return FOLDER + os.path.abspath(os.path.expanduser(folder))


def scratch(folder: str) -> Path:
    """Return the folder in `checkpoints`. Raises ValueError unless it means the same everywhere, also to SLURM."""
    path = Path(folder).expanduser()
    if not path.is_absolute() or "%" in folder or not folder.isprintable() or ".." in path.parts:
        raise ValueError(f"checkpoints={folder!r}: an absolute folder, without %, '..' and control characters")
    if path.exists() and not path.is_dir():
        raise ValueError(f"checkpoints={folder!r}: is not a folder")
    return path
