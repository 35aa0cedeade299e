"""ablate.toml: what a working directory sets once for all commands.

runs = "runs"                # default of --runs
data_dir = "~/datasets"      # default of --data-dir, before the environment variable ABLATE_DATA
plugins = ["mine.py"]        # beside those named by --plugin
checkpoints = "/scratch/me"  # where checkpoints go, else into the run directory; default of --checkpoints
keep_weights = "baseline"    # all, baseline or none; default of --keep-weights

[data]                       # names for folders, of images or packs: data=pets
pets = "~/datasets/pets"
"""

import os
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError


class Settings(BaseModel):
    """The content of an ablate.toml; every key may be left out."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    runs: str = "runs"
    data_dir: str | None = None
    plugins: list[str] = []
    checkpoints: str | None = None
    keep_weights: Literal["all", "baseline", "none"] = "all"
    data: dict[str, str] = {}


def read(folder: Path) -> Settings:
    """Raises ValueError, naming the file and the key, where there is an ablate.toml that cannot be read."""
    path = folder / "ablate.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read ({error})") from None
    try:
        return Settings(**tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in problem["loc"])
        known = ", ".join(Settings.model_fields)
        raise ValueError(f"{path}: {key}={problem['input']}: {problem['msg'].lower()} (known keys: {known})") from None


def packs(settings: Settings) -> dict[str, str]:
    """Those of the named folders that `ablate data pack` made: name -> folder."""
    folders = {name: os.path.abspath(os.path.expanduser(folder)) for name, folder in settings.data.items()}
    return {name: folder for name, folder in folders.items() if os.path.isfile(os.path.join(folder, "manifest.json"))}


def named(content: Any, here: Settings) -> Any:
    """Settings, also inside of others (stages, arms), with data=NAME as `[data]` maps it to a folder of images.

    `pretrain.data=NAME` too. Packs keep their names.
    """
    if isinstance(content, dict):
        return {
            key: folder_of(value, here) if is_data(key, value) else named(value, here) for key, value in content.items()
        }
    return content


def is_data(key: str, value: Any) -> bool:
    return key.rpartition(".")[2] == "data" and isinstance(value, str)


def folder_of(name: str, here: Settings) -> str:
    """How a config names the folder that a name is mapped to; the name itself where there is none, or a pack."""
    if name not in here.data or name in packs(here):
        return name
    return f"imagefolder:{os.path.expanduser(here.data[name])}"


def scratch(folder: str) -> Path:
    """The folder that `checkpoints` names. Raises ValueError: it must mean the same everywhere, also to SLURM."""
    path = Path(folder).expanduser()
    if not path.is_absolute() or "%" in folder or not folder.isprintable() or ".." in path.parts:
        raise ValueError(f"checkpoints={folder!r}: an absolute folder, without %, '..' and control characters")
    if path.exists() and not path.is_dir():
        raise ValueError(f"checkpoints={folder!r}: is not a folder")
    return path
