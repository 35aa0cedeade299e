"""Decide whether a trial gets another attempt. Every machine derives the decision from the attempts on disk.

An attempt ends with a result, a recorded failure, or a released lease if it was asked to stop. Without any of these,
the process was killed or the machine failed.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from results import store
from results.store import lease
from results.store.schemas.base import AnySchema
from results.store.schemas.trials import Environment, Failure

WITHOUT_PROGRESS = 3  # maximum attempts that machine faults end without a newer checkpoint
EXCEPTIONS = 3  # maximum attempts that end with different exceptions
PAUSE_SECONDS = float(os.environ.get("ABLATE_PAUSE_SECONDS", "10"))  # after the first machine fault
LONGEST_PAUSE = 30 * PAUSE_SECONDS
KILLED = "killed (perhaps out of memory), or its machine failed: nothing was recorded"


@dataclass(frozen=True)
class EndedAttempt:
    machine: bool  # whether a machine fault or a kill ended the attempt
    cause: str
    step: int | None  # the step from which the attempt trained; None if training never began
    where: tuple[str, ...] = ()  # the type and innermost frames of an exception
    node: str = ""  # SLURM's name of the node; "" if unknown


def earlier_failures(trial: store.Trial, current: Path, code: str) -> list[EndedAttempt]:
    """Return the failed attempts of this code before `current` and since the last reopening, oldest first."""
    paths = [path for path in trial.attempts() if int(path.name) < int(current.name)]
    retried = [position for position, path in enumerate(paths) if (path / store.RETRY).exists()]
    if retried:
        paths = paths[retried[-1] + 1 :]
    return list(filter(None, (read_failure(path, code) for path in paths)))


def read_failure(path: Path, code: str) -> EndedAttempt | None:
    """Return how the attempt in a directory failed; None if it ran code other than `code`, or did not fail."""
    env = read_or_none(path / "env.json", Environment)
    failure = read_or_none(path / "failure.json", Failure)
    if any(record is not None and record.code not in ("", code) for record in (env, failure)):
        return None
    step = env.resumed_from.step if env and env.resumed_from else None
    if failure:
        node = failed_node(failure, env)
        return EndedAttempt(failure.kind == "machine", failure.cause, step, tuple(failure.where), node)
    if (path / lease.RELEASED).exists() or (path / "result.json").exists():  # stopped on request, or finished
        return None
    return EndedAttempt(True, KILLED, step)


def failed_node(failure: Failure | None, env: Environment | None) -> str:
    """Return SLURM's name of the node on which an attempt or its lost rank failed; "" if unknown."""
    if failure is not None and failure.node is not None:
        return failure.node
    return env.node if env else ""


def read_or_none(path: Path, schema: type[AnySchema]) -> AnySchema | None:
    """Return a file's content as a `schema` object; None if it is missing or broken. Raises NewerSchema or OSError."""
    try:
        return store.read(path, schema)
    except (FileNotFoundError, store.Broken):
        return None


def no_progress_reason(trial: store.Trial, past: Sequence[EndedAttempt], progress: str = "progress") -> str:
    """Return why the machine faults in `past` (oldest first) rule out another attempt; "" if they do not."""
    by_machine = [attempt for attempt in past if attempt.machine]
    if len(by_machine) < WITHOUT_PROGRESS:  # otherwise, a checkpoint is read
        return ""
    newest = trial.newest_step()
    idle = [attempt for attempt in by_machine if attempt.step is None or attempt.step >= newest]
    if len(idle) < WITHOUT_PROGRESS:
        return ""
    return f"{len(idle)} attempts without {progress}: the last was {idle[-1].cause}"


def may_retry_exception(past: Sequence[EndedAttempt], place: Sequence[str]) -> bool:
    """Return whether to retry. Two exceptions at one place (type and frames) or EXCEPTIONS in all are final."""
    places = [attempt.where for attempt in past if not attempt.machine]
    return len(places) + 1 < EXCEPTIONS and tuple(place) not in places


def faulty_node(past: Sequence[EndedAttempt]) -> str:
    """Return the node on which machine faults ended the newest attempt and an earlier one; "" if there is none."""
    nodes = [attempt.node for attempt in past if attempt.machine and attempt.node]
    if not nodes or not past[-1].node or nodes.count(nodes[-1]) < 2:
        return ""
    return nodes[-1]


def last_faulty_node(trial: store.Trial, code: str) -> str:
    paths = trial.attempts()
    if len(paths) < 2:
        return ""
    ended = earlier_failures(trial, paths[-1], code)
    newest = read_failure(paths[-1], code)
    return faulty_node([*ended, newest]) if newest else ""


def retry_delay(past: Sequence[EndedAttempt]) -> float:
    """Return the seconds to wait before the next attempt, so that a temporary machine fault can pass."""
    count = sum(attempt.machine and attempt.cause != KILLED for attempt in past)  # preemption looks like a kill
    if not count:
        return 0.0
    return min(PAUSE_SECONDS * 5.0 ** (count - 1), LONGEST_PAUSE)
