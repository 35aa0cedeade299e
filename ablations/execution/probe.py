"""Probes: short trials by which code of the user's shows that its seed and its settings have an effect.

The baseline is probed twice with one seed and once with another, every arm once. An argument parser that ignores what
it does not know leaves the same numbers. Probes are trials of RUNS/probes/first and RUNS/probes/again, whose results
are the record: only new ones are run again.
"""

import re
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from ablations.jobs import Job, job_of_plan
from ablations.study.naming import assignments
from ablations.trainables.trainable import find, trial_id
from commonfloor.messages import joined_names
from results import store
from results.store import record
from results.store.schemas.base import Settings
from results.store.schemas.metrics import words_of
from results.store.schemas.plans import Arm, Plan

FIRST = "first"
AGAIN = "again"  # holds the baseline's second probe with the same seed, which has the same id
SEED, OTHER_SEED = 0, 1
OUTCOME = "outcome"
NOT_DETERMINISTIC = "not deterministic: "
TIMES = re.compile(  # words in the names of what differs by itself
    r"\b(times?|runtime|walltime|timestamp|secs?|seconds?|speed|latency|throughput|fps)\b"
)
UNITS_OF_TIME = ("us", "ms", "s", "min", "h")

Numbers = Mapping[str, Any]  # what a probe reported: name -> a value to compare


class Verdict(StrEnum):
    BASELINE = "baseline"
    DIFFERS = "differs"
    DEAD = "the same numbers: no effect"
    INERT = "the same numbers, as declared (inert)"
    UNKNOWN = "cannot tell: two runs with one seed differ"


def folder(runs: Path, name: str) -> Path:
    return runs / "probes" / name


class Probe:
    """The probes of some arms of a plan. Raises ValueError if they differ in a setting that makes probes short."""

    def __init__(self, plan: Plan, arms: Collection[str]) -> None:
        self.plan = plan
        named = plan.arms_by_name
        needed = {plan.baseline, *arms}
        needed |= {named[name].baseline for name in arms}
        self.arms = [arm for arm in plan.arms if arm.name in needed]
        for key in plan.probe:
            if any(arm.config.get(key) != self.arms[0].config.get(key) for arm in self.arms):
                raise ValueError(
                    f"{plan.name}: probe: {key}: the study varies it, so that no probe can set it: name another "
                    "setting in the recipe's `probe`, or give --no-probe to `ablate run` or `ablate submit`"
                )
        self.jobs = {arm.name: self.job(arm, SEED) for arm in self.arms}
        self.other_seed = self.job(plan.baseline_arm, OTHER_SEED)

    def job(self, arm: Arm, seed: int) -> Job:
        trainable = find(self.plan.trainable)
        planned = job_of_plan(self.plan, arm, seed, "")
        settings = trainable.resolve(planned.config | self.plan.probe)
        return replace(planned, id=trial_id(trainable, settings), config=settings, arm=f"probe of {arm.name}", evals=())

    def jobs_in(self, name: str) -> list[Job]:
        if name == FIRST:
            return [*self.jobs.values(), self.other_seed]
        return [self.jobs[self.plan.baseline]]

    def read(self, runs: Path) -> "Findings | None":
        metrics = self.compared_metrics
        first: dict[str, Numbers] = {}
        for name, job in self.jobs.items():
            numbers = read_numbers(folder(runs, FIRST), job.id, metrics)
            if numbers is None:
                return None
            first[name] = numbers
        other_seed = read_numbers(folder(runs, FIRST), self.other_seed.id, metrics)
        again = read_numbers(folder(runs, AGAIN), self.jobs[self.plan.baseline].id, metrics)
        if again is None or other_seed is None:
            return None
        return Findings(self, first, again, other_seed)

    @property
    def compared_metrics(self) -> list[str]:
        """The names of the metrics that probes report, without times unless all are times."""
        compared = []
        for name in self.plan.trial_metrics:
            unit = self.plan.metric_named(name).unit.strip()
            if not is_time(name) and unit not in UNITS_OF_TIME:
                compared.append(name)
        return compared or self.plan.trial_metrics


def is_time(name: str) -> bool:
    return TIMES.search(words_of(name)) is not None


def remove_unfinished(runs: Path, jobs: Iterable[Job]) -> None:
    """Remove probes that failed or were interrupted, so that they begin anew. runs: a run directory of probes."""
    for job in jobs:
        trial = store.trial(runs, job.id)
        if trial.state().status in ("failed", "interrupted"):
            shutil.rmtree(trial.path, ignore_errors=True)


def read_numbers(runs: Path, probe_id: str, metrics: Sequence[str]) -> Numbers | None:
    """Return what a trial reported, without times, or None if it is not over."""
    trial_record = record.read(runs, probe_id, ("history", "correct"))
    if trial_record.values["status"] not in ("finished", "diverged"):
        return None
    numbers: dict[str, Any] = {OUTCOME: trial_record.values["status"]}
    for name in metrics:
        numbers[name] = trial_record.values.get(name)
    for key in set[str]().union(*trial_record.history):
        if not is_time(key):
            numbers[f"{key} of the curve"] = [line.get(key) for line in trial_record.history]
    if trial_record.correct is not None:
        index, correct = trial_record.correct
        numbers["images classified correctly"] = index.tolist(), correct.tolist()
    return numbers


@dataclass(frozen=True)
class Findings:
    """What probes reported. first: arm -> numbers. again, other_seed: those of the baseline's other two probes."""

    probe: Probe
    first: Mapping[str, Numbers]
    again: Numbers
    other_seed: Numbers

    @property
    def baseline(self) -> Numbers:
        return self.first[self.probe.plan.baseline]

    @cached_property
    def unstable(self) -> list[str]:
        """The names of the numbers in which two runs of the baseline with one seed differ."""
        names = sorted(self.baseline.keys() | self.again.keys())
        return [name for name in names if self.baseline.get(name) != self.again.get(name)]

    def verdict_between(self, numbers: Numbers, reference: Numbers) -> Verdict:
        """Return the verdict on two probes, by all numbers that do not differ by themselves."""
        compared = (numbers.keys() | reference.keys()) - {*self.unstable}
        if any(numbers.get(name) != reference.get(name) for name in compared):
            return Verdict.DIFFERS
        return Verdict.UNKNOWN if self.unstable else Verdict.DEAD

    @property
    def seed_verdict(self) -> Verdict:
        return self.verdict_between(self.other_seed, self.baseline)

    def reference(self, arm: Arm) -> Arm:
        """Return the arm that an arm is compared with. The baselines along a curve have the study's main baseline."""
        plan = self.probe.plan
        if arm.name == arm.baseline:
            return plan.baseline_arm
        return plan.arms_by_name[arm.baseline]

    def verdict(self, arm: Arm) -> Verdict:
        reference = self.reference(arm)
        if arm.name == reference.name:
            return Verdict.BASELINE
        verdict = self.verdict_between(self.first[arm.name], self.first[reference.name])
        if verdict is not Verdict.DIFFERS and self.changed(arm).keys() <= {*self.probe.plan.inert}:
            return Verdict.INERT
        return verdict

    def changed(self, arm: Arm) -> Settings:
        before = self.reference(arm).config
        return {key: value for key, value in arm.config.items() if value != before.get(key)}

    @property
    def note(self) -> str:
        if not self.unstable:
            return ""
        return f"{NOT_DETERMINISTIC}two runs with one seed differed in {joined_names(self.unstable)}"

    def refuse_dead(self) -> None:
        """Raise ValueError if the baseline diverged, or if the seed or a setting that is not inert has no effect."""
        plan = self.probe.plan
        if self.baseline[OUTCOME] == "diverged":
            raise ValueError(f"{plan.name}: the probe of the baseline {plan.baseline} diverged")
        if self.seed_verdict is Verdict.DEAD:
            raise ValueError(
                f"{plan.name}: seed={SEED} and seed={OTHER_SEED} gave the same numbers in a probe: the code ignores "
                "its seed: seed every random generator with it, or lengthen `probe`"
            )
        dead = [arm for arm in self.probe.arms if self.verdict(arm) is Verdict.DEAD]
        if not dead:
            return
        changed = self.changed(dead[0])
        others = ""
        if dead[1:]:
            others = f" (and {len(dead) - 1} more arms)"
        raise ValueError(
            f"{plan.name}: {assignments(changed)}{others} gave the baseline's numbers in a probe: the code ignores it, "
            "or the probe is too short to show it: mend the code, lengthen `probe`, "
            f"or write into the recipe `inert: [{joined_names(changed)}]`"
        )


def with_note(plan: Plan, note: str) -> Plan:
    """Return a plan whose notes say whether its code is deterministic. note: "" if it is."""
    notes = [other for other in plan.notes if not other.startswith(NOT_DETERMINISTIC)]
    if note:
        notes.append(note)
    return plan if notes == plan.notes else plan.model_copy(update={"notes": notes})
