"""Interactions and tuned arms, as a plan records them.

An interaction lists its four arms. A tuned arm lists the points among which its best point is chosen.
"""

import itertools
from typing import Any

from ablations.study import written_names
from ablations.study.arms import arm_name, points
from ablations.study.design import Design
from ablations.study.stages import Values
from results.store.schemas import Interaction, Tuned


def interactions(design: Design) -> list[Interaction]:
    """Return the interactions between every two factors of a cross, at each point of the curves.

    If a setting is tuned, each arm is taken at its best value. Interactions with an excluded arm are left out.
    """
    there = {entry.name for entry in tuned_arms(design)} if design.tune else set(design.remaining_arms)
    found = {}
    for (a, b), point in itertools.product(pairs_of_changes(design), fixed_points(design)):
        cells = {"ab": a | b, "a": a, "b": b, "baseline": {}}
        own = point | dict.fromkeys(design.tune, "tuned")
        arms = {role: arm_name(design.factor_change(values).name, own) for role, values in cells.items()}
        if there.issuperset(arms.values()):
            found[arms["ab"]] = Interaction(name=arms["ab"], **arms)
    return list(found.values())


def pairs_of_changes(design: Design) -> list[tuple[Values, Values]]:
    """Return all pairs of single-factor changes from the baseline, for every two factors of a cross."""
    found: list[tuple[Values, Values]] = []
    for cross in design.crosses:
        for one, other in itertools.combinations(cross, 2):
            found += itertools.product(changes_of(design, one, cross[one]), changes_of(design, other, cross[other]))
    return found


def changes_of(design: Design, factor: str, values: list[Any]) -> list[Values]:
    return [{factor: value} for value in values if value != design.baseline[factor]]


def fixed_points(design: Design) -> list[Values]:
    """Return the points of the curves that are not tuned."""
    return points({name: values for name, values in design.curves.items() if name not in design.tune})


def tuned_arms(design: Design) -> list[Tuned]:
    """Return a tuned arm for each change at each remaining point of the other curves, or [] if nothing is tuned."""
    if not design.tune:
        return []
    tuned, grid = dict.fromkeys(design.tune, "tuned"), points(design.tune)
    published = written_names.published(design)
    return [
        Tuned(
            name=arm_name(change.name, point | tuned),
            baseline=arm_name(design.baseline_name, point | tuned),
            change=change.name,
            values=change.values | point,
            points=[arm_name(change.name, point | place) for place in grid],
            published=published.get(arm_name(change.name, point)),
        )
        for change in design.changes
        for point in fixed_points(design)
        if arm_name(change.name, point | grid[0]) in design.remaining_arms  # a grid is excluded entirely or not at all
    ]
