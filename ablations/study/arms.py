"""The arms of a study: how each differs from the baseline, and its config at each point of the curves.

A curve is a setting that varies in every arm. A point has one value for each curve.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ablations.study import stages
from ablations.study.naming import assignments
from ablations.study.stages import Values
from ablations.trainables.trainable import Compared, Trainable, arm_key
from results.store.schemas import Settings


@dataclass(frozen=True)
class Change:
    """The difference between an arm and the baseline. It is the same at every point of the study's curves."""

    name: str
    values: Values  # factor -> value
    settings: Values  # the changed settings, as the study writes them
    co_changes: Values = field(default_factory=dict)  # the settings that the study's `with` changes too
    named: bool = False  # whether the change is a named arm of the study

    @property
    def declared_settings(self) -> list[str]:
        return list(dict.fromkeys([*self.settings, *self.co_changes]))


@dataclass(frozen=True)
class Arm:
    """A row of a study's table: the settings of its trials, and the arm that it is compared with."""

    name: str
    baseline: str
    values: Values  # factor or curve -> value
    settings: Values  # all settings that are given explicitly, except the seed and the link to the parent
    change: Change
    trainable: Trainable
    parent: stages.Stage | None = None  # the stage that its trials start or learn from, if any

    @cached_property
    def config(self) -> Settings:
        """The arm's resolved settings at seed 0."""
        return stages.resolved(self.trainable, self.settings, self.parent, 0)

    @cached_property
    def key(self) -> str:
        """The identifier that all trials of the arm share."""
        return arm_key(self.trainable, self.config)

    def compared(self) -> Compared:
        return stages.compared(self.name, self.config, self.change.declared_settings, self.parent)


def arm_name(change: str, point: Values) -> str:
    """Return the name of an arm from the name of its change and its point (curve -> value)."""
    return f"{change},{assignments(point)}" if point else change


def points(axes: Mapping[str, Sequence[Any]]) -> list[Values]:
    """Return a point (axis -> value) for every combination of values, or one empty point if there are no axes."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
