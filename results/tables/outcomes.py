"""Outcomes of planned trials, and notes on trials that lack the metric or whose result is in doubt."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from results import units
from results.statistics import intervals, verdict
from results.store import eval_files
from results.store.schemas import EvalSummary, Plan
from results.study_results import StudyResults, collapsed_seeds
from results.style import current_style
from results.tables import sentences


class TrialOutcome(NamedTuple):
    """The outcome of one planned trial. A number that does not exist is NaN.

    evals: name -> metrics and notes. suspect_hardware: a step whose loss was NaN but finite when recomputed. value: the
    study's metric. collapsed: whether the trial finished with an accuracy as in `results.study_results`.
    """

    seed: int
    status: str
    reason: str
    evals: Mapping[str, EvalSummary]
    diverged_at_step: float
    suspect_hardware: float
    host: str
    value: float
    collapsed: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the trial diverged, or finished with the metric."""
        return self.status == "diverged" or (self.status == "finished" and not math.isnan(self.value))


def outcomes_by_arm(study: StudyResults) -> dict[str, list[TrialOutcome]]:
    """Return arm -> outcomes of its planned trials."""
    by_arm: dict[str, list[TrialOutcome]] = {arm.name: [] for arm in study.plan.arms}
    names = ("arm", *TrialOutcome._fields[:-2], study.plan.metric)
    for arm, *values in zip(*(study.columns[name] for name in names), strict=True):
        by_arm[arm].append(TrialOutcome(*values))
    return {arm: with_collapsed(outcomes, study.plan) for arm, outcomes in by_arm.items()}


def with_collapsed(outcomes: Sequence[TrialOutcome], plan: Plan) -> list[TrialOutcome]:
    """Return the outcomes of an arm, with those marked that collapsed."""
    values = {trial.seed: trial.value for trial in outcomes if trial.is_over and trial.status == "finished"}
    collapsed = collapsed_seeds(values, plan)
    return [trial._replace(collapsed=trial.seed in collapsed) for trial in outcomes]


def absence_notes(outcomes: Sequence[TrialOutcome], plan: Plan) -> list[str]:
    """Return notes on trials that lack the metric, collapsed, have damaged files, or ran on suspect hardware.

    If a trial diverged or collapsed, a note has the rate among trials that diverged or have the metric.
    """
    seeds_by_absence: dict[tuple[str, str], list[int]] = defaultdict(list)
    for trial in outcomes:
        if described := absence(trial, plan):
            seeds_by_absence[described].append(trial.seed)
    notes = [
        f"{sentences.seeds_text(seeds)} {state}{f': {reason}' if reason else ''}"
        for (state, reason), seeds in seeds_by_absence.items()
    ]
    over = [trial for trial in outcomes if trial.is_over]
    collapsed = [trial for trial in over if trial.collapsed]
    if collapsed:
        metric = plan.primary_metric
        reached = ", ".join(f"{metric.value_text(trial.value)}{metric.unit}" for trial in collapsed)
        notes.append(f"{sentences.seeds_text([trial.seed for trial in collapsed])} collapsed: {reached}")
    diverged = sum(trial.status == "diverged" for trial in over)
    for count, what in ((diverged, "diverged"), (len(collapsed), "collapsed")):
        if count:
            low, high = intervals.clopper_pearson(count, len(over))
            notes.append(f"{count} of {len(over)} {what} (95% interval {low:.0%} to {high:.0%})")
    return notes


def retry_warnings(study: StudyResults) -> list[str]:
    """Return a warning that names the trials that were trained again after they had diverged, or []."""
    seeds: dict[str, list[int]] = defaultdict(list)
    for arm, seed, count in zip(*(study.columns[name] for name in ("arm", "seed", "retried_diverged")), strict=True):
        if not math.isnan(count):
            seeds[arm].append(seed)
    if not seeds:
        return []
    named = ", ".join(f"{current_style().label(arm)} {sentences.seeds_text(retried)}" for arm, retried in seeds.items())
    trials = units.amount_text(sum(map(len, seeds.values())), "trial")
    return [f"{trials} diverged and may have been trained again, by ablate retry --diverged: {named}"]


def unstable_trials(outcomes: Sequence[TrialOutcome]) -> tuple[int, int]:
    """Return (number of trials that diverged or collapsed, number of trials that are over)."""
    over = [trial for trial in outcomes if trial.is_over]
    return sum(trial.status == "diverged" or trial.collapsed for trial in over), len(over)


def p_less_stable(arm: Sequence[TrialOutcome], baseline: Sequence[TrialOutcome], seeds: Collection[int]) -> float:
    """Return the p value of Fisher's exact test that an arm diverges or collapses more often than its baseline."""
    of_arm = [trial for trial in arm if trial.seed in seeds]
    of_baseline = [trial for trial in baseline if trial.seed in seeds]
    return verdict.fisher_p(*unstable_trials(of_arm), *unstable_trials(of_baseline))


def absence(trial: TrialOutcome, plan: Plan) -> tuple[str, str] | None:
    """Return (state, reason) for a trial, or None for a finished trial that needs no note."""
    reason = trial.reason
    if trial.status == "finished" and math.isnan(trial.value):
        return "missing", eval_files.absence_reason(plan, trial.evals)
    if trial.status == "finished":
        if not reason and not math.isnan(trial.suspect_hardware):
            fault = f"loss was NaN at step {trial.suspect_hardware:.0f} but finite when recomputed"
            reason = f"{fault}: suspect hardware ({trial.host or 'host unknown'})"
        return ("finished", reason) if reason else None
    if trial.status == "diverged" and not math.isnan(trial.diverged_at_step):
        reason = "; ".join(filter(None, [f"at step {trial.diverged_at_step:.0f}", reason]))
    return trial.status if trial.status in ("diverged", "failed") else "missing", reason
