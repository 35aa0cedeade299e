"""The trials that the races of plans leave out, read from their results."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ablations.jobs import Job, jobs
from ablations.study.naming import ALL_ARMS
from results.store import ledger
from results.store.schemas.plans import Plan

NO_CHILD = "by the race, as no arm that starts from it goes on"


def left_out(runs: Path, plans: Iterable[Plan]) -> dict[str, str]:
    """Return id -> reason of the trials that races leave out, and that none of the plans needs otherwise."""
    plans = list(plans)
    racing = [plan for plan in plans if plan.race]
    if not racing:
        return {}
    from results.statistics.race import stopped_trials  # late: loads NumPy and SciPy, for races alone

    reasons: dict[str, str] = {}
    needed: set[str] = set()
    stopped = stopped_trials(runs, racing)
    for plan in plans:
        of_plan = stopped.get(plan.name, {})
        reasons |= of_plan
        if of_plan:
            for stage in plan.stages:
                reasons |= dict.fromkeys(stage.ids.values(), NO_CHILD)
        for arm in plan.arms:
            for seed, trial_id in arm.ids.items():
                if trial_id not in of_plan:
                    needed.update([trial_id, *plan.parents(arm, seed)])
    return {trial_id: reason for trial_id, reason in reasons.items() if trial_id not in needed}


def open_jobs(runs: Path, plans: Sequence[Plan], arms: Sequence[str] = ALL_ARMS) -> list[Job]:
    without = left_out(runs, plans)
    return [job for job in jobs(plans, arms) if job.id not in without]


@dataclass
class Races:
    """The races of plans while their trials run. They are judged again once another trial has a result."""

    runs: Path
    plans: Sequence[Plan]
    ended: list[list[str]] = field(default_factory=list)
    newest: dict[str, str] = field(default_factory=dict)

    @property
    def are_there(self) -> bool:
        return any(plan.race for plan in self.plans)

    def left_out(self) -> dict[str, str]:
        ended = [ledger.ended_trials(self.runs, plan) for plan in self.plans if plan.race]
        if ended != self.ended:
            self.newest = left_out(self.runs, self.plans)
            self.ended = ended
        return self.newest
