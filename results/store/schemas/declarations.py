"""What a plan declares before its tests."""

from datetime import datetime
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, field_validator

from results.store.schemas.base import Count, Schema, Seed, TrialId
from results.store.schemas.metrics import Margin

Paired = Literal["by-seed", "no"] | None


class Looks(Schema):
    """The content of studies/<name>/looks.json, which 0.23 wrote. Later versions write declarations instead."""

    looks: list[Count]  #: Numbers of seeds that the plan has had, ascending.
    trials: list[TrialId]  #: Id of each arm's first trial. Only a plan with one of them has these looks.


class DeclaredArm(Schema):
    baseline: str  #: Name of the arm that it is compared with.
    trials: list[TrialId]  #: Ids of its trials, by seed.


class Declaration(Schema):
    """The content of a file in ledger/: what a plan declared, when, and which trials had results at that time."""

    plan: Annotated[str, Field(min_length=1)]  #: Name of the plan.
    time: Annotated[str, Field(pattern="^(2[0-9]{3}-.+Z)?$")]  #: Time in UTC, or "" if unknown.
    metric: str  #: The metric that is compared, or "" if unknown.
    secondary_metrics: list[str] = []  #: Metrics that are tested where the difference in the first is resolved.
    margin: Margin | None  #: Largest difference that counts as equivalent, or a share of the baseline's error.
    baseline: str  #: The arm that the others are compared with.
    grows: bool = False  #: Whether the study declares that seeds may be added after a table.
    race: bool = False  #: Whether arms stop taking seeds once they can hardly become better.
    paired: Paired = None  #: As in the plan.
    seeds: list[Seed]  #: Seeds with which every arm is trained.
    family: Count  #: Number of contrasts that Holm's method corrects together.
    points_family: Count = 0  #: Number of contrasts between arms at equal values on the tuning grid.
    claims: list[str] = []  #: Claims that compare two arms.
    arms: dict[str, DeclaredArm]  #: Arm -> its baseline and trials.
    ended: list[TrialId]  #: Trials of the plan that had results when this was declared.

    @property
    def is_paired(self) -> bool:
        return self.paired != "no"

    @field_validator("time")
    @classmethod
    def check_time(cls, time: str) -> str:
        if time:
            datetime.fromisoformat(time)
        return time

    @cached_property
    def ids(self) -> frozenset[str]:
        return frozenset(trial for arm in self.arms.values() for trial in arm.trials)

    @cached_property
    def seed_set(self) -> frozenset[int]:
        return frozenset(self.seeds)

    @cached_property
    def arm_of(self) -> dict[str, str]:
        return {trial: name for name, arm in self.arms.items() for trial in arm.trials}

    @cached_property
    def ended_ids(self) -> frozenset[str]:
        return frozenset(self.ended)
