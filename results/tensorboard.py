"""Training curves as TensorBoard's event files: a folder a trial, a scalar a column of metrics.jsonl."""

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from results import store
from results.names import METRICS
from results.store import evals
from results.store.files import read_bytes
from results.store.paths import no_follow
from results.study_results import StudyResults

Scalars = Mapping[str, float]

CURVES = ("train_loss", "val_loss", "val_accuracy", "lr")
FILE = "events.out.tfevents.0.ablate"  # a fixed name: a second export goes on in the same file
VERSION = "brain.Event:2"  # what the first record of an event file says


def mirror(studies: Sequence[StudyResults], folder: Path) -> None:
    """Writes `folder`/<study>/<arm>/seed=<n>/ for each trial that has been evaluated.

    A curve that has grown since the last time is appended to, so that a TensorBoard that is watching sees it. Equal
    results are equal bytes: an event's time is the seconds of training, counted from 0. Raises ValueError where there
    is no curve, and where the package tensorboard is not installed.
    """
    if all(study.history.empty for study in studies):
        raise ValueError(f"{folder}: nothing to export: no trial has been evaluated yet")
    for study in studies:
        lines = dict(list(study.history.groupby(["arm", "seed"], sort=False)))
        for trial in study.trials.to_dict("records"):
            history = lines.get((trial["arm"], trial["seed"]))
            if history is not None:
                path = folder / named(study.name) / named(trial["arm"]) / named(f"seed={trial['seed']}")
                extend(path / FILE, encoded(events(history, trial)))


def named(name: str) -> str:
    """A study or an arm as one folder: "model=timm/resnet18" would be two, and ".." none of ours."""
    text = quote(name, safe="=,@+ ")
    return f"%2E{text[1:]}" if text.startswith(".") else text


def events(history: pd.DataFrame, trial: Mapping[Any, Any]) -> Iterator[tuple[float, int, Scalars]]:
    """(seconds, step, scalars) of every evaluation; with the last one what a finished trial reached."""
    evaluations = history.dropna(subset="step").to_dict("records")
    for line in evaluations:
        yield seconds(line), int(line["step"]), known({name: line[name] for name in CURVES})
    reached = known({name: trial[name] for name in trial if is_final(str(name))})
    if evaluations and reached:
        yield seconds(evaluations[-1]), int(evaluations[-1]["step"]), reached


def is_final(name: str) -> bool:
    """Whether a column of the trials is a metric that is measured once, at the end or later."""
    return (name in METRICS and name not in CURVES) or bool(evals.of_metric(name))


def seconds(line: Mapping[Any, Any]) -> float:
    return 0.0 if math.isnan(line["seconds"]) else float(line["seconds"])


def known(values: Mapping[Any, float]) -> Scalars:
    return {str(name): value for name, value in values.items() if not math.isnan(value)}


def encoded(events: Iterable[tuple[float, int, Scalars]]) -> bytes:
    """The content of an event file."""
    from tensorboard.compat.proto.event_pb2 import Event  # late: an extra
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    content = io.BytesIO()
    writer = RecordWriter(content)
    writer.write(Event(wall_time=0.0, file_version=VERSION).SerializeToString())
    for wall_time, step, scalars in events:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        writer.write(Event(wall_time=wall_time, step=step, summary=Summary(value=values)).SerializeToString())
    return content.getvalue()


def extend(path: Path, content: bytes) -> None:
    """Appends what `path` lacks of `content`; where it holds something else (a retried trial), replaces it."""
    try:
        old = read_bytes(path)
    except (FileNotFoundError, store.Broken):
        old = b""
    if old and content.startswith(old):
        with open(path, "ab", opener=no_follow) as file:
            file.write(content[len(old) :])
    else:
        store.write_bytes(path, content)
