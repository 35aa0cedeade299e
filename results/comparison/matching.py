"""The arms of two sets of results, A and B, in pairs to compare."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from results.records import Row
from results.statistics import contrast, tuning
from results.statistics.contrast import Sample
from results.statistics.declared import Earlier, declared_earlier
from results.store.schemas import Arm, Plan
from results.study_results import StudyResults
from results.tables import study_table
from results.tables.outcomes import TrialOutcome, outcomes_by_arm


@dataclass(frozen=True)
class Side:
    """An arm of one set of results (A or B), with its row in the study's table.

    trials: the metric in finished trials. contrast: paired differences from the baseline, or None for a baseline.
    interim: whether a planned trial of the study is not over. late: what was declared first about the arm, if its
    margin was changed after there were results.
    """

    study: StudyResults
    arm: Arm
    row: Row
    trials: Sample
    contrast: Sample | None
    outcomes: Sequence[TrialOutcome]
    interim: bool
    late: Earlier | None


@dataclass(frozen=True)
class ArmPair:
    """An arm of A and its counterpart in B, or None for a side without the arm. first: the arm that names the row."""

    a: Side | None
    b: Side | None
    first: Side

    @property
    def late(self) -> list[tuple[str, Side]]:
        """The sides whose margin was changed after there were results, each with its name, "A" or "B"."""
        return [(name, side) for name, side in (("A", self.a), ("B", self.b)) if side and side.late]

    @property
    def as_first_declared(self) -> "ArmPair":
        return replace(self, a=as_first_declared(self.a), b=as_first_declared(self.b))

    @property
    def unfinished(self) -> list[str]:
        """The names of the sides whose study is unfinished, of "A" and "B"."""
        return [name for name, side in (("A", self.a), ("B", self.b)) if side and side.interim]


def matched_pairs(in_a: Sequence[Side], in_b: Sequence[Side]) -> list[ArmPair]:
    """Return a pair for every arm of A, then for every arm of B that is not yet in a pair."""
    pairs = [ArmPair(side, counterpart(side, in_b), first=side) for side in in_a]
    paired = {id(pair.b) for pair in pairs}
    return pairs + [ArmPair(counterpart(side, in_a), side, first=side) for side in in_b if id(side) not in paired]


def sides(studies: Sequence[StudyResults], interim: bool = False) -> list[Side]:
    """Return every arm of every study, including tuned arms at their tuned values.

    interim: whether rows have verdicts before all planned trials are over.
    """
    listed = []
    for untuned in studies:
        table = study_table.table(untuned, interim=interim)
        rows = {row.arm: row for row in table.rows}
        study, _ = tuning.with_tuned(untuned)
        plan = study.plan
        trials = contrast.samples_by_arm(study, plan.metric)
        outcomes = outcomes_by_arm(study)
        for arm in plan.arms:
            name = arm.name
            finished = trials[arm.name]
            baseline = trials[arm.baseline]
            difference = None if finished is baseline else finished - baseline
            late = changed_margin(name, plan)
            listed.append(Side(study, arm, rows[name], finished, difference, outcomes[name], table.interim, late))
    return listed


def changed_margin(name: str, plan: Plan) -> Earlier | None:
    """Return what was declared first about an arm or its contrasts, if the margin was another one."""
    compared = [arm.name for arm in plan.arms if name in (arm.name, arm.baseline)]
    for earlier in declared_earlier(plan):
        if "margin" in earlier.changed and any(earlier.concerns(arm, plan) for arm in compared):
            return earlier
    return None


def as_first_declared(side: Side | None) -> Side | None:
    """Return a side with the margin that was declared first."""
    if side is None or side.late is None:
        return side
    plan = side.study.plan.model_copy(update={"margin": side.late.declaration.margin})
    return replace(side, study=replace(side.study, plan=plan))


def counterpart(side: Side, others: Sequence[Side]) -> Side | None:
    """Return the arm of `others` with the same config and metric, or else the same name and study, or else None."""
    same_config = [other for other in others if are_comparable(side, other)]
    candidates = same_config or [other for other in others if are_namesakes(side, other)]
    return max(
        candidates, key=lambda other: (side.study.name == other.study.name, are_namesakes(side, other)), default=None
    )


def are_comparable(a: Side, b: Side) -> bool:
    """Return whether both arms have the same metric and the same resolved config, apart from seeds."""
    return bool(a.arm.key == b.arm.key and a.study.plan.metric == b.study.plan.metric)


def are_namesakes(a: Side, b: Side) -> bool:
    """Return whether both arms have the same name in the same study, perhaps with different recipes or data."""
    return bool(a.study.plan.study == b.study.plan.study and a.row.arm == b.row.arm)


def differing_settings(a: Side, b: Side) -> list[tuple[str, Any, Any]]:
    """Return (setting, value in a, value in b) for settings that differ. A setting that one side lacks is None."""
    left, right = ({**side.arm.config, **side.arm.config.get("options", {}), "options": None} for side in (a, b))
    return [(key, left.get(key), right.get(key)) for key in {**left, **right} if left.get(key) != right.get(key)]
