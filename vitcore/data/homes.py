"""Finding the folders of datasets, from `--data-dir`, ABLATE_DATA, and ABLATE_PACKS and ABLATE_MORE_DATA.

A command sets the last two for itself and the processes that it starts.
"""

import json
import os
from pathlib import Path


def data_home(data_dir: Path | None) -> Path | None:
    """Return `data_dir` or, if it is None, the folder in ABLATE_DATA, or None if neither is set."""
    home = data_dir or os.environ.get("ABLATE_DATA")
    return Path(home) if home else None


def data_homes(name: str, data_dir: Path | None) -> list[Path]:
    """Return the folders that may be the pack or image folder `name`, from ABLATE_PACKS and `parent_folders`."""
    homes = [folder / name for folder in parent_folders(data_dir)]
    named = own_packs().get(name)
    if named:
        homes.insert(0, Path(named))
    return list(dict.fromkeys(homes))


def parent_folders(data_dir: Path | None) -> list[Path]:
    """Return the folders whose subfolders are packs: `data_dir`, ABLATE_DATA and the list in ABLATE_MORE_DATA."""
    return [Path(folder) for folder in (data_dir, os.environ.get("ABLATE_DATA"), *more_homes()) if folder]


def own_packs() -> dict[str, str]:
    """Return the packs and image folders in ABLATE_PACKS, name -> folder; raise ValueError if it is invalid."""
    try:
        return dict[str, str](json.loads(os.environ.get("ABLATE_PACKS") or "{}"))
    except (ValueError, TypeError):
        raise ValueError("ABLATE_PACKS: a JSON object, from the names of packs to their folders") from None


def more_homes() -> list[str]:
    """Return the folders in ABLATE_MORE_DATA; raise ValueError if the variable is invalid."""
    try:
        return list[str](json.loads(os.environ.get("ABLATE_MORE_DATA") or "[]"))
    except (ValueError, TypeError):
        raise ValueError("ABLATE_MORE_DATA: a JSON list of folders") from None
