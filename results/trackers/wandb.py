"""The export to Weights & Biases: offline runs that `wandb sync FOLDER/wandb/offline-run-*` uploads."""

from collections.abc import Sequence
from pathlib import Path

from results.study_results import StudyResults
from results.trackers.runs import tracked


def write(studies: Sequence[StudyResults], folder: Path) -> None:
    """Write an offline run per evaluated trial to `folder`.

    The study's name, with "-" for "@", is the project. The arm is the group, and the trial's id is the run's id. Raises
    ValueError if no trial has been evaluated. Raises ModuleNotFoundError if the package wandb is not installed.
    """
    import wandb  # late: an extra

    folder.mkdir(parents=True, exist_ok=True)
    quiet = wandb.Settings(console="off", silent=True, x_disable_stats=True, disable_git=True)
    for one in tracked(studies):
        run = wandb.init(
            mode="offline",
            dir=str(folder),
            project=one.study.replace("@", "-"),
            group=one.arm,
            name=one.name,
            id=one.trial,
            config={**one.config, "seed": one.seed},
            reinit="finish_previous",
            settings=quiet,
        )
        for seconds, step, scalars in one.points:
            run.log({**scalars, "seconds": seconds}, step=step)
        run.finish()
