"""Trials that a worker is handed together: trained as one where a probe says that this pays here, or given back.

Each has an attempt of its own, and ends as alone: with a result, an error of its own, or a checkpoint.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ablations import faults
from ablations.logs import logged
from results import store
from vitcore.config import Config
from vitcore.run import Outcome

if TYPE_CHECKING:
    from ablations.fused_pace import Verdict
    from ablations.worker import Worker

Json = dict[str, Any]


@dataclass(frozen=True)
class Claimed:
    """A trial that this worker holds, ready to be trained."""

    job: Json
    trial: store.Trial
    attempt: store.Attempt
    config: Config


def serve(worker: Worker, jobs: Sequence[Json]) -> None:
    """All of them, and for each the event that says how it ended; apart: it is to be handed over again, alone."""
    try:
        found = verdict(worker, jobs)
        if worker.stop():
            return tell(worker, jobs, "stopped", accuracy=None, seconds=0.0)
        if found.why:
            return tell(worker, jobs, "apart", cause=found.why, leaving=worker.broken)
        with ExitStack() as held:
            train_as_one(worker, [one for job in jobs if (one := claimed(worker, job, held))], found.ratio)
    finally:
        worker.about = {}


def tell(worker: Worker, jobs: Iterable[Json], event: str, **content: object) -> None:
    """The same of each."""
    for job in jobs:
        worker.emit(event, id=job["id"], **content)


def verdict(worker: Worker, jobs: Sequence[Json]) -> Verdict:
    """Whether they are to be trained as one. A device that is lost is on record in the worker."""
    from ablations import fused_pace  # late: most workers need none of it

    log = worker.runs / "probes" / "log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with logged(log):
        try:
            configs = [Config(**job["config"]) for job in jobs]
            return fused_pace.verdict(configs, worker.runs, worker.data_dir, worker.code)
        except Exception as error:  # of one of them, or of the device: each alone is told of its own
            traceback.print_exc()
            worker.broken |= faults.classify(error).fatal
            return fused_pace.Verdict(faults.line(error))


def claimed(worker: Worker, job: Json, held: ExitStack) -> Claimed | None:
    """None where it cannot be trained here and now, which is told; alone: what failed may fail with others."""
    worker.about = {"id": job["id"]}
    trial = store.trial(worker.runs, job["id"], worker.scratch)
    try:
        if (attempt := worker.claimed(job, trial)) is None:
            worker.evaluate(job, trial)
            return None
        held.enter_context(attempt)
        if (past := worker.past(trial, attempt)) is None:
            return None
        if past:
            attempt.release()  # it counts for nothing
            worker.emit("alone")
            return None
        with worker.guarded(trial, attempt, past), logged(attempt.path / "log"):
            return Claimed(job, trial, attempt, worker.prepared(job, trial, attempt))
    except OSError as error:  # of the run directory
        worker.emit("interrupted", cause=str(error))
    return None


def train_as_one(worker: Worker, members: Sequence[Claimed], ratio: float | None) -> None:
    """To their ends, each told when it comes to its own. ratio: how many times the steps a second, as a probe says.

    What all of them raise gives those that are left back, to go on alone; where it is the code's, as many are not
    tried again. Where the device is lost, or the machine at fault, it is on record with each, as one event
    (ablations.shunning) that is held against none (ablations.attempts).
    """
    left = dict(enumerate(members))

    def end(position: int, outcome: Outcome | Exception) -> None:
        conclude(worker, left.pop(position), outcome)

    try:
        train_members(worker, members, ratio, end)
    except Exception as error:  # of all: nothing that a trial alone would meet, unless it is the device's
        fault = faults.classify(error)
        if not fault.fatal and fault.kind != faults.MACHINE:
            if fault.kind == faults.BUG:
                refuse(worker, members, faults.line(error))
            return give_back(worker, members[0], left.values(), error)
        for position in list(left):
            end(position, error)


def conclude(worker: Worker, one: Claimed, outcome: Outcome | Exception) -> None:
    """Its result, or what went wrong; from then on it is no longer held."""
    worker.about = {"id": one.job["id"]}
    try:
        with one.attempt, worker.guarded(one.trial, one.attempt, []):
            if isinstance(outcome, Exception):
                raise outcome
            worker.conclude(one.job, one.trial, one.attempt, outcome)
    except OSError as error:  # of the run directory: what was saved stays
        worker.emit("interrupted", cause=str(error))


def give_back(worker: Worker, lead: Claimed, members: Iterable[Claimed], error: Exception) -> None:
    """Each is to be handed over again, alone; the lead's log says why. The attempts count for nothing."""
    with suppress(OSError), (lead.attempt.path / "log").open("a") as log:
        log.write("".join(traceback.format_exception(error)))
    for one in members:
        one.attempt.release()
        worker.emit("apart", id=one.job["id"], cause=faults.line(error))


def refuse(worker: Worker, members: Sequence[Claimed], why: str) -> None:
    """As many of this kin are not tried again here."""
    from ablations import fused_pace  # late: most workers need none of it

    with suppress(OSError):
        fused_pace.file([one.config for one in members], worker.runs, worker.code, {"ratio": None, "why": why})


def train_members(
    worker: Worker,
    members: Sequence[Claimed],
    ratio: float | None,
    end: Callable[[int, Outcome | Exception], None],
) -> None:
    """Raises what all of them raise."""
    from vitcore.fused import train_fused

    if not members:
        return
    lead = members[0]
    group = {"fused": len(members), "fused_ratio": ratio, "group": f"{lead.trial.id}/{lead.attempt.path.name}"}
    for one in members:
        worker.about = {"id": one.job["id"]}
        one.attempt.on_progress = reporter(worker, one.job["id"])
        one.attempt.write_env({**one.attempt.env, **group})
        if one is not lead:
            what = f"trained with others: what was printed is in the log of trial {lead.trial.id}\n"
            (one.attempt.path / "log").write_text(what)
    with logged(lead.attempt.path / "log"):
        train_fused(
            [one.config for one in members],
            [one.attempt for one in members],
            data_dir=worker.data_dir,
            parents=[worker.parent_of(one.config) for one in members],
            stop=worker.stop,
            on_end=end,
        )


def reporter(worker: Worker, key: str) -> Any:
    """Tells of progress whose it is."""

    def report(step: int, accuracy: float | None) -> None:
        worker.about = {"id": key}
        worker.report(step, accuracy)

    return report
