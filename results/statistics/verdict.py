"""Verdicts on a difference, and notes on why a verdict and the 95% interval seem to disagree."""

from dataclasses import dataclass

from results.records import Row
from results.statistics.intervals import Estimate
from results.statistics.ratios import Ratio
from results.store.schemas import Arm, Metric
from results.units import amount_text

ALPHA = 0.05
TOST_LEVEL = 1 - 2 * ALPHA  # of the interval that lies within the margin if both one-sided tests reject
BETTER, WORSE, EQUIVALENT, UNRESOLVED = "better", "worse", "equivalent", "not-resolved"
RESOLVED = (BETTER, WORSE)


@dataclass(frozen=True)
class Tie:
    """A difference beside the margin of equivalence.

    margin: the margin as text. bound: the margin in the unit of the ratios. tested: the difference as a ratio to that
    unit, over seeds and images if known. on_these_images: the same over seeds alone. too_wide: why the margin is too
    wide for a verdict, or "".
    """

    margin: str
    bound: float
    tested: Ratio | None
    on_these_images: Ratio | None
    too_wide: str = ""

    @property
    def p_value(self) -> float | None:
        """The p value of equivalence by two one-sided tests (Schuirmann 1987), or None without a test."""
        if self.tested is None or self.tested.df is None:
            return None
        return max(self.tested.p_below(self.bound), (-self.tested).p_below(self.bound))

    def is_within(self, level: float, *, on_these_images: bool = False) -> bool:
        """Return whether the interval at this level lies within the margin."""
        ratio = self.on_these_images if on_these_images else self.tested
        interval = ratio.interval(level) if ratio else None
        return interval is not None and -self.bound < interval[0] and interval[1] < self.bound


def verdict(
    difference: Estimate,
    p_holm: float | None,
    p_margin: float | None,
    *,
    higher_is_better: bool,
    unstable: tuple[int, int] = (0, 0),
) -> str | None:
    """Return better, worse, equivalent or not-resolved, or None if no test is possible.

    p_holm, p_margin: adjusted p values of no difference and of equivalence. Without a margin, p_margin is None.
    unstable: numbers of trials of (arm, baseline) that diverged or collapsed. If there are any, the verdict is never
    equivalent, and never favors the side with more of them. With equal numbers, it is not-resolved. Without a standard
    error, only their rate was tested: the verdict is worse or not-resolved.
    """
    if p_holm is None:
        return None
    resolved = is_significant(p_holm)
    if difference.value is None or difference.se is None:  # tested only by how often trials broke down
        return WORSE if resolved else UNRESOLVED
    direction = BETTER if (difference.value > 0) == higher_is_better else WORSE
    if any(unstable):
        possible = WORSE if unstable[0] > unstable[1] else BETTER if unstable[0] < unstable[1] else None
        return direction if resolved and direction == possible else UNRESOLVED
    if resolved:
        return direction
    return EQUIVALENT if is_significant(p_margin) else UNRESOLVED


def is_significant(p: float | None) -> bool:
    return p is not None and p < ALPHA


def p_with_stability(p: float | None, unstable: tuple[int, int], more: float) -> float | None:
    """Return the p value of a contrast, combined with Fisher's exact test on whether the arm breaks down more often.

    p: p value of the finished pairs, or None if they were not tested. unstable: as in `verdict`. more: Fisher's p
    value, corrected for looks. The result is twice the smaller p value, for two tests. Fisher's p value counts alone if
    p is None, or if both arm and baseline have such trials. If the arm has
    none, the result is p.
    """
    k, others = unstable
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
    tie: Tie | None,
    looks: int = 1,
    grid: bool = False,
    unstable: tuple[int, int] = (0, 0),
) -> list[str]:
    """Return notes on why a verdict differs from what the unadjusted 95% interval suggests.

    word: the verdict. difference: the estimate over seeds. tested: the estimate behind the verdict, over seeds and
    images if known. tie: None without a margin. family, looks: the numbers of contrasts and looks corrected for. grid:
    whether the arm was compared with the baseline's whole tuning grid (see `results.statistics.tuned_pairs`). unstable:
    as in `verdict`.
    """
    if word is None or p_holm is None:
        return []
    notes = []
    tests = amount_text(family, "contrast") + (f" and {looks} looks" if looks > 1 else "")
    tests += " and over the whole grid of the other" if grid else ""
    if word in (EQUIVALENT, UNRESOLVED):
        if is_significant(p_holm):
            notes.append("resolved, but trials diverged or collapsed in the arm that finished pairs favor")
        elif excludes_zero(tested):
            notes.append(f"the 95% interval excludes 0, but not after correction for {tests}")
        else:
            notes += images_notes(difference, tested)
        return notes + (tie_notes(word, tie, tests) if tie and not any(unstable) else [])
    if tie and tie.is_within(TOST_LEVEL):
        notes.append(f"a resolved difference, yet within the margin of {tie.margin}")
    if not excludes_zero(tested):
        by = "by how often it diverges or collapses (Fisher's exact test)" if unstable[0] else "at an earlier look"
        contains = "; the 95% interval over all seeds contains 0" if tested.se is not None else ""
        notes.append(f"resolved {by}{contains}")
    return notes


def tie_notes(word: str, tie: Tie, tests: str) -> list[str]:
    """Return a note if the interval suggests another verdict than equivalent or not-resolved, or why it is withheld."""
    if word == EQUIVALENT:
        strictly = tie.is_within(1 - ALPHA)
        return [] if strictly else ["equivalence is two one-sided tests at 5%: the 90% interval is within the margin"]
    if tie.is_within(TOST_LEVEL):
        why = tie.too_wide or f"the 90% interval is within the margin, but not after correction for {tests}"
        return [f"not called equivalent: {why}" if tie.too_wide else why]
    if tie.is_within(TOST_LEVEL, on_these_images=True):
        return ["the 90% interval is within the margin on these test images only, not over seeds and images"]
    return []


def images_notes(difference: Estimate, tested: Estimate) -> list[str]:
    """Return a note if only the interval over seeds excludes 0, not the one over seeds and images; else []."""
    if not excludes_zero(difference) or excludes_zero(tested):
        return []
    return ["the 95% interval excludes 0 on these test images only; over seeds and images it contains 0"]


def speed_notes(arm: Arm, row: Row, metric: Metric) -> list[str]:
    """Return a note if the difference changes sign after twice the steps and either difference is resolved, or []."""
    there, difference = arm.at_twice_the_steps, row.delta
    if there is None or difference is None or difference * there.difference >= 0:
        return []
    if row.verdict not in RESOLVED and not there.resolved:
        return []
    other = f"{metric.signed_text(there.difference)}{metric.unit_of_difference}"
    return [f"optimization speed: at twice the steps the difference is {other} ({there.origin})"]


def excludes_zero(difference: Estimate) -> bool:
    interval = difference.interval()
    return interval is not None and not interval[0] <= 0 <= interval[1]
