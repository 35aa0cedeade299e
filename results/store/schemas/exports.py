"""Schemas of an exported Parquet file: its metadata and its rows."""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, TypeAdapter, model_validator

from results.store.schemas.base import Schema, Settings, Sha256, TrialId
from results.store.schemas.plans import Plan
from results.store.schemas.trials import EvalSummary, check_accuracies


class ExportHeader(Schema):
    """The metadata of an exported Parquet file. trials: SHA-256 of all rows. checksum: SHA-256 of the other fields."""

    plans: list[Plan]
    trials: Sha256
    checksum: Sha256


def json_text(schema: Any) -> AfterValidator:
    """Return a validator for text that is empty or JSON of the type `schema`."""
    content = TypeAdapter(schema, config=ConfigDict(strict=True, defer_build=True))

    def check(text: str) -> str:
        if text:
            try:
                content.validate_python(json.loads(text))
            except RecursionError:
                raise ValueError("nested without end") from None
        return text

    return AfterValidator(check)


class TrialRow(Schema):
    """A row of an exported Parquet file. Arrow has checked the types of its columns. Missing numbers are NaN."""

    id: TrialId
    status: Literal["finished", "diverged", "failed", "running", "interrupted", "missing", "broken"]
    config: Annotated[str, json_text(Settings)]
    evals: Annotated[str, json_text(dict[str, EvalSummary])] = ""
    plugins: Annotated[str, json_text(dict[str, str])]
    history: list[dict[str, float | None]]
    __pydantic_extra__: dict[str, str | float]

    @model_validator(mode="after")
    def check_metrics(self) -> "TrialRow":
        check_accuracies({name: value for name, value in (self.model_extra or {}).items() if isinstance(value, float)})
        return self
