"""The export to MLflow: a file that `mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db` shows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results.study_results import StudyResults
from results.trackers.runs import TrackedRun, tracked

STATUS = {"finished": "FINISHED", "diverged": "FAILED", "failed": "FAILED"}
PARAMETERS = 100  # of one call, at most
LONGEST = 500  # characters of a parameter


def write(studies: Sequence[StudyResults], folder: Path) -> None:
    """Write a run per evaluated trial and an experiment per study to the file `folder`/mlflow.db.

    A second export adds new runs. Raises ValueError if no trial has been evaluated. Raises ModuleNotFoundError if the
    package mlflow is not installed.
    """
    from mlflow import MlflowClient  # late: an extra

    folder.mkdir(parents=True, exist_ok=True)
    client = MlflowClient(tracking_uri=f"sqlite:///{(folder / 'mlflow.db').absolute()}")
    artifacts = (folder / "artifacts").absolute().as_uri()
    for run in tracked(studies):
        known = client.get_experiment_by_name(run.study)
        experiment = known.experiment_id if known else client.create_experiment(run.study, artifact_location=artifacts)
        log(client, experiment, run)


def log(client: Any, experiment: str, one: TrackedRun) -> None:
    """Write one run with its parameters, its metrics and its final status.

    client: an MlflowClient. experiment: the experiment's id.
    """
    from mlflow.entities import Metric, Param

    tags = {"arm": one.arm, "trial": one.trial}
    run = client.create_run(experiment, start_time=0, run_name=one.name, tags=tags).info.run_id
    settings = [Param(name, str(value)[:LONGEST]) for name, value in (one.config | {"seed": one.seed}).items()]
    for first in range(0, len(settings), PARAMETERS):
        client.log_batch(run, params=settings[first : first + PARAMETERS])
    for seconds, step, scalars in one.points:
        when = round(1000 * seconds)
        client.log_batch(run, metrics=[Metric(name, value, when, step) for name, value in scalars.items()])
    client.set_terminated(run, STATUS.get(one.status, "RUNNING"), round(1000 * one.points[-1][0]))
