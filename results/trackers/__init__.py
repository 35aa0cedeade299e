"""Results for experiment trackers, written to files without a network. Their packages are optional extras."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from results.study_results import StudyResults

TRACKERS = ("tensorboard", "wandb", "mlflow")  # a file each


def write(tracker: str, studies: Sequence[StudyResults], folder: Path) -> None:
    """Write settings, training curves and metrics of every trial for one of TRACKERS.

    Raises ValueError where no trial has been evaluated, and ModuleNotFoundError where the tracker is not installed.
    """
    import_module(f"{__name__}.{tracker}").write(studies, folder)
