"""Names of arms as a study writes them in published numbers and claims, with indices such as axis[-1]."""

from typing import Any

from ablations.study.arms import arm_name
from ablations.study.design import Design
from ablations.study.study import PLACE
from results.records import parse_claim


def published(design: Design) -> dict[str, float]:
    """Return the published numbers of a study: arm name -> number. Raises the errors of `resolved`."""
    return {resolved(design, name): value for name, value in design.study.published.items()}


def all_claims(design: Design) -> list[str]:
    """Return the study's distinct claims, with indices such as axis[-1] replaced. Raises the errors of `resolved`."""
    parts = map(parse_claim, design.study.claims)
    return list(dict.fromkeys(f"{resolved(design, a)} {relation} {resolved(design, b)}" for a, relation, b in parts))


def resolved(design: Design, name: str) -> str:
    """Return an arm's name with each index, such as axis[-1] in `width=axis[-1]`, replaced by its value.

    axis[-1] is the last of the recipe's values. Settings come in the study's order, without factors at the baseline's
    values. Returns the name unchanged if it has no index, or an index or value that does not exist. Raises ValueError
    if the recipe lacks the axis.
    """
    if not PLACE.search(name):
        return name
    first, _, rest = name.partition(",")
    is_named = first in design.study.arms
    pieces = [piece.partition("=") for piece in (rest if is_named else name).split(",")]
    values = {key: value_in_name(design, key, text) for key, _, text in pieces}
    if None in values.values():
        return name
    own = {key: value for key, value in values.items() if key in design.factors and value != design.baseline[key]}
    point = {key: values[key] for key in design.curves if key in values}
    return arm_name(first if is_named else design.factor_change(own).name, point)


def value_in_name(design: Design, key: str, text: str) -> Any:
    """Return the value that an arm's name writes as `text`, or None if the setting has no such value."""
    if place := PLACE.fullmatch(text):
        values, number = design.axis_values(key), int(place[1])
        return values[number] if -len(values) <= number < len(values) else None
    known = [*design.factors.get(key, []), *design.curves.get(key, [])]
    return next((value for value in known if str(value) == text), None)
