"""Frozen records that refuse unknown keys, and the errors for an invalid setting."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from commonfloor.messages import joined_names, unknown_key

Setting = str | bool | int | float | Sequence["Setting"] | Mapping[str, "Setting"] | None  # plain JSON
JsonSettings = dict[str, Setting]  # field or dotted option -> value
ALLOWED = {  # Pydantic's type of an error -> what is allowed, in the words of YAML
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a finite number",
    "finite_number": "a finite number",
    "string_type": "a string",
    "list_type": "a list",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "greater_than": "above {gt:.9g}",
    "greater_than_equal": "at least {ge:.9g}",
    "less_than": "below {lt:.9g}",
    "less_than_equal": "at most {le:.9g}",
}


class ConfigError(ValueError):
    """The error for an invalid setting. Its one-line message names the key, the value and what is allowed."""


class Options(BaseModel):
    """Base class of frozen records that refuse unknown keys, such as Config and the options of a variant.

    A variant declares its options in a subclass. Values are plain JSON, so a sequence is a list and not a tuple. Equal
    records have equal JSON, because an int in a float field becomes a float and -0.0 becomes 0.0. Raises ConfigError if
    a key is unknown, a required value is missing, or a value is invalid.
    """

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, validate_default=True, defer_build=True
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(explain(error, type(self))) from None

    @field_validator("*")
    @classmethod
    def one_zero(cls, value: Any) -> Any:
        return unsigned_zeros(value)


AnyOptions = TypeVar("AnyOptions", bound=Options)


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """Return a one-line message about the first problem in `error`: the key, the value and what `model` allows."""
    problems = error.errors(include_url=False)
    problem = problems[0]
    if problem["loc"] == ("data_seed",):  # unless set, it equals `seed`, whose error is then reported
        problem = next((other for other in problems if other["loc"] == ("seed",)), problem)
    key = key_of(problem)
    keys = [field.alias or name for name, field in model.model_fields.items()]
    keys += getattr(model, "shorthands", ())
    match problem["type"]:
        case "extra_forbidden":
            listed = f": known are {joined_names(keys)}" if keys else ": this variant has no options"
            return unknown_key(key, keys, listed)
        case "value_error":  # a ConfigError, raised inside a validator
            return str(problem["ctx"]["error"])
        case "missing":
            return f"'{key}' is missing"
        case _:
            value = problem["input"]
            field = model.model_fields.get(key)
            if field is not None and field.annotation in (int, float) and problem["type"] in ALLOWED:
                return f"{key}={value}: {allowed_numbers(field)}"
            same = [other for other in problems if key_of(other) == key and other["input"] is value]  # one per type
            return f"{key}={value}: {' or '.join(map(allowed, same))}"


def allowed_numbers(field: FieldInfo) -> str:
    """Return the numbers that a field allows, such as "a whole number from 1 to 1,024" or "a finite number above 0"."""
    words = {"gt": "above", "ge": "of at least", "lt": "below", "le": "at most"}
    limits: dict[str, str] = {}
    for bound in field.metadata:
        for name in words:
            if hasattr(bound, name):
                limits[name] = f"{getattr(bound, name):,.12g}"
    kind = "a whole number"
    if field.annotation is not int:
        kind = "a number" if len(limits) > 1 else ALLOWED["float_type"]
    if limits.keys() == {"ge", "le"}:
        return f"{kind} from {limits['ge']} to {limits['le']}"
    return f"{kind} {' and '.join(f'{words[name]} {limit}' for name, limit in limits.items())}".strip()


def allowed(problem: ErrorDetails) -> str:
    """Return what is allowed instead of a value, such as "a whole number" or "at least 1"."""
    if problem["type"] in ALLOWED:
        return ALLOWED[problem["type"]].format(**problem.get("ctx", {}))
    words = problem["msg"].removeprefix("Input should be ")
    return words.replace("True or False", ALLOWED["bool_type"])


def key_of(problem: ErrorDetails) -> str:
    """Return the key of a problem, such as factors.heads, without the types that Pydantic tried, such as list[any]."""
    return ".".join(str(part) for part in problem["loc"] if "[" not in str(part))


def unsigned_zeros(value: Any) -> Any:
    """Return `value` with -0.0 replaced by 0.0, also inside lists: the two are equal but differ in JSON."""
    if isinstance(value, list):
        return [unsigned_zeros(item) for item in value]
    return 0.0 if isinstance(value, float) and value == 0.0 else value
