"""Repeated looks: p values of a study whose number of seeds was raised after a table had been made.

A look is a number of seeds that the plan has had. A table is taken to have been made at each.
"""

from collections.abc import Sequence

from results.statistics.contrast import Sample
from results.store.schemas import Plan

PLANNED = (5, 10, 20, 40)  # seeds; min(1, 4 min_k p_k) controls the error for any of these looks


def counted_looks(plan: Plan) -> tuple[int, ...]:
    """Return the plan's looks that are in PLANNED and that its seeds cover, or () for fewer than two looks."""
    looks = plan.looks
    return tuple(look for look in PLANNED if look in looks and look <= len(plan.seeds)) if len(looks) > 1 else ()


def correction_factor(plan: Plan) -> int:
    """Return the number of tests that each contrast counts as: 4 if the study has `counted_looks`, else 1."""
    return len(PLANNED) if counted_looks(plan) else 1


def p_value(pairs: Sample, plan: Plan) -> float | None:
    """Return the p value of a contrast, corrected for `counted_looks`, or None if no test is possible.

    pairs: the per-seed differences arm - baseline. The corrected value is min(1, 4 min_k p_k), where p_k is the p value
    over the first k seeds, for each look k. A look without a test counts as p = 1, and so does a look whose difference
    has the opposite sign: the verdict is about the difference over all seeds.
    """
    whole = pairs.tested
    if whole.p_value is None or not (looks := counted_looks(plan)):
        return whole.p_value
    found = [pairs.without_seeds(pairs.values.keys() - set(plan.seeds[:look])).tested for look in looks]
    alike = [one.p_value for one in found if one.p_value is not None and (one.value or 0.0) * (whole.value or 0.0) > 0]
    return min(1.0, len(PLANNED) * min(alike, default=1.0))


def look_notes(plan: Plan) -> list[str]:
    """Return a note on a study's looks and whether p is corrected for them, or [] for fewer than two looks."""
    looks, planned = plan.looks, counted_looks(plan)
    if len(looks) < 2:
        return []
    raised = f"seeds were raised from {' to '.join(map(str, looks))} after a table"
    if len(plan.seeds) < max(looks):
        raised = f"tables were made with {seeds_text(looks)}, and {len(plan.seeds)} are left"
    at = f"planned looks: {', '.join(map(str, PLANNED))}"
    if not planned:
        return [f"{raised}: looking repeatedly inflates error; the p values are not corrected for it ({at})"]
    note = f"{raised}: p is {len(PLANNED)} times the smallest over the first {seeds_text(planned)} ({at})"
    if other := [look for look in looks if look not in PLANNED]:
        note += f"; stopping at {seeds_text(other)}, no planned look, is not covered"
    return [note]


def seeds_text(looks: Sequence[int]) -> str:
    return f"{', '.join(map(str, looks))} seeds"
