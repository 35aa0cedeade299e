"""Verdicts: the word for a difference, and a note wherever word and interval seem to disagree."""

from results import stats
from results.stats import Estimate
from results.units import Unit

ALPHA = 0.05
BETTER, WORSE, EQUIVALENT, UNRESOLVED = "better", "worse", "equivalent", "not-resolved"


def verdict(
    difference: Estimate,
    p_holm: float | None,
    *,
    margin: float | None,
    higher_is_better: bool,
    diverged: tuple[int, int] = (0, 0),
) -> str | None:
    """better, worse, equivalent or not-resolved; None where the data allow no test.

    diverged: how many trials of the arm and of its baseline did. An arm that diverged is worse, if its
    finished trials are worse too, or not resolved; against a baseline that diverged it is better or not
    resolved.
    """
    if p_holm is None or difference.value is None:
        return None
    direction = BETTER if (difference.value > 0) == higher_is_better else WORSE
    if any(diverged):
        possible = {(True, False): WORSE, (False, True): BETTER}.get((diverged[0] > 0, diverged[1] > 0))
        return direction if p_holm < ALPHA and direction == possible else UNRESOLVED
    if p_holm < ALPHA:
        return direction
    return EQUIVALENT if margin is not None and stats.equivalent(difference, margin) else UNRESOLVED


def disagreements(
    word: str | None,
    difference: Estimate,
    images: Estimate | None,
    p_holm: float | None,
    *,
    family: int,
    margin: float | None,
    unit: Unit,
) -> list[str]:
    """Why a verdict is not what a reader of the marginal 95% interval would expect."""
    if word is None or p_holm is None:
        return []
    notes = []
    if word in (EQUIVALENT, UNRESOLVED):
        if p_holm < ALPHA:
            notes.append("the finished pairs differ, but trials diverged on the side that they favour")
        elif excludes_zero(difference):
            notes.append(f"the 95% interval excludes 0, but not after correction for {family} contrasts")
        if word == EQUIVALENT and not stats.equivalent(difference, margin or 0.0, level=0.95):
            notes.append("equivalence is two one-sided tests at 5%: the 90% interval is within the margin")
        return notes
    if margin is not None and stats.equivalent(difference, margin):
        notes.append(f"a resolved difference, yet within the margin of {unit.size(margin)}")
    if images is not None and not excludes_zero(images):
        notes.append("resolved on these test images; the interval over seeds and images contains 0")
    return notes


def excludes_zero(difference: Estimate) -> bool:
    interval = difference.interval()
    return interval is not None and not interval[0] <= 0 <= interval[1]
