"""What the earlier attempts at a trial, as they lie on disk, leave of its chances; the same on every machine.

An attempt ends with a result, with a failure on record, having let go of its lease (it was told to stop), or without a
word: then it was killed, or its machine was. Counted are those under the same code since the last `retry`.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results import store
from results.store import lease
from results.store.schemas import Environment, Failure, Schema

Json = dict[str, Any]
WITHOUT_PROGRESS = 3  # attempts that the machine ended without a newer checkpoint
EXCEPTIONS = 3  # attempts that ended with an exception, each with another one
PAUSE_SECONDS = float(os.environ.get("ABLATE_PAUSE_SECONDS", "10"))  # after the machine's first fault
LONGEST_PAUSE = 30 * PAUSE_SECONDS
KILLED = "killed, as it is where memory runs out, or its machine was: it left no word"


@dataclass(frozen=True)
class Ended:
    """How an attempt did.

    step: where it began; None: it never did. where: type and place of an exception. node: SLURM's name of its machine.
    """

    machine: bool
    cause: str
    step: int | None
    where: tuple[str, ...] = ()
    node: str = ""


def earlier(trial: store.Trial, current: Path, code: str) -> list[Ended]:
    """The attempts before `current` that ended badly, oldest first."""
    paths = [path for path in trial.attempts() if int(path.name) < int(current.name)]
    retried = [position for position, path in enumerate(paths) if (path / store.RETRY).exists()]
    ended = [how(path, code) for path in paths[retried[-1] + 1 if retried else 0 :]]
    return [one for one in ended if one is not None]


def how(path: Path, code: str) -> Ended | None:
    """None for an attempt that counts for nothing: stopped when told, published, or under other code."""
    env, failure = known(path / "env.json", Environment), known(path / "failure.json", Failure)
    if env.get("code", code) != code or failure.get("code", code) != code:
        return None
    step = env.get("resumed_from", {}).get("step")
    if failure:
        place, node = tuple(failure.get("where", ())), node_of(failure, env)
        return Ended(failure.get("kind") == "machine", str(failure.get("cause")), step, place, node)
    if (path / lease.RELEASED).exists() or (path / "result.json").exists():
        return None
    return Ended(True, KILLED, step)


def node_of(ended: Json, env: Json) -> str:
    """SLURM's name of the machine that ended an attempt: where the rank was that failed, if it says so."""
    return str(ended.get("node", env.get("node", "")))


def known(path: Path, schema: type[Schema]) -> Json:
    """Empty where there is none, or none that can be read."""
    try:
        return store.read_json(path, schema)
    except (FileNotFoundError, store.Broken):
        return {}


def spent(trial: store.Trial, past: Sequence[Ended]) -> str:
    """Why the machine's faults leave no further attempt; "" where they do."""
    ended = [one for one in past if one.machine]
    newest = trial.newest_step() if len(ended) >= WITHOUT_PROGRESS else 0  # reads a checkpoint
    idle = [one for one in ended if one.step is None or one.step >= newest]
    if len(idle) < WITHOUT_PROGRESS:
        return ""
    return f"{len(idle)} attempts without progress: the last was {idle[-1].cause}"


def again(past: Sequence[Ended], place: Sequence[str]) -> bool:
    """Whether an exception at `place` leaves another attempt: not the second time, nor after some others."""
    raised = [one for one in past if not one.machine]
    return len(raised) + 1 < EXCEPTIONS and all(one.where != tuple(place) for one in raised)


def leaves(past: Sequence[Ended]) -> str:
    """The node of the newest attempt, where its machine ended another one before: a third goes elsewhere; else ""."""
    faults = [one.node for one in past if one.machine and one.node]
    return faults[-1] if faults and past[-1].node and faults.count(faults[-1]) > 1 else ""


def pause(past: Sequence[Ended]) -> float:
    """Seconds before the next attempt after the machine's faults on record: what it needs may come back.

    A worker that was killed adds none: preemption looks like that.
    """
    count = sum(one.machine and one.cause != KILLED for one in past)
    return min(PAUSE_SECONDS * 5.0 ** (count - 1), LONGEST_PAUSE) if count else 0.0
