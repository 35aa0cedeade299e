"""Repeated looks: p values of a study whose number of seeds was raised after a table had been looked at."""

from collections.abc import Sequence

from results.statistics.contrast import Sample
from results.store.schemas import Plan

PLANNED = (5, 10, 20, 40)  # seeds: min(1, 4 min_k p_k) holds the error whichever of these are looked at


def counted_looks(plan: Plan) -> tuple[int, ...]:
    """Return the planned looks that were made; () for a study planned with one number of seeds.

    A look at an unplanned number of seeds does not count, nor does a look at more seeds than remain.
    """
    looks = plan.looks
    return tuple(look for look in PLANNED if look in looks and look <= len(plan.seeds)) if len(looks) > 1 else ()


def correction_factor(plan: Plan) -> int:
    """Return the number of tests that each contrast counts as: 4 after planned looks, else 1."""
    return len(PLANNED) if counted_looks(plan) else 1


def p_value(pairs: Sample, plan: Plan) -> float | None:
    """Return p of arm - baseline, corrected for looks: min(1, 4 min_k p_k), p_k over the first k seeds.

    A look with the opposite sign, or without a test, counts as 1: the verdict is about the difference over all seeds.
    """
    whole = pairs.mean
    if whole.p is None or not (looks := counted_looks(plan)):
        return whole.p
    found = [pairs.without(pairs.values.keys() - set(plan.seeds[:look])).mean for look in looks]
    alike = [one.p for one in found if one.p is not None and (one.value or 0.0) * (whole.value or 0.0) > 0]
    return min(1.0, len(PLANNED) * min(alike, default=1.0))


def notes(plan: Plan) -> list[str]:
    """State at which numbers of seeds tables were looked at, and whether p is corrected for these looks."""
    looks, planned = plan.looks, counted_looks(plan)
    if len(looks) < 2:
        return []
    raised = f"seeds were raised from {' to '.join(map(str, looks))} after a table"
    if len(plan.seeds) < max(looks):
        raised = f"tables were looked at with {seeds_text(looks)}, of which {len(plan.seeds)} are left"
    at = f"planned looks: {', '.join(map(str, PLANNED))}"
    if not planned:
        return [f"{raised}: looking repeatedly inflates error; the p values are not corrected for it ({at})"]
    note = f"{raised}: p is {len(PLANNED)} times the smallest over the first {seeds_text(planned)} ({at})"
    if other := [look for look in looks if look not in PLANNED]:
        note += f"; stopping at {seeds_text(other)}, no planned look, is not covered"
    return [note]


def seeds_text(looks: Sequence[int]) -> str:
    """Format numbers of seeds: "5, 10 seeds"."""
    return f"{', '.join(map(str, looks))} seeds"
