"""The file ablate.toml, and the folders and plug-ins of a command. Its readers raise ValueError if it is invalid."""

import os
import shlex
import tempfile
import tomllib
from collections.abc import Collection
from pathlib import Path

from ablations.cli.inputs.words import refuse_csv
from ablations.execution.launch import Place
from ablations.jobs import Keep
from ablations.planning import bundle_files
from ablations.trainables.vit.commands.data_folders import DataFolders
from ablations.trainables.vit.commands.data_folders import data_folders as data_folders_of
from commonfloor.files import check_hard_links
from commonfloor.messages import reason
from commonfloor.options import ConfigError, Options
from slurm.profile import Profile


class AblateToml(Options):
    """The content of an ablate.toml, in which every key is optional."""

    runs: str = "runs"  #: The run directory: the default of `--runs`.
    data_dir: str | None = None  #: Folder of data sets. It precedes the environment variable `ABLATE_DATA`.
    plugins: list[str] = []  #: Plug-in files that every command loads, in addition to `--plugin`.
    profile: str | None = None  #: SLURM profile, by name or file: the default of `ablate submit --profile`.
    checkpoints: str | None = None  #: Scratch space for checkpoints: the default of `--checkpoints`.
    keep_weights: Keep = "all"  #: The trials whose final weights are kept.
    data: dict[str, str] = {}  #: Names for folders of images or packs: `pets = "~/pets"` makes `data=pets` known.


def read_ablate_toml() -> AblateToml:
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
    """Return where data sets are found. explicit: --data-dir. profile: the data_dir of a SLURM profile."""
    settings = read_ablate_toml()
    return data_folders_of(explicit, profile, settings.data_dir, named=settings.data)


def scratch(folder: str | None) -> Path | None:
    """Return the folder of checkpoints, if any. Raises ValueError if it is a file, or not a plain absolute path."""
    if not folder:
        return None
    path = Path(folder).expanduser()
    if not path.is_absolute() or "%" in folder or not folder.isprintable() or ".." in path.parts:
        raise ValueError(f"checkpoints={folder!r}: an absolute folder, without %, '..' and control characters")
    if path.exists() and not path.is_dir():
        raise ValueError(f"checkpoints={folder!r}: is not a folder")
    return path


def source_path(source: Path | None) -> Path:
    """Return the run directory or exported file to read: --runs, or the directory in ablate.toml."""
    if source is not None:
        refuse_csv(source)
        if bundle_files.is_bundle(source):
            readable = f"once unpacked, its {bundle_files.RESULTS} can be read"
            raise ValueError(f"--runs {source}: is a bundle: `ablate verify` checks it; {readable}")
        return source
    return Path(os.path.expanduser(read_ablate_toml().runs))


def runs_folder(runs: Path | None) -> Path:
    """Return the run directory, which may not exist yet. Raises ValueError if the path is a file."""
    folder = source_path(runs)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--runs {folder}: is a file, not a run directory")
    return folder


def folder_options(runs: Path | None = None, data_dir: Path | None = None) -> str:
    """Return ` --runs DIR --data-dir DIR` for a command in printed advice, without the options that are None."""
    given = {"--runs": runs, "--data-dir": data_dir}
    return "".join(f" {option} {shlex.quote(str(folder))}" for option, folder in given.items() if folder)


def data_home(data_dir: Path | None) -> Path:
    """Return the folder in which new data sets are stored, and let this process read from there."""
    data_folders(data_dir).use()
    if not os.environ.get("ABLATE_DATA"):
        raise ValueError("say where: --data-dir DIR, or set ABLATE_DATA")
    return Path(os.environ["ABLATE_DATA"])


def load_plugins(files: list[Path] | None) -> dict[str, str]:
    """Load the plug-ins of ablate.toml and --plugin; return absolute path -> digest. Raises ValueError if one fails."""
    named = [*map(Path, read_ablate_toml().plugins), *(files or [])]
    if not named:
        return {}
    from ablations.trainables.vit import plugins  # imported here because it loads torch

    return plugins.load(dict.fromkeys(Path(os.path.expanduser(path)).resolve() for path in named))


def imported_files(files: Collection[str]) -> dict[str, list[str]]:
    if not files:
        return {}
    from ablations.trainables.vit import plugins  # imported here because it loads torch

    imported = {}
    for file in files:
        imported[file] = [str(local.relative) for local in plugins.loaded(Path(file)).files]
    return imported


def make_place(
    runs: Path | None,
    data_dir: Path | None,
    plugin: list[Path] | None,
    checkpoints: str | None = None,
    keep_weights: Keep | None = None,
    profile: Profile | None = None,
) -> Place:
    """Return the directories and settings of a command's workers, from its options, its profile or ablate.toml."""
    here = read_ablate_toml()
    if profile is not None:
        checkpoints = checkpoints or profile.checkpoints
        keep_weights = keep_weights or profile.keep_weights
    folder = runs_folder(runs).absolute()
    if ".." in folder.parts:  # Python simplifies such a path in PYTHONPATH, so that jobs would not find their code
        folder = folder.resolve()
    return Place(
        folder,
        data_folders(data_dir, profile.data_dir if profile else None).use(),
        load_plugins(plugin),
        checkpoints=scratch(checkpoints or here.checkpoints),
        keep_weights=keep_weights or here.keep_weights,
    )


def ensure_publishable(runs: Path) -> None:
    """Create a run directory if it is missing. Raises ValueError if results cannot be written or linked there."""
    ensure_writable(runs)
    check_hard_links(runs)


def ensure_writable(folder: Path, option: str = "--runs", mode: int = 0o777) -> None:
    """Create a folder if it is missing. Raises a ValueError that names `option` if the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=mode)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ValueError(f"{option} {folder}: cannot be written ({error.strerror})") from None
