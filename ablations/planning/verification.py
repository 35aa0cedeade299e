"""Trials of others trained anew, and compared with what was reported of them."""

import hashlib
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from ablations.jobs import Job, jobs
from ablations.planning.bundle_files import RESULTS, SUMS, Bundle
from ablations.planning.merging import ForeignTrial, exported_trials, recorded_trial, refuse_table
from ablations.trainables.trainable import VIT, find
from commonfloor.files import Broken
from results import store
from results.store import record, seals
from results.study_results import StudyResults
from results.tables.seal_notes import seal_notes
from results.tables.trial_notes import COMPARABLE, comparable_fields

FLOAT32 = 1e-6  # relative: the six decimal digits that every 32-bit number holds
WITHIN = 3  # times the root mean square of the differences that rounding makes here

Outcome = Literal["identical", "equal", "rounded", "within", "differs", "failed"]
TEXTS: dict[Outcome, str] = {
    "identical": "identical: weights and metrics",
    "equal": "metrics equal",
    "rounded": "metrics equal to six digits, as many as 32-bit numbers hold",
    "within": f"metrics within {WITHIN} times the rounding that was measured here",
    "differs": "DIFFERS",
    "failed": "FAILED",
}
GROWS = "Another device or version rounds differently, and training lets rounding grow: judge it by the sd over seeds."


@dataclass(frozen=True)
class ReportedTrial:
    """A trial as it was reported. spread: metric -> standard deviation over the seeds of its arm, if there are two."""

    study: str
    job: Job
    trial: ForeignTrial
    spread: Mapping[str, float]


@dataclass(frozen=True)
class ComparedMetric:
    """A metric as reported and as it is here. rounding: how far rounding may take it, if that was measured."""

    theirs: float | None
    ours: float | None
    seed_sd: float | None
    rounding: float | None = None

    @property
    def is_rounding(self) -> bool:
        if self.theirs is None or self.ours is None:
            return False
        return math.isclose(self.theirs, self.ours, rel_tol=FLOAT32, abs_tol=self.rounding or 0.0)

    def text(self, name: str) -> str:
        if self.theirs is None:
            return f"{name} only here"
        if self.ours is None:
            return f"{name} only there"
        text = f"{name} {self.theirs:.6g} there, {self.ours:.6g} here: {self.ours - self.theirs:+.2g}"
        if self.seed_sd:
            text += f", {abs(self.ours - self.theirs) / self.seed_sd:.2g} times the sd over seeds ({self.seed_sd:.2g})"
        if self.rounding is not None:
            text += f"; rounding makes up to {self.rounding:.2g}"
        return text


@dataclass(frozen=True)
class Verified:
    """How a trial came out here, with the metrics that differ and the facts of the machines: field -> (there, here)."""

    study: str
    arm: str
    seed: int
    id: str
    outcome: Outcome
    reason: str
    metrics: Mapping[str, ComparedMetric]
    machine: Mapping[str, tuple[str, str]]

    @property
    def is_equal(self) -> bool:
        return self.outcome in ("identical", "equal", "rounded", "within")

    @property
    def may_be_rounding(self) -> bool:
        """Whether metrics alone differ, and another device or version computed them. Equal machines give equal bits."""
        is_other_machine = not self.machine.keys().isdisjoint(COMPARABLE)
        return self.outcome == "differs" and not self.reason and is_other_machine

    @property
    def lines(self) -> list[str]:
        how = TEXTS[self.outcome]
        if self.reason:
            how += f" ({self.reason})"
        details = [f"    {difference.text(name)}" for name, difference in self.metrics.items()]
        return [f"  {self.study} {self.arm} seed {self.seed} ({self.id}): {how}", *details]


def reported_trials(source: Path, studies: Iterable[StudyResults]) -> dict[str, ReportedTrial]:
    """Return trial id -> reported trial, for each ended trial of an export or imported one of a run directory.

    Trials that start from others are left out, as those are not in an export. Raises ValueError if none is left.
    """
    by_id: dict[str, ReportedTrial] = {}
    for study in studies:
        refuse_table(source, study.plan)
        planned = {job.id: job for job in jobs([study.plan])}
        for trial in exported_trials(study, study.plan.trainable):
            is_theirs = source.is_file() or trial.row["imported"]
            if trial.has_ended and is_theirs and not planned[trial.id].parents:
                job = replace(planned[trial.id], evals=())
                by_id[trial.id] = ReportedTrial(study.name, job, trial, spread(study, job.arm))
    if not by_id:
        which = "ended" if source.is_file() else "imported"
        raise ValueError(f"{source}: no {which} trial to train anew (trials that start from others are left out)")
    return by_id


def checked_bundle(bundle: Bundle, studies: Sequence[StudyResults]) -> list[str]:
    """Return a line for each check of a bundle. Raises Broken if its seals are not those of the export."""
    lines = [f"{bundle.path}: {len(bundle.files) - 1} files, each with the hash of {SUMS}"]
    of_results = {seals.sha256(seal): study for study in studies for seal in study.plan.seals}
    of_bundle = {seals.sha256(seal): seal for seal in bundle.seals}
    if of_results.keys() != of_bundle.keys():
        raise Broken(f"{bundle.path}: the seals in {seals.FOLDER}/ are not those of {RESULTS}")
    for digest, seal in of_bundle.items():
        lines.append(f"seal of {seal.declaration.plan}: SHA-256 {digest}")
        sealed = {f"studies/{seal.study}.yaml": seal.study_sha256, f"recipes/{seal.recipe}.yaml": seal.recipe_sha256}
        for name, expected in sealed.items():
            if name in bundle.files and hashlib.sha256(bundle.files[name]).hexdigest() != expected:
                lines.append(f"  {name}: not the sealed file, byte for byte")
    for study in studies:
        notes, warnings = seal_notes(study)
        lines += [f"  {study.name}: {text}" for text in (*warnings, *notes)]
    if of_bundle:
        lines.append("  Compare it with the deposited one: hashes inside a bundle find damage, not forgery.")
    return lines


def refuse_code_of_others(path: Path, studies: Iterable[StudyResults]) -> None:
    for study in studies:
        if study.plan.trainable not in ("", VIT):
            raise ValueError(
                f"{path}: {study.name} trains code of its authors: read it, then name its recipe by --recipe FILE"
            )


def spread(study: StudyResults, arm: str) -> dict[str, float]:
    """Return metric -> standard deviation over the seeds of an arm, for metrics with two values or more."""
    deviations = {}
    for name in study.metrics:
        values = []
        for arm_of_value, value in zip(study.columns["arm"], study.columns[name], strict=True):
            if arm_of_value == arm and math.isfinite(value):
                values.append(value)
        if len(values) > 1:
            deviations[name] = stdev(values)
    return deviations


def sampled(candidates: Mapping[str, ReportedTrial], number: int, seed: int) -> list[ReportedTrial]:
    ids = random.Random(seed).sample(sorted(candidates), min(number, len(candidates)))
    return [candidates[trial_id] for trial_id in ids]


def checked_jobs(chosen: Iterable[ReportedTrial], runs: Path) -> list[Job]:
    todo = []
    for reported in chosen:
        settings = reported.trial.check_id()
        if store.trial(runs, reported.job.id).path.exists():
            raise ValueError(f"--runs {runs}: has trial {reported.job.id} already: give another folder")
        todo.append(replace(reported.job, config=settings))
    return todo


def verified(reported: ReportedTrial, runs: Path) -> Verified:
    job = reported.job
    seed = int(job.config["seed"])
    ours = recorded_trial(runs, job, record.read(runs, job.id, record.PARTS))
    if not ours.has_ended:
        return Verified(reported.study, job.arm, seed, job.id, "failed", str(ours.row["reason"]), {}, {})
    metrics = differences(reported.trial, ours, reported.spread)
    outcome, reason = compared(reported.trial, ours, metrics)
    machine = machines(reported.trial.row, ours.row)
    return Verified(reported.study, job.arm, seed, job.id, outcome, reason, metrics, machine)


def rounding_jobs(todo: Sequence[Job], results: Sequence[Verified]) -> list[Job]:
    """Return the same jobs, computed otherwise, if a difference may be rounding."""
    if not any(result.may_be_rounding for result in results):
        return []
    rounded = []
    for job in todo:
        settings = find(job.trainable).rounded_otherwise(job.config)
        if settings is not None:
            rounded.append(replace(job, config=settings))
    return rounded


def with_rounding(results: Sequence[Verified], ours: Path, rounded: Path) -> list[Verified]:
    """Return the results, in which metrics count as equal within the rounding between two run directories."""
    squares: dict[str, list[float]] = defaultdict(list)
    for result in results:
        first = store.trial(ours, result.id).state().result
        second = store.trial(rounded, result.id).state().result
        if first is None or second is None:
            continue
        for name, value in first.metrics.items():
            again = second.metrics.get(name)
            if value is not None and again is not None:
                squares[name].append((value - again) ** 2)
    judged = []
    for result in results:
        if result.may_be_rounding:
            bounds = {name: WITHIN * math.sqrt(fmean(squares[name])) for name in result.metrics if squares[name]}
            measured = {name: replace(metric, rounding=bounds.get(name)) for name, metric in result.metrics.items()}
            is_within = all(metric.is_rounding for metric in measured.values())
            result = replace(result, metrics=measured, outcome="within" if is_within else "differs")
        judged.append(result)
    return judged


def differences(theirs: ForeignTrial, ours: ForeignTrial, spread: Mapping[str, float]) -> dict[str, ComparedMetric]:
    before, now = theirs.result()["metrics"], ours.result()["metrics"]
    differing = {}
    for name in dict.fromkeys([*before, *now]):
        if before.get(name) != now.get(name):
            differing[name] = ComparedMetric(before.get(name), now.get(name), spread.get(name))
    return differing


def compared(theirs: ForeignTrial, ours: ForeignTrial, metrics: Mapping[str, ComparedMetric]) -> tuple[Outcome, str]:
    """Return how two results of a trial compare, and what is to add. metrics: those that are not equal."""
    before, now = theirs.row["weights_sha256"], ours.row["weights_sha256"]
    if theirs.row["status"] != ours.row["status"]:
        return "differs", f"{theirs.row['status']} there, {ours.row['status']} here"
    if not all(difference.is_rounding for difference in metrics.values()):
        return "differs", ""
    if metrics:
        return "rounded", ""
    if not before or not now:
        return "equal", "no weights are known"
    if before == now:
        return "identical", ""
    return "equal", "other weights"


def machines(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    before, now = comparable_fields(theirs), comparable_fields(ours)
    differing = {}
    for name, reported in before.items():
        if reported and reported != now.get(name, reported):
            differing[name] = (reported, now[name])
    return differing


def summary(source: Path, results: Sequence[Verified], candidates: int, seed: int) -> str:
    lines = [f"{source}: {len(results)} of {candidates} trials trained anew (--seed {seed})"]
    differing: dict[str, tuple[str, str]] = {}
    for result in results:
        lines += result.lines
        differing |= result.machine
    for name, (before, now) in differing.items():
        lines.append(f"  {name}: {before} there, {now or 'unknown'} here")
    if differing and not all(result.is_equal for result in results):
        lines.append(f"  {GROWS}")
    equal = sum(result.is_equal for result in results)
    return "\n".join([*lines, f"{equal} equal, {len(results) - equal} not"])
