"""The folders of a command: run directory, data, scratch space; from an option, else ablate.toml."""

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from ablations.study import settings

if TYPE_CHECKING:
    from ablations.execution.launch import Place
    from ablations.reporting.cleaning import Keep
    from slurm.profiles.profile import Profile


def source_path(source: Path | None) -> Path:
    """Return where results are read: --runs, else ablate.toml."""
    return source if source is not None else Path(os.path.expanduser(settings.read(Path()).runs))


def runs_folder(runs: Path | None) -> Path:
    """Return the run directory to write to. Raises ValueError for a file."""
    folder = source_path(runs)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--runs {folder}: is a file, not a run directory")
    return folder


def found_at(runs: Path | None) -> str:
    """Return the option that a command needs to find the same run directory."""
    return f" --runs {shlex.quote(str(runs))}" if runs else ""


def data_folder(data_dir: Path | None, profile: str | None = None) -> Path | None:
    """Return the default folder of data; None for ABLATE_DATA.

    Sets environment variables that tell this process and its children where packs are, since configs depend on their
    manifests. data_dir: --data-dir; profile: the data_dir of a profile.
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
    """Load the plug-ins of ablate.toml and the command line; return their digests."""
    named = [Path(os.path.expanduser(file)) for file in settings.read(Path()).plugins] + (files or [])
    paths = tuple(dict.fromkeys(path.resolve() for path in named))
    if not paths:
        return (), ()
    from ablations.study import plugins

    return paths, tuple(plugins.load(paths).values())


def make_place(
    runs: Path | None,
    data_dir: Path | None,
    plugin: list[Path] | None,
    checkpoints: str | None = None,
    keep_weights: "Keep | None" = None,
    profile: "Profile | None" = None,
) -> "Place":
    from ablations.execution.launch import Place

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
