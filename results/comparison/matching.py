"""The arms of two sets of results, A and B, in pairs to compare."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from results.records import Row
from results.statistics import tuning
from results.statistics.arms import ArmResults, arm_results
from results.statistics.contrast import Sample
from results.statistics.declared import Earlier, declared_earlier
from results.store.schemas import Plan
from results.study_results import StudyResults
from results.tables import study_table


@dataclass(frozen=True)
class Side:
    """An arm of one set of results (A or B), with its row in the study's table.

    contrast: paired differences from the baseline, or None for a baseline. interim: whether a planned trial of the
    study is not over. late: what was declared first about the arm, if its margin was changed after there were results.
    """

    plan: Plan
    arm: ArmResults
    row: Row
    contrast: Sample | None
    interim: bool
    late: Earlier | None

    @property
    def as_first_declared(self) -> "Side":
        """The side with the margin that was declared first."""
        if self.late is None:
            return self
        return replace(self, plan=self.plan.model_copy(update={"margin": self.late.declaration.margin}))

    def is_comparable(self, other: "Side") -> bool:
        """Return whether both arms have the same metric and the same resolved config, apart from seeds."""
        return self.arm.arm.key == other.arm.arm.key and self.plan.metric == other.plan.metric

    def is_namesake(self, other: "Side") -> bool:
        """Return whether both arms have the same name in the same study, perhaps with different recipes or data."""
        return self.plan.study == other.plan.study and self.arm.name == other.arm.name

    def counterpart(self, others: Sequence["Side"]) -> "Side | None":
        """Return the arm of `others` with the same config and metric, or else the same name and study, or else None."""
        candidates = list(filter(self.is_comparable, others)) or filter(self.is_namesake, others)
        return max(
            candidates, key=lambda other: (self.plan.name == other.plan.name, self.is_namesake(other)), default=None
        )


@dataclass(frozen=True)
class ArmPair:
    """An arm of A and its counterpart in B, or None for a side without the arm. first: the arm that names the row."""

    a: Side | None
    b: Side | None
    first: Side

    @property
    def sides(self) -> dict[str, Side]:
        """The sides that have the arm, by their names "A" and "B"."""
        return {name: side for name, side in (("A", self.a), ("B", self.b)) if side}

    @property
    def comparable(self) -> tuple[Side, Side] | None:
        """Both sides, or None unless they can be tested against each other."""
        if self.a is None or self.b is None or not self.a.is_comparable(self.b):
            return None
        return self.a, self.b

    @property
    def late(self) -> dict[str, Earlier]:
        """What was declared first about the arm on each side whose margin was changed after there were results."""
        return {name: side.late for name, side in self.sides.items() if side.late}

    @property
    def as_first_declared(self) -> "ArmPair":
        return replace(self, a=self.a and self.a.as_first_declared, b=self.b and self.b.as_first_declared)

    @property
    def unfinished(self) -> list[str]:
        """The names of the sides whose study is unfinished, of "A" and "B"."""
        return [name for name, side in self.sides.items() if side.interim]


def matched_pairs(in_a: Sequence[Side], in_b: Sequence[Side]) -> list[ArmPair]:
    """Return a pair for every arm of A, then for every arm of B that is not yet in a pair."""
    pairs = [ArmPair(side, side.counterpart(in_b), first=side) for side in in_a]
    paired = {id(pair.b) for pair in pairs}
    for side in in_b:
        if id(side) not in paired:
            pairs.append(ArmPair(side.counterpart(in_a), side, first=side))
    return pairs


def sides(studies: Sequence[StudyResults], interim: bool = False) -> list[Side]:
    """Return every arm of every study, including tuned arms at their tuned values.

    interim: whether rows have verdicts before all planned trials are over.
    """
    listed = []
    for untuned in studies:
        table = study_table.table(untuned, interim=interim)
        rows = {row.arm: row for row in table.rows}
        study, choices = tuning.with_tuned(untuned)
        arms = arm_results(study, choices)
        for name, arm in arms.items():
            difference = None
            if arm.arm.baseline != name:
                difference = arm.sample - arms[arm.arm.baseline].sample
            late = changed_margin(name, study.plan)
            listed.append(Side(study.plan, arm, rows[name], difference, table.interim, late))
    return listed


def changed_margin(name: str, plan: Plan) -> Earlier | None:
    """Return what was declared first about an arm or its contrasts, if the margin was another one."""
    compared = [arm.name for arm in plan.arms if name in (arm.name, arm.baseline)]
    for earlier in declared_earlier(plan):
        if "margin" in earlier.changed and any(earlier.concerns(arm, plan) for arm in compared):
            return earlier
    return None


def differing_settings(a: Side, b: Side) -> list[tuple[str, Any, Any]]:
    """Return (setting, value in a, value in b) for settings that differ. A setting that one side lacks is None."""
    left = settings(a)
    right = settings(b)
    return [(key, left.get(key), right.get(key)) for key in {**left, **right} if left.get(key) != right.get(key)]


def settings(side: Side) -> dict[str, Any]:
    """Return the settings of an arm, the options of data and parts among them."""
    config = side.arm.arm.config
    return {**config, **config.get("options", {}), "options": None}
