"""The files of `ablate gate`: what was proposed, and what was answered after each step."""

from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from results.store.schemas.base import Count, Schema, Sha256
from results.store.schemas.plans import Plan

Time = Annotated[str, Field(pattern="^2[0-9]{3}-.+Z$")]


class GateSide(Schema):
    """The baseline or the candidate of a proposal."""

    text: str  #: Settings, recipe or code, as given.
    plan: Plan  #: A plan of one arm, with all seeds of the proposal.

    @property
    def key(self) -> str:
        """What its trials share, whatever they are called."""
        return self.plan.arms[0].key


class Proposal(Schema):
    """The content of gates/<stream>/<number>.json: a change that was proposed, and how it is tested."""

    number: Annotated[int, Field(ge=1)]  #: Its number in the stream.
    time: Time  #: When it was proposed, in UTC.
    metric: str  #: The metric that is compared.
    margin: Annotated[FiniteFloat, Field(gt=0)]  #: The smallest gain that is worth a change.
    steps: Annotated[list[Annotated[int, Field(ge=2)]], Field(min_length=1)]  #: Seeds at the end of each step.
    level: Annotated[FiniteFloat, Field(ge=0, le=1)]  #: Level of its test. 0: identical trials, no test.
    baseline: GateSide  #: The stream's baseline at that time.
    candidate: GateSide  #: The change.
    checksum: Sha256 | None = None  #: SHA-256 of the rest of the file.

    @property
    def seeds(self) -> list[int]:
        """The seeds of the decision, and after them those of the estimate."""
        return self.baseline.plan.seeds

    def seeds_of_step(self, step: int) -> list[int]:
        return self.seeds[: self.steps[step - 1]]

    @property
    def fresh_seeds(self) -> list[int]:
        """The seeds that no decision uses, for an estimate after a keep."""
        return self.seeds[self.steps[-1] :]


class GateLook(Schema):
    """The content of gates/<stream>/<number>-<step>.json: the answer after a step of a proposal."""

    step: Count  #: The step, from 1; 0 if nothing was trained.
    time: Time  #: When it was answered, in UTC.
    answer: Literal["keep", "reject", "more"]  #: What was answered.
    reason: str  #: Why.
    opened: Count  #: Tested proposals of the stream at that time.
    n: Count = 0  #: Pairs of seeds.
    difference: FiniteFloat | None = None  #: Candidate - baseline.
    ci95: list[FiniteFloat] | None = None  #: Its interval, not adjusted.
    p: FiniteFloat | None = None  #: One-sided p value.
    level: FiniteFloat = 0.0  #: Level of the step.
    checksum: Sha256 | None = None  #: SHA-256 of the rest of the file.
