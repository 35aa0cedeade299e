"""Write training curves as TensorBoard event files: a folder per trial, a scalar per column of metrics.jsonl."""

import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from results import store
from results.names import METRICS
from results.store.files import read_bytes
from results.store.paths import no_follow
from results.study_results import StudyResults

Scalars = Mapping[str, float]

CURVES = ("train_loss", "val_loss", "val_accuracy", "lr")
FILE = "events.out.tfevents.0.ablate"  # a fixed name: a second export goes on in the same file
VERSION = "brain.Event:2"  # what the first record of an event file says


def write_events(studies: Sequence[StudyResults], folder: Path) -> None:
    """Write `folder`/<study>/<arm>/seed=<n>/ for each trial with evaluations.

    A curve that has grown is appended to, so a running TensorBoard follows it. Equal results give equal bytes: times
    are seconds of training. Raises ValueError where there is no curve, or where the package tensorboard is missing.
    """
    if all(study.history.empty for study in studies):
        raise ValueError(f"{folder}: nothing to export: no trial has been evaluated yet")
    for study in studies:
        lines = dict(list(study.history.groupby(["arm", "seed"], sort=False)))
        for trial in study.trials.to_dict("records"):
            history = lines.get((trial["arm"], trial["seed"]))
            if history is not None:
                path = (
                    folder / folder_name(study.name) / folder_name(trial["arm"]) / folder_name(f"seed={trial['seed']}")
                )
                append_or_replace(path / FILE, encode_events(events(history, trial)))


def folder_name(name: str) -> str:
    """Quote a study or arm name so that it becomes exactly one folder."""
    text = quote(name, safe="=,@+ ")
    return f"%2E{text[1:]}" if text.startswith(".") else text


def events(history: pd.DataFrame, trial: Mapping[Any, Any]) -> Iterator[tuple[float, int, Scalars]]:
    """Yield (seconds, step, scalars) of each evaluation; the last one adds the final metrics."""
    evaluations = history.dropna(subset="step").to_dict("records")
    for line in evaluations:
        yield seconds(line), int(line["step"]), without_nan({name: line[name] for name in CURVES})
    reached = without_nan({name: trial[name] for name in final_metrics(trial)})
    if evaluations and reached:
        yield seconds(evaluations[-1]), int(evaluations[-1]["step"]), reached


def final_metrics(trial: Mapping[Any, Any]) -> list[str]:
    """List the metrics that are measured once: after training, and by the trial's evals."""
    evals = json.loads(trial["evals"] or "{}")
    later = [metric for name, found in evals.items() if name != "start" for metric in found["metrics"]]
    return [*(name for name in METRICS if name not in CURVES), *later]


def seconds(line: Mapping[Any, Any]) -> float:
    """Return the training time of an evaluation, 0 where unknown."""
    return 0.0 if math.isnan(line["seconds"]) else float(line["seconds"])


def without_nan(values: Mapping[Any, float]) -> Scalars:
    """Drop the values that are NaN."""
    return {str(name): value for name, value in values.items() if not math.isnan(value)}


def encode_events(events: Iterable[tuple[float, int, Scalars]]) -> bytes:
    """Encode events as the content of an event file."""
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


def append_or_replace(path: Path, content: bytes) -> None:
    """Append what the file lacks of `content`; replace a file with other content, as after a retry."""
    try:
        old = read_bytes(path)
    except (FileNotFoundError, store.Broken):
        old = b""
    if old and content.startswith(old):
        with open(path, "ab", opener=no_follow) as file:
            file.write(content[len(old) :])
    else:
        store.write_bytes(path, content)
