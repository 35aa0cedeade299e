"""Outcomes of planned trials, and notes on trials that lack the metric or whose result is in doubt."""

import json
import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

from results import units
from results.statistics import intervals, p_values
from results.store import eval_files
from results.store.schemas import EvalSummary
from results.study_results import StudyResults
from results.style import current_style
from results.tables import sentences


class Outcome(NamedTuple):
    """The outcome of one planned trial. A number that does not exist is NaN.

    evals: the trial's evals as JSON. suspect_hardware: a step whose loss was NaN but finite when recomputed. value: the
    study's metric.
    """

    seed: int
    status: str
    reason: str
    evals: str
    diverged_at_step: float
    suspect_hardware: float
    host: str
    value: float

    @property
    def is_over(self) -> bool:
        """Whether the trial diverged, or finished with the metric."""
        return self.status == "diverged" or (self.status == "finished" and not math.isnan(self.value))


def outcomes_by_arm(study: StudyResults) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {arm.name: [] for arm in study.plan.arms}
    names = ("arm", *Outcome._fields[:-1], study.plan.metric)
    for arm, *values in zip(*(study.columns[name] for name in names), strict=True):
        found[arm].append(Outcome(*values))
    return found


def absence_notes(outcomes: Sequence[Outcome], metric: str) -> list[str]:
    """Return notes on trials that lack the metric, have damaged files, or ran on suspect hardware.

    If a trial diverged, the last note has the rate of divergence among trials that diverged or have the metric.
    """
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for trial in outcomes:
        if described := absence(trial, metric):
            found[described].append(trial.seed)
    notes = [
        f"{sentences.seeds_text(seeds)} {state}{f': {reason}' if reason else ''}"
        for (state, reason), seeds in found.items()
    ]
    diverged, ended = divergence(outcomes)
    if diverged:
        low, high = intervals.clopper_pearson(diverged, ended)
        notes.append(f"{diverged} of {ended} diverged (95% interval {low:.0%} to {high:.0%})")
    return notes


def retry_warnings(study: StudyResults) -> list[str]:
    """Return a warning that names the trials that were trained again after they had diverged, or []."""
    seeds: dict[str, list[int]] = defaultdict(list)
    for arm, seed, count in zip(*(study.columns[name] for name in ("arm", "seed", "retried_diverged")), strict=True):
        if not math.isnan(count):
            seeds[arm].append(seed)
    if not seeds:
        return []
    named = ", ".join(f"{current_style().label(arm)} {sentences.seeds_text(own)}" for arm, own in seeds.items())
    trials = units.amount_text(sum(map(len, seeds.values())), "trial")
    return [f"{trials} diverged and may have been trained again, by ablate retry --diverged: {named}"]


def divergence(outcomes: Sequence[Outcome]) -> tuple[int, int]:
    """Return (number of diverged trials, number of trials that are over)."""
    over = [trial.status for trial in outcomes if trial.is_over]
    return over.count("diverged"), len(over)


def p_diverges_more(arm: Sequence[Outcome], baseline: Sequence[Outcome], seeds: Collection[int]) -> float:
    """Return the p value of Fisher's exact test that an arm diverges more often than its baseline with these seeds."""
    own, other = ([trial for trial in outcomes if trial.seed in seeds] for outcomes in (arm, baseline))
    return p_values.fisher_p(*divergence(own), *divergence(other))


def absence(trial: Outcome, metric: str) -> tuple[str, str] | None:
    """Return (state, reason) for a trial, or None for a finished trial that needs no note."""
    reason = trial.reason
    if trial.status == "finished" and math.isnan(trial.value):
        known = {name: EvalSummary(**one) for name, one in json.loads(trial.evals or "{}").items()}
        return "missing", eval_files.absence_reason(metric, known)
    if trial.status == "finished":
        if not reason and not math.isnan(trial.suspect_hardware):
            fault = f"loss was NaN at step {trial.suspect_hardware:.0f} but finite when recomputed"
            reason = f"{fault}: suspect hardware ({trial.host or 'host unknown'})"
        return ("finished", reason) if reason else None
    if trial.status == "diverged" and not math.isnan(trial.diverged_at_step):
        reason = "; ".join(filter(None, [f"at step {trial.diverged_at_step:.0f}", reason]))
    return trial.status if trial.status in ("diverged", "failed") else "missing", reason
