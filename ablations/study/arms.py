"""The stages and arms of a study, before their seed is set. A point has one value for each curve."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ablations.study.naming import assignments
from ablations.trainables.trainable import Compared, Trainable, arm_key, trial_id
from results.store.schemas.base import Settings

Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class TrialTemplate:
    """What trials share that differ only in their seed. settings: those given explicitly, without seed and link."""

    name: str
    settings: Values
    trainable: Trainable
    parent: Stage | None = None

    @cached_property
    def config(self) -> Settings:
        """The resolved settings at seed 0, which name the parent's trial at seed 0. Raises ValueError."""
        return self.resolve()

    def resolve(self) -> Settings:
        seeded: Values = {"seed": 0}
        if self.parent:
            seeded[self.parent.link] = self.parent.id
        return self.trainable.resolve(self.trainable.merge(self.settings, seeded))

    @cached_property
    def id(self) -> str:
        return trial_id(self.trainable, self.config)

    @cached_property
    def key(self) -> str:
        """The identifier that all of the trials share."""
        return arm_key(self.trainable, self.config)

    @cached_property
    def recorded(self) -> Settings:
        """The resolved settings without unset seeds and without the link to the parent, which differ by seed."""
        left_out = {"seed", *self.trainable.seed_keys} - self.settings.keys()
        if self.parent:
            left_out.add(self.parent.link)
        return {key: value for key, value in self.config.items() if key not in left_out}

    @property
    def parent_name(self) -> str:
        return self.parent.name if self.parent else ""

    @property
    def lineage(self) -> list[Stage]:
        """The parent and its ancestors, nearest first."""
        return [self.parent, *self.parent.lineage] if self.parent else []

    @property
    def declared_settings(self) -> list[str]:
        return []

    def value(self, key: str) -> Any:
        """Return the value of a setting such as lr or pretrain.lr; of the link to the parent, the name of its stage.

        Returns None for an unset option and an unused stage. Raises ValueError if a stage is not valid.
        """
        name, _, rest = key.partition(".")
        for stage in self.lineage:
            if stage.stage == name:
                return stage.value(rest)
        if self.parent and key == self.parent.link:
            return self.parent.stage
        return self.config.get(key, self.config.get("options", {}).get(key))

    def compared(self) -> Compared:
        if self.parent is None:
            return Compared(self.name, self.config, self.declared_settings)
        return Compared(self.name, self.config, self.declared_settings, self.parent.compared(), self.parent.link)


@dataclass(frozen=True, kw_only=True)
class Stage(TrialTemplate):
    """Trials that other trials start or learn from.

    name: the stage's name with the settings that the study varies in it. stage: the stage's name alone. own: keys of
    the settings written for this stage alone. link: the setting by which its children name it.
    """

    stage: str
    link: str
    own: frozenset[str]

    def resolve(self) -> Settings:
        if self.parent:
            _ = self.parent.config  # its errors name it
        try:
            return super().resolve()
        except ValueError as error:  # a key that is written for this stage alone, as pretrain.steps, is named so
            is_own = str(error).partition("=")[0] in self.own
            raise type(error)(f"{self.stage}.{error}" if is_own else f"stage {self.stage}: {error}") from None


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

    def sets_all(self, written: str) -> bool:
        """Return whether a change of factors includes all that `written` lists, such as "pool=gap,patch=2"."""
        return not self.named and {*written.split(",")} <= {*assignments(self.settings).split(",")}


@dataclass(frozen=True, kw_only=True)
class Arm(TrialTemplate):
    """A row of a study's table: its trials, and the arm that it is compared with."""

    baseline: str
    values: Values  # factor or curve -> value
    change: Change

    @property
    def declared_settings(self) -> list[str]:
        return self.change.declared_settings

    def footnotes(self, baseline: Arm, budget: str) -> dict[str, str]:
        """Return the arm's footnotes: note -> the measure that it explains, or ""."""
        notes: dict[str, str] = {}
        if self.name != baseline.name:
            if self.change.named:
                notes[f"is {assignments(self.change.settings)}"] = ""
            for key, value in self.change.co_changes.items():
                notes[f"with {key} {value} against {baseline.value(key)}, declared"] = ""
        return notes | self.trainable.notes(self.compared(), baseline.compared(), budget)


def arm_name(change: str, point: Values) -> str:
    """Return the name of an arm from the name of its change and its point (curve -> value)."""
    return f"{change},{assignments(point)}" if point else change


def points(axes: Mapping[str, Sequence[Any]]) -> list[Values]:
    """Return a point (axis -> value) for every combination of values, or one empty point if there are no axes."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
