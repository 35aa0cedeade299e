"""How a folder is known as a run directory: by two of the folders that one has."""

from pathlib import Path

PARTS = ("studies", "ledger", "trials")


def is_run_directory(folder: Path) -> bool:
    return sum((folder / part).is_dir() for part in PARTS) > 1


def make_run_directory(folder: Path) -> None:
    """Create what makes a folder a run directory. Call it before the first file is written there.

    Otherwise the files of the run directory could count as training code around it.
    """
    for part in PARTS[:2]:
        (folder / part).mkdir(parents=True, exist_ok=True)
