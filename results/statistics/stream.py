"""A stream of proposed changes to a baseline: the level of each proposal's test, and the decision after each step.

The null hypothesis of a proposal is that the candidate is not better than the baseline. Levels follow LORD++ (Ramdas,
Yang, Wainwright and Jordan 2017): the levels of all proposals so far sum to at most ALPHA times the number of keeps, or
ALPHA without one. If every proposal has seeds of its own, the expected number of false keeps is at most ALPHA times the
expected number of keeps (at least 1), after any number of proposals in any order, whichever were chosen by the answers
before. Without such a choice, the expected share of false keeps (the false discovery rate) is at most ALPHA too.

A proposal that is never decided has spent its level. A keep counts from when it is known (Zrnic, Ramdas and Jordan
2021), so that proposals may be open side by side.

A proposal is tested in declared steps. Each step has the share of its level that its new seeds are of all planned
seeds. The shares sum to 1, so by Bonferroni's inequality all steps together err at most at the level, whether or not
they are all taken. Rejecting early never adds an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import special

from results.statistics.contrast import Measured, Unpaired
from results.statistics.intervals import Estimate

ALPHA = 0.05
FIRST_WEALTH = ALPHA / 2  # what is spent before the first keep
DECAY = 1.3  # the level falls by this power of the number of proposals since the last keep
BOUND = 0.95  # confidence of the one-sided bound that excludes an improvement by the margin

Answer = Literal["keep", "reject", "more"]


def share(distance: int) -> float:
    """Return the share of its reward that a keep gives to the proposal so many places later. All shares sum to 1."""
    return float(distance**-DECAY / special.zeta(DECAY))


def next_level(opened: int, keeps: Sequence[int]) -> float:
    """Return the level of the next proposal of a stream.

    opened: the number of its proposals so far. keeps: for each keep, how many of them were opened when it was known.
    """
    level = FIRST_WEALTH * share(opened + 1)
    reward = ALPHA - FIRST_WEALTH
    for opened_before in sorted(keeps):
        level += reward * share(opened + 1 - opened_before)
        reward = ALPHA
    return level


def step_level(level: float, steps: Sequence[int], step: int) -> float:
    """Return the level of a step, the first of which is 1. steps: the planned seeds at the end of each step."""
    new = steps[step - 1]
    if step > 1:
        new -= steps[step - 2]
    return level * new / steps[-1]


def p_better(gain: Estimate) -> float | None:
    """Return the one-sided p value of the null hypothesis that the gain is at most 0, or None without a test."""
    if gain.value is None or gain.se is None or gain.df is None:
        return None
    return float(special.stdtr(gain.df, -gain.value / gain.se))


@dataclass(frozen=True)
class Decision:
    answer: Answer
    reason: str


def decide(gain: Estimate, margin: float, level: float, is_last: bool) -> Decision:
    """Return the decision after a step.

    gain: of the candidate over the baseline, positive if better. margin: the smallest gain that is worth a change.
    level: of this step. is_last: whether the plan ends here.
    """
    p = p_better(gain)
    if p is None and gain.n > 1 and gain.value == 0:
        return Decision("reject", "all results are identical")
    bound = gain.interval(2 * BOUND - 1)
    if bound is not None and bound[1] < margin:
        return Decision("reject", f"a gain of the margin is excluded ({BOUND:.0%} bound)")
    if p is not None and p <= level:
        return Decision("keep", "better than the baseline")
    reason = "not decided yet"
    if p is None:
        reason = f"no test is possible: {gain.why}"
    if not is_last:
        return Decision("more", reason)
    if p is None:
        return Decision("reject", reason)
    return Decision("reject", "not shown to be better with all planned seeds")


def total_gain(gains: Sequence[Measured]) -> Estimate:
    """Return the estimated sum of gains that were each measured with seeds of their own."""
    return Unpaired(tuple(term for gain in gains for term in gain.terms)).tested
