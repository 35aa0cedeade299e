"""Exports of results to experiment trackers, as files and without a network.

The trackers' packages are optional extras, imported late. Each export raises ValueError if no trial has been evaluated,
and ModuleNotFoundError if the package is not installed.
"""

import hashlib
import io
import json
import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from commonfloor.files import open_no_follow, read_bytes
from results import store
from results.store.schemas.base import Settings
from results.store.schemas.plans import Plan
from results.study_results import StudyResults, load_plans

MIRROR_SECONDS = 10.0  # between two writes of curves while trials run
LONGEST_FOLDER = 200  # characters of a name that becomes a folder; file systems allow 255 bytes

Point = tuple[float, int, dict[str, float]]  # seconds of training, step, name -> scalar


# -- what is recorded --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrackedRun:
    """A trial as trackers record it. points: one per evaluation, and a last one with the final metrics, if any."""

    study: str
    arm: str
    seed: int
    id: str
    status: str
    config: Settings
    points: list[Point]

    @property
    def name(self) -> str:
        return f"{self.arm} seed={self.seed}"


def tracked_runs(studies: Sequence[StudyResults]) -> Iterator[TrackedRun]:
    """Yield every trial that has been evaluated. Raises ValueError if there is none."""
    if not any(study.evaluations["step"] for study in studies):
        raise ValueError("nothing to export: no trial has been evaluated yet")
    for study in studies:
        for trial, history in study.trials_with_history():
            if history:
                config = json.loads(trial["config"] or "{}")
                points = list(curve_points(study, history, trial))
                about = {name: trial[name] for name in ("arm", "seed", "id", "status")}
                yield TrackedRun(study=study.name, config=config, points=points, **about)


def curve_points(
    study: StudyResults, history: Sequence[Mapping[str, Any]], trial: Mapping[str, Any]
) -> Iterator[Point]:
    """Yield a point per evaluation, and a last point, at the same time, with final metrics that no curve has."""
    seconds = 0.0
    step: int | None = None
    for line in history:
        if math.isnan(line["step"]):
            continue
        step = int(line["step"])
        seconds = 0.0 if math.isnan(line["seconds"]) else line["seconds"]
        yield seconds, step, without_nan(line, study.curves)
    names = [name for name in study.metrics if name not in study.curves]
    for eval_name, summary in trial["evals"].items():
        if eval_name != "start":
            names += summary.metrics
    final = without_nan(trial, names)
    if step is not None and final:
        yield seconds, step, final


def without_nan(values: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    return {name: values[name] for name in names if not math.isnan(values[name])}


# -- TensorBoard: an event file per trial ------------------------------------------------------------------------------

EVENT_FILE = "events.out.tfevents.0.ablate"  # a fixed name, so that a second export continues the file
VERSION = "brain.Event:2"  # content of the first record of an event file


def write_tensorboard(studies: Sequence[StudyResults], folder: Path) -> None:
    """Write an event file to `folder`/<study>/<arm>/seed=<n>/ for each trial with evaluations.

    Only new points are appended, so that a running TensorBoard shows them. Times are seconds of training.
    """
    for run in tracked_runs(studies):
        names = (run.study, run.arm, f"seed={run.seed}")
        append_or_replace(folder.joinpath(*map(folder_name, names), EVENT_FILE), encode_events(run.points))


def folder_name(name: str) -> str:
    """Return the name of a study or arm as exactly one folder's, a long one cut off and ending with its hash."""
    text = quote(name, safe="=,@+ ")
    if text.startswith("."):
        text = f"%2E{text[1:]}"
    if len(text) <= LONGEST_FOLDER:
        return text
    return f"{text[: LONGEST_FOLDER - 9]}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def encode_events(points: Iterable[Point]) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    content = io.BytesIO()
    writer = RecordWriter(content)
    writer.write(Event(wall_time=0.0, file_version=VERSION).SerializeToString())
    for wall_time, step, scalars in points:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        writer.write(Event(wall_time=wall_time, step=step, summary=Summary(value=values)).SerializeToString())
    return content.getvalue()


def append_or_replace(path: Path, content: bytes) -> None:
    """Append the missing end of `content` to a file, or replace a file that begins differently, as after a retry."""
    try:
        old = read_bytes(path)
    except (FileNotFoundError, store.Broken):
        old = b""
    if old and content.startswith(old):
        with open(path, "ab", opener=open_no_follow) as file:
            file.write(content[len(old) :])
    else:
        store.write_bytes(path, content)


# -- Weights & Biases: offline runs that `wandb sync FOLDER/wandb/offline-run-*` uploads -------------------------------


def write_wandb(studies: Sequence[StudyResults], folder: Path) -> None:
    """Write an offline run per trial to `folder`: project = study with "-" for "@", group = arm, id = trial."""
    import wandb

    folder.mkdir(parents=True, exist_ok=True)
    quiet = wandb.Settings(console="off", silent=True, x_disable_stats=True, disable_git=True)
    for trial in tracked_runs(studies):
        run = wandb.init(
            mode="offline",
            dir=str(folder),
            project=trial.study.replace("@", "-"),
            group=trial.arm,
            name=trial.name,
            id=trial.id,
            config={**trial.config, "seed": trial.seed},
            reinit="finish_previous",
            settings=quiet,
        )
        for seconds, step, scalars in trial.points:
            run.log({**scalars, "seconds": seconds}, step=step)
        run.finish()


# -- MLflow: a file that `mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db` shows ------------------------------

STATUS = {"finished": "FINISHED", "diverged": "FAILED", "failed": "FAILED"}
PARAMETERS = 100  # maximum number in one call
LONGEST = 500  # maximum characters of a parameter


def write_mlflow(studies: Sequence[StudyResults], folder: Path) -> None:
    """Write a run per trial to the file `folder`/mlflow.db. A second export adds new runs."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    folder.mkdir(parents=True, exist_ok=True)
    client = MlflowClient(tracking_uri=f"sqlite:///{(folder / 'mlflow.db').absolute()}")
    artifacts = (folder / "artifacts").absolute().as_uri()
    for trial in tracked_runs(studies):
        earlier = client.get_experiment_by_name(trial.study)
        if earlier:
            experiment = earlier.experiment_id
        else:
            experiment = client.create_experiment(trial.study, artifact_location=artifacts)
        tags = {"arm": trial.arm, "trial": trial.id}
        run = client.create_run(experiment, start_time=0, run_name=trial.name, tags=tags).info.run_id
        settings = [Param(name, str(value)[:LONGEST]) for name, value in (trial.config | {"seed": trial.seed}).items()]
        for first in range(0, len(settings), PARAMETERS):
            client.log_batch(run, params=settings[first : first + PARAMETERS])
        for seconds, step, scalars in trial.points:
            when = round(1000 * seconds)
            client.log_batch(run, metrics=[Metric(name, value, when, step) for name, value in scalars.items()])
        client.set_terminated(run, STATUS.get(trial.status, "RUNNING"), round(1000 * trial.points[-1][0]))


TRACKERS = {"tensorboard": write_tensorboard, "wandb": write_wandb, "mlflow": write_mlflow}


@contextmanager
def mirroring(plans: Sequence[Plan], runs: Path, folder: Path | None) -> Iterator[None]:
    """Write the plans' curves for TensorBoard to the folder, if given, every MIRROR_SECONDS and when the block ends.

    Raises ModuleNotFoundError before the block begins if tensorboard is not installed.
    """
    if folder is None:
        yield
        return
    import tensorboard.compat.proto.event_pb2  # noqa: F401  # an extra: its absence would go unnoticed in the thread

    done = threading.Event()

    def keep_mirroring() -> None:
        while not done.wait(MIRROR_SECONDS):
            mirror(plans, runs, folder)

    thread = threading.Thread(target=keep_mirroring, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        mirror(plans, runs, folder)


def mirror(plans: Sequence[Plan], runs: Path, folder: Path) -> None:
    with suppress(OSError, ValueError):  # ValueError: no trial has been evaluated yet
        write_tensorboard(load_plans(runs, plans), folder)
