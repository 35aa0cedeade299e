"""Verdicts on a difference, and the p values behind them: Holm's correction and Fisher's exact test."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from results.statistics.intervals import Estimate, Ratio

ALPHA = 0.05
TOST_LEVEL = 1 - 2 * ALPHA  # of the interval that lies within the margin if both one-sided tests reject
BETTER, WORSE, EQUIVALENT, UNRESOLVED = "better", "worse", "equivalent", "not-resolved"
RESOLVED = (BETTER, WORSE)


def rules() -> dict[str, str | float]:
    """Return how verdicts are formed: the levels and corrections, and the SHA-256 of the code in this folder."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return {
        "level": ALPHA,
        "equivalence": f"two one-sided tests, each at {ALPHA}",
        "family": "Holm",
        "sha256": digest.hexdigest(),
    }


@dataclass(frozen=True)
class Tie:
    """A difference beside the margin of equivalence.

    bound: the margin in the unit of the ratios. tested: the difference in that unit, over seeds and images if known.
    on_these_images: the same over seeds alone. too_wide: why the margin is too wide for a verdict, or "".
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
        ratio = self.tested
        if on_these_images:
            ratio = self.on_these_images
        interval = None
        if ratio is not None:
            interval = ratio.interval(level)
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

    p_holm, p_margin: adjusted p values of no difference and of equivalence. unstable: numbers of trials of (arm,
    baseline) that diverged or collapsed. If there are any, the verdict is never equivalent, and never favors the side
    with more or as many. Without a standard error, only their rate was tested: the verdict is worse or not-resolved.
    """
    if p_holm is None:
        return None
    resolved = is_significant(p_holm)
    if difference.value is None or difference.se is None:  # tested only by how often trials broke down
        return WORSE if resolved else UNRESOLVED
    if not resolved:
        if is_significant(p_margin) and not any(unstable):
            return EQUIVALENT
        return UNRESOLVED
    arm, baseline = unstable
    if (difference.value > 0) == higher_is_better:
        return UNRESOLVED if any(unstable) and arm >= baseline else BETTER
    return UNRESOLVED if any(unstable) and baseline >= arm else WORSE


def is_significant(p: float | None) -> bool:
    return p is not None and p < ALPHA


def excludes_zero(difference: Estimate) -> bool:
    interval = difference.interval()
    return interval is not None and not interval[0] <= 0 <= interval[1]


def holm(p: Sequence[float | None], family: int = 0) -> list[float | None]:
    """Return p values adjusted by Holm's method (1979). family: planned tests. None stays None and counts as 1."""
    size = max(family, len(p))
    ascending = sorted((value, index) for index, value in enumerate(p) if value is not None)
    adjusted: list[float | None] = [None] * len(p)
    largest = 0.0
    for rank, (value, index) in enumerate(ascending):
        largest = max(largest, min(1.0, (size - rank) * value))
        adjusted[index] = largest
    return adjusted


def gated_holm(
    first: Sequence[float | None], further: Sequence[Sequence[float | None]], opens: Sequence[bool], family: int = 0
) -> tuple[list[float | None], list[list[float | None]]]:
    """Return adjusted p values of each arm's first test, and of its further tests, which the first one opens.

    first: a p value per arm, None for no test. further: p values per arm. opens: whether a rejection by the first test
    opens the further ones. family: planned arms.

    Every arm has the level alpha / (unfinished arms). Its first test has it all; then its further tests, corrected by
    Holm, have it. An arm is finished once all of its tests have rejected, and the others share its level. These are
    serial gates as a graph (Bretz et al. 2009). Until the first error, an arm with a true hypothesis is unfinished, so
    there are as many unfinished arms, which err in alpha / (their number) each, however the tests depend on each other.
    """
    unfinished = max(family, len(first))
    adjusted_first: list[float | None] = [None] * len(first)
    adjusted_further: list[list[float | None]] = [[None] * len(tests) for tests in further]
    largest = 0.0
    while True:
        candidates = []
        for arm, p in enumerate(first):
            if adjusted_first[arm] is None:
                if p is not None:
                    candidates.append((unfinished * p, arm, -1))
            elif opens[arm]:
                left = adjusted_further[arm].count(None)
                for number, further_p in enumerate(further[arm]):
                    if adjusted_further[arm][number] is None and further_p is not None:
                        candidates.append((unfinished * left * further_p, arm, number))
        if not candidates:
            return adjusted_first, adjusted_further
        p, arm, number = min(candidates)
        largest = max(largest, min(1.0, p))
        if number < 0:
            adjusted_first[arm] = largest
            continue
        adjusted_further[arm][number] = largest
        if None not in adjusted_further[arm]:
            unfinished -= 1


def fisher_p(k: int, n: int, others: int, of: int) -> float:
    """Return the one-sided p value of Fisher's exact test that the rate k / n is higher than others / of."""
    total = k + others
    ways = sum(math.comb(n, x) * math.comb(of, total - x) for x in range(k, min(n, total) + 1))
    return ways / math.comb(n + of, total)
