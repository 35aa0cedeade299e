"""Verdicts: the word for a difference, and a note wherever word and interval seem to disagree."""

from collections.abc import Mapping
from typing import Any

from results import stats
from results.stats import Estimate
from results.units import Unit

ALPHA = 0.05
BETTER, WORSE, EQUIVALENT, UNRESOLVED = "better", "worse", "equivalent", "not-resolved"


def verdict(
    difference: Estimate,
    p_holm: float | None,
    *,
    tie: bool,
    higher_is_better: bool,
    diverged: tuple[int, int] = (0, 0),
) -> str | None:
    """better, worse, equivalent or not-resolved; None where the data allow no test.

    tie: whether the two are equivalent by the margin. diverged: how many trials of the arm and of its baseline did. An
    arm that diverged is worse, if its finished trials are worse too, or not resolved; against a baseline that diverged
    it is better or not resolved.
    """
    if p_holm is None or difference.value is None:
        return None
    direction = BETTER if (difference.value > 0) == higher_is_better else WORSE
    if any(diverged):
        possible = {(True, False): WORSE, (False, True): BETTER}.get((diverged[0] > 0, diverged[1] > 0))
        return direction if p_holm < ALPHA and direction == possible else UNRESOLVED
    if p_holm < ALPHA:
        return direction
    return EQUIVALENT if tie else UNRESOLVED


def within(difference: Estimate, margin: float, looks: int = 1) -> bool:
    """Two one-sided tests at 5%, of which each look has its share: the 90% interval, at 4 looks the 97.5%."""
    return stats.equivalent(difference, margin, level=1 - 2 * ALPHA / looks)


def disagreements(
    word: str | None,
    difference: Estimate,
    images: Estimate | None,
    p_holm: float | None,
    *,
    family: int,
    margin: float | None,
    unit: Unit,
    looks: int = 1,
    grid: bool = False,
) -> list[str]:
    """Why a verdict is not what a reader of the marginal 95% interval would expect.

    grid: whether the arm was compared with every point of the baseline's grid (results/rivals.py).
    """
    if word is None or p_holm is None:
        return []
    notes = []
    if word in (EQUIVALENT, UNRESOLVED):
        if p_holm < ALPHA:
            notes.append("the finished pairs differ, but trials diverged on the side that they favour")
        elif excludes_zero(difference):
            tests = f"{family} contrasts" + (f" and {looks} looks" if looks > 1 else "")
            tests += " and over the whole grid of the other" if grid else ""
            notes.append(f"the 95% interval excludes 0, but not after correction for {tests}")
        if word == EQUIVALENT and not stats.equivalent(difference, margin or 0.0, level=0.95):
            notes.append("equivalence is two one-sided tests at 5%: the 90% interval is within the margin")
        elif margin is not None and stats.equivalent(difference, margin) and not within(difference, margin, looks):
            notes.append(f"the 90% interval is within the margin, but not after correction for {looks} looks")
        elif margin is not None and grid and word == UNRESOLVED and within(difference, margin, looks):
            notes.append("the 90% interval is within the margin, but not over the whole grid of both")
        return notes
    if margin is not None and stats.equivalent(difference, margin):
        notes.append(f"a resolved difference, yet within the margin of {unit.size(margin)}")
    if not excludes_zero(difference):
        notes.append("resolved at an earlier look; the 95% interval over all seeds contains 0")
    elif images is not None and not excludes_zero(images):
        notes.append("resolved on these test images; the interval over seeds and images contains 0")
    return notes


def of_speed(arm: Mapping[str, Any], difference: float | None, unit: Unit) -> list[str]:
    """Where the recipe states that after twice its steps the difference has the other sign."""
    there = arm.get("at_twice_the_steps")  # None in plans written before the field existed
    if there is None or difference is None or difference * there["difference"] >= 0:
        return []
    other = f"{unit.signed(there['difference'])}{unit.of_difference}"
    return [f"optimisation speed: at twice the steps the difference is {other} ({there['origin']})"]


def excludes_zero(difference: Estimate) -> bool:
    interval = difference.interval()
    return interval is not None and not interval[0] <= 0 <= interval[1]
