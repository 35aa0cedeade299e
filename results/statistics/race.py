"""Races: arms that can hardly become `better` stop taking seeds, and `worse` may be found before all seeds are there.

An arm is judged after each seed from the second on, by its own trials and its baseline's alone. So the stops follow
from the results, whatever order they came in. Why verdicts err no more often:

- `better` needs all seeds. Stopping for want of prospects can only take such verdicts away.
- p of `worse` is the smallest `sequential_p` of all looks, doubled for two sides. It is a p value wherever an arm
  stopped, so Holm's method corrects it with the others. An arm stops as worse by Bonferroni's correction, which the
  final table cannot undo.
- An arm that stopped is never equivalent.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from scipy import special

from results.statistics import looks
from results.statistics.contrast import Measured, difference, samples_by_arm
from results.statistics.intervals import Estimate, t_quantile
from results.statistics.verdict import ALPHA
from results.store.schemas.plans import Plan
from results.study_results import StudyResults, load_plans, rows_of
from results.units import amount_text

HOPELESS = 0.05  # chance to become better below which an arm stops
FIRST = 2  # seeds at the first look
STOPPED = "stopped"  # status of the trials that a race leaves out
ENDED = ("diverged", "failed")
SIMULATED = 2000  # arms behind an expected saving


@dataclass(frozen=True)
class Stop:
    """Where a race stopped an arm: after how many seeds, and why."""

    seeds: int
    why: str


def with_stops(study: StudyResults) -> StudyResults:
    """Return the study where the trials that its race leaves out have the status STOPPED, with the reason."""
    stopped = stops(study)
    if not stopped:
        return study
    planned = study.plan.seeds
    columns = study.columns | {"status": [*study.columns["status"]], "reason": [*study.columns["reason"]]}
    for position, trial in enumerate(rows_of(study.columns)):
        stop = stopped.get(trial["arm"])
        is_begun = trial["status"] in ("finished", "running", *ENDED)
        if stop and trial["seed"] in planned[stop.seeds :] and not is_begun:
            columns["status"][position] = STOPPED
            columns["reason"][position] = f"by the race after {stop.seeds} of {len(planned)} seeds: {stop.why}"
    return replace(study, columns=columns)


def stopped_trials(runs: Path, racing: Sequence[Plan]) -> dict[str, dict[str, str]]:
    """Return plan -> id -> reason of the trials that the races of plans leave out."""
    stopped: dict[str, dict[str, str]] = {}
    for study in load_plans(runs, racing, ("correct",)):
        trials = rows_of(with_stops(study).columns)
        stopped[study.name] = {trial["id"]: trial["reason"] for trial in trials if trial["status"] == STOPPED}
    return stopped


def saving_text(study: StudyResults) -> str:
    statuses = study.columns["status"]
    return f"the race saved {statuses.count(STOPPED)} of {amount_text(len(statuses), 'trial')}"


def stops(study: StudyResults) -> dict[str, Stop]:
    """Return arm -> its stop. A baseline stops once all of its arms have."""
    plan = study.plan
    if not plan.race:
        return {}
    samples = samples_by_arm(study, plan.metric)
    ended: dict[str, set[int]] = {name: set(sample.values) for name, sample in samples.items()}
    diverged: dict[str, set[int]] = defaultdict(set)
    for arm, seed, status in zip(*map(study.columns.__getitem__, ("arm", "seed", "status")), strict=True):
        if status in ENDED:
            ended[arm].add(seed)
        if status == "diverged":
            diverged[arm].add(seed)
    by_arm: dict[str, Stop] = {}
    racing: dict[str, list[str]] = defaultdict(list)  # baseline -> its arms
    for name, trials in looks.planned_contrasts(plan).items():
        baseline = plan.arms_by_name[name].baseline
        racing[baseline].append(name)
        if looks.declares_race(trials, plan):
            from_baseline = difference(samples[name], samples[baseline], plan.is_paired)
            both = ended[name] & ended[baseline]
            stop = first_stop(from_baseline, plan, both, diverged[name], diverged[baseline])
            if stop:
                by_arm[name] = stop
    for baseline, names in racing.items():
        if by_arm.keys() >= set(names):
            last = max(by_arm[name].seeds for name in names)
            by_arm[baseline] = Stop(last, "all arms that are compared with it have stopped")
    return by_arm


def first_stop(
    from_baseline: Measured, plan: Plan, ended: set[int], diverged: set[int], of_baseline: set[int]
) -> Stop | None:
    """Return the first look at which an arm stops, or None if there is none so far.

    ended: the seeds whose trials have ended in both arms. diverged, of_baseline: those that diverged in each.
    """
    for seeds in range(FIRST, len(plan.seeds)):
        first = plan.seeds[:seeds]
        if not ended.issuperset(first):
            return None
        if len(diverged.intersection(first)) > len(of_baseline.intersection(first)):
            return Stop(seeds, "more of its trials diverge than of the baseline's")
        at_look = from_baseline.only_seeds(first).tested
        if at_look.se is None:
            continue
        p = p_value(from_baseline.only_seeds(first), plan, None, is_stopped=False)
        if p is not None and plan.family * p < ALPHA:
            return Stop(seeds, "worse")
        share = at_look.n / len(plan.seeds)
        chance = float(chance_of_better(lead(at_look, plan), at_look.df or 1.0, share, len(plan.seeds)))
        if chance < HOPELESS:
            return Stop(seeds, f"a chance of {chance:.1%} to become better")
    return None


def lead(at_look: Estimate, plan: Plan) -> float:
    t = (at_look.value or 0.0) / (at_look.se or 1.0)
    return t if plan.primary_metric.higher_is_better else -t


def chance_of_better(t: float | np.ndarray, df: float, share: float, planned: int) -> np.ndarray:
    """Return the predictive power: how likely an arm is to be better with all seeds, given its seeds so far.

    t: its lead. share: of the planned seeds that it has. The seeds to come follow the posterior predictive distribution
    under a flat prior. To be better, an arm must pass Holm's last, most lenient step.
    """
    needed = t_quantile(1 - ALPHA / 2, planned - 1)
    chance: np.ndarray = special.stdtr(df, (t - needed * math.sqrt(share)) / math.sqrt(1 - share))
    return chance


def p_value(from_baseline: Measured, plan: Plan, p: float | None, is_stopped: bool) -> float | None:
    """Return the p value of a contrast in a race. p: that of a contrast in no race."""
    whole = from_baseline.tested
    if whole.p_value is None:
        return 1.0 if is_stopped else None
    if lead(whole, plan) > 0:
        return 1.0 if is_stopped else p
    products = [1.0]
    for look in looks.looks_at(from_baseline, plan):
        products.append(look.factor * worse_p(from_baseline, plan, sorted(look.seeds[0])))
    return min(products)


def worse_p(from_baseline: Measured, plan: Plan, planned: Sequence[int]) -> float:
    """Return the two-sided p value of all looks that a race of `planned` seeds took while the arm was behind."""
    smallest = 1.0
    has = set(from_baseline.seeds)
    for number in range(FIRST, len(planned) + 1):
        if planned[number - 1] not in has:
            continue
        at_look = from_baseline.only_seeds(planned[:number]).tested
        if at_look.p_value is not None and lead(at_look, plan) < 0:
            smallest = min(smallest, 2 * sequential_p(at_look.p_value / 2, at_look.n / len(planned)))
    return smallest


def sequential_p(p: float, share: float) -> float:
    """Return the smallest level at which a one-sided p value is significant at a look with a share of the seeds.

    The spending function is Lan and DeMets's (1983) of O'Brien-Fleming type: the probability that Brownian motion
    crosses a line by the time `share`, half of whose paths are then beyond it. So the smallest result of all looks is a
    p value.
    """
    return float(2 * special.ndtr(min(0.0, special.ndtri(p) * math.sqrt(share))))


@lru_cache(64)
def expected_saving(planned: int, effect: float) -> float:
    """Return the expected share of an arm's trials that a race leaves out, simulated with a fixed random seed.

    effect: the true difference, in standard deviations of differences.
    """
    values = np.random.default_rng(0).normal(effect, 1.0, (SIMULATED, planned))
    left_out = np.zeros(SIMULATED)
    for seeds in range(FIRST, planned):
        first = values[:, :seeds]
        t = first.mean(axis=1) / first.std(axis=1, ddof=1) * math.sqrt(seeds)
        hopeless = chance_of_better(t, seeds - 1, seeds / planned, planned) < HOPELESS
        left_out[hopeless & (left_out == 0)] = planned - seeds
    return float(left_out.mean() / planned)
