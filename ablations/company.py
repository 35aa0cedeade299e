"""Trials that a worker is handed together: trained as one where a probe says that this pays here, or given back.

Each has an attempt of its own, and ends as alone: with a result, an error of its own, or a checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ablations import faults
from ablations.logs import logged
from results import store
from vitcore.config import Config
from vitcore.run import Outcome

if TYPE_CHECKING:
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
        if why := against(worker, jobs):
            for job in jobs:
                worker.emit("apart", id=job["id"], cause=why)
            return
        with ExitStack() as held:
            train_as_one(worker, [one for job in jobs if (one := claimed(worker, job, held))])
    finally:
        worker.about = {}


def against(worker: Worker, jobs: Sequence[Json]) -> str:
    """Why they are not to be trained as one; "" where they are."""
    from ablations import fused_pace  # late: most workers need none of it

    log = worker.runs / "probes" / "fused" / "log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with logged(log):
        try:
            return fused_pace.against([Config(**job["config"]) for job in jobs], worker.runs, worker.data_dir)
        except (ValueError, OSError) as error:  # of one of them: it is told of that one
            return f"{type(error).__name__}: {error}"


def claimed(worker: Worker, job: Json, held: ExitStack) -> Claimed | None:
    """None where it cannot be trained here and now, which is told, or went alone: what failed may fail with others."""
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
            worker.attempt(job, trial, attempt, past)
            return None
        with worker.guarded(trial, attempt, past), logged(attempt.path / "log"):
            return Claimed(job, trial, attempt, worker.prepared(job, trial, attempt))
    except OSError as error:  # of the run directory
        worker.emit("interrupted", cause=str(error))
    return None


def train_as_one(worker: Worker, members: Sequence[Claimed]) -> None:
    """To their ends. What the device raises of all of them leaves each to go on alone, but where the device is lost."""
    outcomes = outcomes_of(worker, members)
    for position, one in enumerate(members):
        worker.about = {"id": one.job["id"]}
        try:
            if outcomes is None:
                worker.attempt(one.job, one.trial, one.attempt, [])
                continue
            with worker.guarded(one.trial, one.attempt, []):
                if isinstance(outcome := outcomes[position], Exception):
                    raise outcome
                worker.conclude(one.job, one.trial, one.attempt, outcome)
        except OSError as error:  # of the run directory: what was saved stays
            worker.emit("interrupted", cause=str(error))


def outcomes_of(worker: Worker, members: Sequence[Claimed]) -> Sequence[Outcome | Exception] | None:
    """How each ended; None where they cannot be trained as one after all."""
    from vitcore.fused import train_fused

    if not members:
        return []
    lead = members[0]
    try:
        for one in members:
            worker.about = {"id": one.job["id"]}
            one.attempt.on_progress = reporter(worker, one.job["id"])
            one.attempt.write_env({**one.attempt.env, "fused": len(members)})
            if one is not lead:
                what = f"trained with others: what was printed is in the log of trial {lead.trial.id}\n"
                (one.attempt.path / "log").write_text(what)
        with logged(lead.attempt.path / "log"):
            return train_fused(
                [one.config for one in members],
                [one.attempt for one in members],
                data_dir=worker.data_dir,
                parents=[worker.parent_of(one.config) for one in members],
                stop=worker.stop,
            )
    except Exception as error:
        if faults.classify(error).kind == faults.MACHINE:
            return [error] * len(members)
    return None


def reporter(worker: Worker, key: str) -> Any:
    """Tells of progress whose it is."""

    def report(step: int, accuracy: float | None) -> None:
        worker.about = {"id": key}
        worker.report(step, accuracy)

    return report
