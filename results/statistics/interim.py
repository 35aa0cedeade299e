"""Planned looks: a study whose seeds were raised after a table was looked at several times, and its p say so."""

from collections.abc import Mapping, Sequence
from typing import Any

from results.statistics import contrast
from results.statistics.contrast import Sample

PLANNED = (5, 10, 20, 40)  # seeds: min(1, 4 min_k p_k) holds the error whichever of these are looked at


def counted(plan: Mapping[str, Any]) -> tuple[int, ...]:
    """The planned looks that were made; none where the study was planned with one number of seeds only.

    A look with another number of seeds is no planned one and does not count, nor one with more than are left.
    """
    looks = plan.get("looks", [])  # plans written before the field existed have none
    return tuple(look for look in PLANNED if look in looks and look <= len(plan["seeds"])) if len(looks) > 1 else ()


def factor(plan: Mapping[str, Any]) -> int:
    """How many tests each contrast counts for: 4 where there were planned looks, else 1."""
    return len(PLANNED) if counted(plan) else 1


def p(pairs: Sample, plan: Mapping[str, Any]) -> float | None:
    """Of arm - baseline being 0: min(1, 4 min_k p_k), p_k over the first k seeds; plain where nothing counts.

    A look at which the difference had the other sign, or that allows no test, is 1: the verdict speaks of the
    difference over all seeds.
    """
    whole = contrast.mean(pairs)
    if whole.p is None or not (looks := counted(plan)):
        return whole.p
    found = [contrast.mean(first(pairs, plan["seeds"][:look])) for look in looks]
    alike = [one.p for one in found if one.p is not None and (one.value or 0.0) * (whole.value or 0.0) > 0]
    return min(1.0, len(PLANNED) * min(alike, default=1.0))


def first(pairs: Sample, seeds: Sequence[int]) -> Sample:
    """The pairs of these seeds."""
    return pairs.without(pairs.values.keys() - set(seeds))


def note(plan: Mapping[str, Any]) -> list[str]:
    """What a study that was planned with several numbers of seeds, one after the other, owes its reader."""
    looks, planned = plan.get("looks", []), counted(plan)
    if len(looks) < 2:
        return []
    raised = f"seeds were raised from {' to '.join(map(str, looks))} after a table"
    if len(plan["seeds"]) < max(looks):
        raised = f"tables were looked at with {listed(looks)}, of which {len(plan['seeds'])} are left"
    other = [look for look in looks if look not in PLANNED]
    at = f"planned looks: {', '.join(map(str, PLANNED))}"
    if not planned:
        return [f"{raised}: looking repeatedly inflates error; the p values are not corrected for it ({at})"]
    corrected = f"p is {len(PLANNED)} times the smallest over the first {listed(planned)} ({at})"
    if not other:
        return [f"{raised}: {corrected}"]
    return [f"{raised}: {corrected}; stopping at {listed(other)}, no planned look, is not covered"]


def listed(looks: Sequence[int]) -> str:
    """ "5, 10 seeds" """
    return f"{', '.join(map(str, looks))} seeds"
