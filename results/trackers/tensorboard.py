"""The export to TensorBoard: an event file per trial, with training curves and final metrics as scalars."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from results import store
from results.store.files import read_bytes
from results.store.paths import no_follow
from results.study_results import StudyResults
from results.trackers.runs import Point, tracked

FILE = "events.out.tfevents.0.ablate"  # a fixed name: a second export goes on in the same file
VERSION = "brain.Event:2"  # what the first record of an event file says


def write(studies: Sequence[StudyResults], folder: Path) -> None:
    """Write an event file to `folder`/<study>/<arm>/seed=<n>/ for each trial with evaluations.

    A file is appended to if its curve has grown, so a running TensorBoard follows the curve. Times are seconds of
    training, so equal results give equal bytes. Raises ValueError if no trial has been evaluated. Raises
    ModuleNotFoundError if the package tensorboard is not installed.
    """
    for run in tracked(studies):
        names = (run.study, run.arm, f"seed={run.seed}")
        append_or_replace(folder.joinpath(*map(folder_name, names), FILE), encode_events(run.points))


def folder_name(name: str) -> str:
    """Return the name of a study or arm, quoted so that it becomes exactly one folder."""
    text = quote(name, safe="=,@+ ")
    return f"%2E{text[1:]}" if text.startswith(".") else text


def encode_events(points: Iterable[Point]) -> bytes:
    """Return points as the content of an event file."""
    from tensorboard.compat.proto.event_pb2 import Event  # late: an extra
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
    """Append the part of `content` that the file lacks.

    A file whose content is not the start of `content`, as after a retry, is replaced.
    """
    try:
        old = read_bytes(path)
    except (FileNotFoundError, store.Broken):
        old = b""
    if old and content.startswith(old):
        with open(path, "ab", opener=no_follow) as file:
            file.write(content[len(old) :])
    else:
        store.write_bytes(path, content)
