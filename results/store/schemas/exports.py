"""Schemas of an exported Parquet file: its metadata and its rows."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Json, model_validator

from results.store.schemas.base import Schema, Settings, Sha256, TrialId
from results.store.schemas.ledger import Declaration
from results.store.schemas.plans import Plan
from results.store.schemas.trials import EvalSummary, check_accuracies

OR_EMPTY = BeforeValidator(lambda text: "{}" if text == "" else text)  # "": the trial has no such part


class ExportHeader(Schema):
    """The metadata of an exported Parquet file.

    declarations: those of the ledger that concern the trials; None in exports of 0.23. trials: SHA-256 of all rows.
    checksum: SHA-256 of the other fields.
    """

    plans: list[Plan]
    declarations: list[Declaration] | None = None
    trials: Sha256
    checksum: Sha256


class TrialRow(Schema):
    """A row of an exported Parquet file. Arrow has checked the types of its columns. Missing numbers are NaN."""

    id: TrialId
    status: Literal["finished", "diverged", "failed", "running", "interrupted", "missing", "broken"]
    config: Annotated[Json[Settings], OR_EMPTY]
    evals: Annotated[Json[dict[str, EvalSummary]], OR_EMPTY] = {}
    plugins: Annotated[Json[dict[str, str]], OR_EMPTY]
    history: list[dict[str, float | None]]
    __pydantic_extra__: dict[str, str | float]

    @model_validator(mode="after")
    def check_metrics(self) -> "TrialRow":
        check_accuracies({name: value for name, value in (self.model_extra or {}).items() if isinstance(value, float)})
        return self
