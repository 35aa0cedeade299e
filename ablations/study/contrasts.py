"""Interactions and tuned arms, as a plan records them.

An interaction lists its four arms. A tuned arm lists the points among which its best point is chosen.
"""

import itertools
from collections.abc import Iterator
from typing import Any

from ablations.study.design import Design, point_text, points
from ablations.study.stages import Values
from results.store.schemas import Interaction, Tuned


def interactions(design: Design) -> list[Interaction]:
    """Return the interactions between every two factors of a cross, at each point of the curves.

    If a setting is tuned, arms are at their best value. Interactions with an excluded arm are left out.
    """
    there = {entry.name for entry in tuned_arms(design)} if design.tune else set(design.remaining_arms)
    found = {}
    for cross in design.crosses:
        for one, other in itertools.combinations(cross, 2):
            for a, b in itertools.product(
                other_values(design, one, cross[one]), other_values(design, other, cross[other])
            ):
                for point in fixed_points(design):
                    suffix = point_text(point | dict.fromkeys(design.tune, "tuned"))
                    cells = {"ab": a | b, "a": a, "b": b, "baseline": {}}
                    arms = {role: design.factor_change(values).name + suffix for role, values in cells.items()}
                    if there.issuperset(arms.values()):
                        found[arms["ab"]] = Interaction(name=arms["ab"], **arms)
    return list(found.values())


def other_values(design: Design, factor: str, values: list[Any]) -> Iterator[Values]:
    return ({factor: value} for value in values if value != design.baseline[factor])


def fixed_points(design: Design) -> list[Values]:
    return points({name: values for name, values in design.curves.items() if name not in design.tune})


def tuned_arms(design: Design) -> list[Tuned]:
    """Return every arm at its best point of the tuned grid. The list is empty if nothing is tuned."""
    if not design.tune:
        return []
    own, grid = dict.fromkeys(design.tune, "tuned"), points(design.tune)
    return [
        Tuned(
            name=change.name + point_text(point | own),
            baseline=design.baseline_name + point_text(point | own),
            change=change.name,
            values=change.values | point,
            points=[change.name + point_text(point | place) for place in grid],
            published=design.published.get(change.name + point_text(point)),
        )
        for change in design.changes
        for point in fixed_points(design)
        if change.name + point_text(point | grid[0]) in design.remaining_arms  # excluded as a whole or not at all
    ]
