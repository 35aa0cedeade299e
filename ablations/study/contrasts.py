"""Interactions and tuned arms, written into the plan so that tables need no YAML.

An interaction lists its four arms; a tuned arm lists the grid that it chooses its point from.
"""

import itertools
from collections.abc import Iterator
from typing import Any

from ablations.study.design import Design, at, points
from ablations.study.stages import Values
from results.store.schemas import Interaction, Tuned


def interactions(design: Design) -> list[Interaction]:
    """Return the interactions of every two factors of a cross, at each point.

    If something is tuned, each arm is at its own value. Excluding an arm removes its interactions.
    """
    there = {entry.name for entry in tuned(design)} if design.tune else set(design.remaining)
    found = {}
    for cross in design.crosses:
        for one, other in itertools.combinations(cross, 2):
            for a, b in itertools.product(others(design, one, cross[one]), others(design, other, cross[other])):
                for point in fixed_points(design):
                    entry = interaction_arms(design, a, b, point | dict.fromkeys(design.tune, "tuned"))
                    if there.issuperset(entry.values()):
                        found[entry["ab"]] = Interaction(name=entry["ab"], **entry)
    return list(found.values())


def others(design: Design, factor: str, values: list[Any]) -> Iterator[Values]:
    """Return the values that differ from the baseline's."""
    return ({factor: value} for value in values if value != design.baseline[factor])


def interaction_arms(design: Design, a: Values, b: Values, point: Values) -> dict[str, str]:
    """Return the names of the four arms: both changes together, each alone, and neither."""
    together = {"ab": a | b, "a": a, "b": b, "baseline": {}}
    return {role: design.changed(values).name + at(point) for role, values in together.items()}


def fixed_points(design: Design) -> list[Values]:
    """Return the points of the curves that are not tuned."""
    return points({name: values for name, values in design.curves.items() if name not in design.tune})


def tuned(design: Design) -> list[Tuned]:
    """Return every arm at its own point of the tuned grid."""
    if not design.tune:
        return []
    own, grid = dict.fromkeys(design.tune, "tuned"), points(design.tune)
    return [
        Tuned(
            name=change.name + at(point | own),
            baseline=design.baseline_name + at(point | own),
            change=change.name,
            values=change.values | point,
            points=[change.name + at(point | place) for place in grid],
            published=design.published.get(change.name + at(point)),
        )
        for change in design.changes
        for point in fixed_points(design)
        if change.name + at(point | grid[0]) in design.remaining  # excluded as a whole or not at all
    ]
