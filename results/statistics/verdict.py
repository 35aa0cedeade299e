"""Verdicts on a difference, and notes on why a verdict and the 95% interval seem to disagree.

The p value of equivalence comes from `tuned_pairs.p_equivalence` for tables and claims, and from `p_values.tost_p` for
comparisons.
"""

from results.records import Row
from results.statistics.intervals import Estimate
from results.store.schemas import Arm
from results.units import Unit, amount_text

ALPHA = 0.05
BETTER, WORSE, EQUIVALENT, UNRESOLVED = "better", "worse", "equivalent", "not-resolved"
RESOLVED = (BETTER, WORSE)


def verdict(
    difference: Estimate,
    p_holm: float | None,
    p_margin: float | None,
    *,
    higher_is_better: bool,
    diverged: tuple[int, int] = (0, 0),
) -> str | None:
    """Return better, worse, equivalent or not-resolved, or None if no test is possible.

    p_holm, p_margin: adjusted p values of no difference and of equivalence. Without a margin, p_margin is None.
    diverged: numbers of diverged trials of (arm, baseline). If any trial diverged, the verdict is never equivalent, and
    never favors the side with more diverged trials. With equal numbers, it is not-resolved. Without a standard error,
    only divergence was tested: the verdict is worse or not-resolved.
    """
    if p_holm is None:
        return None
    resolved = is_significant(p_holm)
    if difference.value is None or difference.se is None:  # tested only by how often trials diverged
        return WORSE if resolved else UNRESOLVED
    direction = BETTER if (difference.value > 0) == higher_is_better else WORSE
    if any(diverged):
        possible = WORSE if diverged[0] > diverged[1] else BETTER if diverged[0] < diverged[1] else None
        return direction if resolved and direction == possible else UNRESOLVED
    if resolved:
        return direction
    return EQUIVALENT if is_significant(p_margin) else UNRESOLVED


def is_significant(p: float | None) -> bool:
    return p is not None and p < ALPHA


def p_with_divergence(p: float | None, diverged: tuple[int, int], more: float) -> float | None:
    """Return the p value of a contrast, combined with Fisher's exact test on whether the arm diverges more often.

    p: p value of the finished pairs, or None if they were not tested. diverged: numbers of diverged trials of (arm,
    baseline). more: Fisher's p value, corrected for looks. The result is twice the smaller p value, for two tests.
    Fisher's p value counts alone if p is None, or if both arm and baseline have diverged trials. If no trial of the arm
    diverged, the result is p.
    """
    k, others = diverged
    if not k:
        return p
    return more if p is None or others else min(1.0, 2 * min(p, more))


def verdict_notes(
    word: str | None,
    difference: Estimate,
    tested: Estimate,
    p_holm: float | None,
    *,
    family: int,
    margin: float | None,
    unit: Unit,
    looks: int = 1,
    grid: bool = False,
    diverged: bool = False,
) -> list[str]:
    """Return notes on why a verdict differs from what the unadjusted 95% interval suggests.

    word: the verdict. difference: the estimate over seeds. tested: the estimate behind the verdict, over seeds and
    images if known. family, looks: the numbers of contrasts and looks corrected for. grid: whether the arm was compared
    with the baseline's whole tuning grid (see `results.statistics.tuned_pairs`). diverged: whether trials of either arm
    diverged.
    """
    if word is None or p_holm is None:
        return []
    notes = []
    tests = amount_text(family, "contrast") + (f" and {looks} looks" if looks > 1 else "")
    tests += " and over the whole grid of the other" if grid else ""
    tie = margin is not None and is_within_margin(tested, margin, 1 - 2 * ALPHA)
    if word in (EQUIVALENT, UNRESOLVED):
        if is_significant(p_holm):
            notes.append("resolved, but trials diverged in the arm that finished pairs favor")
        elif excludes_zero(tested):
            notes.append(f"the 95% interval excludes 0, but not after correction for {tests}")
        else:
            notes += images_notes(difference, tested)
        if word == EQUIVALENT and not is_within_margin(tested, margin or 0.0, 1 - ALPHA):
            notes.append("equivalence is two one-sided tests at 5%: the 90% interval is within the margin")
        elif word == UNRESOLVED and tie and not diverged:
            notes.append(f"the 90% interval is within the margin, but not after correction for {tests}")
        elif word == UNRESOLVED and not diverged and is_within_margin(difference, margin or 0.0, 1 - 2 * ALPHA):
            notes.append("the 90% interval is within the margin on these test images only, not over seeds and images")
        return notes
    if tie:
        notes.append(f"a resolved difference, yet within the margin of {unit.size_text(margin or 0.0)}")
    if not excludes_zero(tested):
        by = "by how often it diverges (Fisher's exact test)" if diverged else "at an earlier look"
        contains = "; the 95% interval over all seeds contains 0" if tested.se is not None else ""
        notes.append(f"resolved {by}{contains}")
    return notes


def images_notes(difference: Estimate, tested: Estimate) -> list[str]:
    """Return a note if only the interval over seeds excludes 0, not the one over seeds and images; else []."""
    if not excludes_zero(difference) or excludes_zero(tested):
        return []
    return ["the 95% interval excludes 0 on these test images only; over seeds and images it contains 0"]


def speed_notes(arm: Arm, row: Row, unit: Unit) -> list[str]:
    """Return a note if the difference changes sign after twice the steps and either difference is resolved, or []."""
    there, difference = arm.at_twice_the_steps, row.delta
    if there is None or difference is None or difference * there.difference >= 0:
        return []
    if row.verdict not in RESOLVED and not there.resolved:
        return []
    other = f"{unit.signed_text(there.difference)}{unit.of_difference}"
    return [f"optimization speed: at twice the steps the difference is {other} ({there.origin})"]


def is_within_margin(difference: Estimate, margin: float, level: float) -> bool:
    interval = difference.interval(level)
    return interval is not None and -margin < interval[0] and interval[1] < margin


def excludes_zero(difference: Estimate) -> bool:
    interval = difference.interval()
    return interval is not None and not interval[0] <= 0 <= interval[1]
