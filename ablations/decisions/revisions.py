"""Recipes whose code lies in another folder, or is that of a git revision."""

import io
import subprocess
import tarfile
import tempfile
from pathlib import Path

from ablations.study.recipe import Recipe
from ablations.trainables.command.command import is_command

CODE_FOLDER = "code"  # in the run directory: the files of revisions


def with_code(recipe: Recipe, code: str, runs: Path) -> Recipe:
    """Return a recipe whose code lies in another folder, or is that of a git revision of its own folder."""
    if not is_command(recipe.train):
        raise ValueError(f"--code {code}: recipe {recipe.name} trains no command: give one with `train: python ...`")
    folder = Path(code)
    if not folder.is_dir():
        folder = revision_folder(Path(recipe.folder), code, runs)
    return recipe.model_copy(update={"folder": str(folder.resolve())})


def revision_folder(folder: Path, revision: str, runs: Path) -> Path:
    """Check a revision out below `runs`, once, and return the path of `folder` in it."""
    top = git(folder, revision, "rev-parse", "--show-toplevel").strip()
    within = git(folder, revision, "rev-parse", "--show-prefix").strip()
    commit = git(folder, revision, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    files = runs / CODE_FOLDER / commit.strip()
    if not files.is_dir():
        archive = subprocess.run(["git", "-C", top, "archive", commit.strip()], capture_output=True, check=True).stdout
        files.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=files.parent, prefix=".") as temporary:
            whole = Path(temporary, "files")
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                tar.extractall(whole, filter="data")
            if not files.exists():
                whole.rename(files)
    if not (files / within).is_dir():
        raise ValueError(f"--code {revision}: has no folder {within or '.'}")
    return files / within


def git(folder: Path, revision: str, *words: str) -> str:
    """Return what git prints in a folder. revision: for errors. Raises ValueError if git fails or is missing."""
    try:
        asked = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ValueError(f"--code {revision}: is no folder, and git is not installed here") from None
    if asked.returncode:
        raise ValueError(f"--code {revision}: neither a folder nor a git revision in {folder}")
    return asked.stdout
