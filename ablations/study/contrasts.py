"""What a table makes of the arms besides arm - baseline, written into the plan so that it needs no YAML.

Interactions: which four arms each is made of. Tuned arms: the grid that each chooses its own point from.
"""

import itertools
from collections.abc import Iterator
from typing import Any

from ablations.study.study import Design, Values, at, points

Json = dict[str, Any]


def interactions(design: Design) -> list[Json]:
    """Of every two factors of a cross, the others at the baseline's: name, ab, a, b, baseline, at each point.

    Where something is tuned, each arm at its own value of it. An arm that the study excludes takes its interactions
    with it.
    """
    there = {entry["name"] for entry in tuned(design)} if design.tune else set(design.left)
    found = {}
    for cross in design.crosses:
        for one, other in itertools.combinations(cross, 2):
            for a, b in itertools.product(changed(design, one, cross[one]), changed(design, other, cross[other])):
                for point in settled(design):
                    entry = four(design, a, b, point | dict.fromkeys(design.tune, "tuned"))
                    if there.issuperset(entry.values()):
                        found[entry["ab"]] = {"name": entry["ab"], **entry}
    return list(found.values())


def changed(design: Design, factor: str, values: list[Any]) -> Iterator[Values]:
    """The values that are not the baseline's."""
    return ({factor: value} for value in values if value != design.baseline[factor])


def four(design: Design, a: Values, b: Values, point: Values) -> dict[str, str]:
    """The names of both changes together, of each alone, and of none."""
    together = {"ab": a | b, "a": a, "b": b, "baseline": {}}
    return {role: design.changed(values).name + at(point) for role, values in together.items()}


def settled(design: Design) -> list[Values]:
    """The points of the curves that are not tuned."""
    return points({name: values for name, values in design.curves.items() if name not in design.tune})


def tuned(design: Design) -> list[Json]:
    """Every arm at its own point of the tuned grid: what it is called and compared with, and the arms of its grid."""
    if not design.tune:
        return []
    own, grid = dict.fromkeys(design.tune, "tuned"), points(design.tune)
    return [
        {
            "name": change.name + at(point | own),
            "baseline": design.baseline_name + at(point | own),
            "change": change.name,
            "values": change.values | point,
            "points": [change.name + at(point | place) for place in grid],
            "published": design.published.get(change.name + at(point)),
        }
        for change in design.changes
        for point in settled(design)
        if change.name + at(point | grid[0]) in design.left  # excluded as a whole or not at all
    ]
