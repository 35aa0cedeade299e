"""The folders and plug-ins of a command, from its options or from ablate.toml."""

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from ablations.execution.launch import Place
from ablations.reporting.cleaning import Keep
from ablations.study import settings

if TYPE_CHECKING:
    from slurm.profiles.profile import Profile


def source_path(source: Path | None) -> Path:
    """Return the run directory or exported file to read: --runs, else the one in ablate.toml."""
    return source if source is not None else Path(os.path.expanduser(settings.read(Path()).runs))


def runs_folder(runs: Path | None) -> Path:
    """Return the run directory to write to. Raises ValueError for a file."""
    folder = source_path(runs)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--runs {folder}: is a file, not a run directory")
    return folder


def found_at(runs: Path | None) -> str:
    """Return ` --runs DIR` for a command that is printed; "" without --runs."""
    return f" --runs {shlex.quote(str(runs))}" if runs else ""


def data_folder(data_dir: Path | None, profile: str | None = None) -> Path | None:
    """Return the default folder of data; None for ABLATE_DATA. profile: the data_dir of a SLURM profile.

    Sets environment variables by which this process and its children find packs: configs depend on their manifests.
    """
    places = settings.places(settings.read(Path()), data_dir, profile)
    if places.folder:
        os.environ["ABLATE_MORE_DATA"] = json.dumps(places.more)
        os.environ["ABLATE_DATA"] = str(places.folder.absolute())
    if places.packs:
        os.environ["ABLATE_PACKS"] = json.dumps(places.packs)
    return places.folder


def data_home(data_dir: Path | None) -> Path:
    """Return the folder that data are written to. Raises ValueError if there is none."""
    data_folder(data_dir)
    if not os.environ.get("ABLATE_DATA"):
        raise ValueError("say where: --data-dir DIR, or set ABLATE_DATA")
    return Path(os.environ["ABLATE_DATA"])


def load_plugins(files: list[Path] | None) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Load the plug-ins of ablate.toml and of the command line. Return their paths and digests."""
    named = [Path(os.path.expanduser(file)) for file in settings.read(Path()).plugins] + (files or [])
    paths = tuple(dict.fromkeys(path.resolve() for path in named))
    if not paths:
        return (), ()
    from ablations.study import plugins  # late: torch

    return paths, tuple(plugins.load(paths).values())


def make_place(
    runs: Path | None,
    data_dir: Path | None,
    plugin: list[Path] | None,
    checkpoints: str | None = None,
    keep_weights: Keep | None = None,
    profile: "Profile | None" = None,
) -> Place:
    """Return where and how a command's trials run. Loads plug-ins. Options that are not given come from ablate.toml."""
    files, digests = load_plugins(plugin)
    here = settings.read(Path())
    checkpoints = checkpoints or here.checkpoints
    return Place(
        runs_folder(runs).absolute(),
        data_folder(data_dir, profile.data_dir if profile else None),
        files,
        digests,
        checkpoints=settings.scratch(checkpoints) if checkpoints else None,
        keep_weights=keep_weights or here.keep_weights,
    )
