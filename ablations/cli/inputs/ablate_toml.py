"""The settings of a working directory, in its file ablate.toml."""

import tomllib
from pathlib import Path
from typing import Literal

from ablations.trainables.vit.commands.data_folders import DataFolders
from ablations.trainables.vit.commands.data_folders import data_folders as data_folders_of
from commonfloor.messages import reason
from commonfloor.options import ConfigError, Options
from results.store.schemas import Settings


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


def data_folders(explicit: Path | None = None, profile: str | None = None) -> DataFolders:
    """Return the folders in which data sets are found. explicit: --data-dir. profile: the data_dir of a SLURM profile.

    Raises the errors of `read` and of the ViT's `data_folders`.
    """
    settings = read()
    return data_folders_of(explicit, profile, settings.data_dir, named=settings.data)


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
    return dict(data_folders(data_dir).resolve(config))
