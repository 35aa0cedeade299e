"""Interactions of a study's crosses: which four arms each is made of, written into the plan."""

import itertools
from collections.abc import Iterator
from typing import Any

from ablations.study import Design, Values, at, points

Json = dict[str, Any]


def interactions(design: Design) -> list[Json]:
    """Of every two factors of a cross, the others at the baseline's: name, ab, a, b, baseline, at each point.

    An arm that the study excludes takes its interactions with it.
    """
    found = {}
    for cross in design.crosses:
        for one, other in itertools.combinations(cross, 2):
            for a, b in itertools.product(changed(design, one, cross[one]), changed(design, other, cross[other])):
                for point in points(design.curves):
                    entry = four(design, a, b, point)
                    if all(name in design.left for name in entry.values()):
                        found[entry["ab"]] = {"name": entry["ab"], **entry}
    return list(found.values())


def changed(design: Design, factor: str, values: list[Any]) -> Iterator[Values]:
    """The values that are not the baseline's."""
    return ({factor: value} for value in values if value != design.baseline[factor])


def four(design: Design, a: Values, b: Values, point: Values) -> dict[str, str]:
    """The names of both changes together, of each alone, and of none."""
    together = {"ab": a | b, "a": a, "b": b, "baseline": {}}
    return {role: design.changed(values).name + at(point) for role, values in together.items()}
