"""Exports of results to experiment trackers, as files and without a network.

The trackers' packages are optional extras.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from results.study_results import StudyResults

TRACKERS = ("tensorboard", "wandb", "mlflow")  # a file each


def write(tracker: str, studies: Sequence[StudyResults], folder: Path) -> None:
    """Write training curves and final metrics of every evaluated trial to `folder` for one tracker.

    All trackers but TensorBoard also get the trial's settings. tracker: a name in TRACKERS. Raises ValueError if no
    trial has been evaluated. Raises ModuleNotFoundError if the tracker's package is not installed.
    """
    import_module(f"{__name__}.{tracker}").write(studies, folder)
