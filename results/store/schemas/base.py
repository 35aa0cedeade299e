"""Types of fields, and the check of a file's content against its schema."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, GetPydanticSchema, ValidationError

from commonfloor.files import Broken

DEEPEST = 50  # maximum levels of nesting
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
TrialId = Annotated[str, Field(pattern="^[0-9a-f]{12}$")]
Number = Annotated[str, Field(pattern="^[0-9]{4,9}$")]  # name of an attempt's folder
Count = Annotated[int, Field(ge=0, lt=2**63)]
Flops = Annotated[int, Field(ge=0, lt=2**100)]  # of one training run, which on ImageNet can exceed a Count
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Seconds = Annotated[FiniteFloat, Field(ge=0)]
Plain = str | bool | int | FiniteFloat | None  # the value of a setting, or an item of a list
Value = Plain | list[Plain | list[Plain]]
# vitcore.config gives each setting its own type. Reading a file only checks that values are plain.
Settings = Annotated[dict[str, Any], GetPydanticSchema(lambda _, of: of(dict[str, Value | dict[str, Value]]))]
Axes = Annotated[dict[str, list[Any]], GetPydanticSchema(lambda _, of: of(dict[str, list[Value]]))]
Fact = str | float | Mapping[str, str | int] | None  # a value in env.json
Facts = Mapping[str, Fact]
AnySchema = TypeVar("AnySchema", bound="Schema")


class Schema(BaseModel):
    """The content of a file, or a part of it. Types are exact: neither "1" nor true is the number 1."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow", defer_build=True)

    def content(self, *without: str) -> dict[str, Any]:
        """Return field -> JSON value for the fields that were given, except `without`."""
        return self.model_dump(exclude_unset=True, exclude={*without})


def validated(schema: type[AnySchema], content: object, path: Path | None = None) -> AnySchema:
    """Return a file's content as an instance of its schema. Raises Broken, which names the file and the field."""
    name = f"{path.name}: " if path else ""
    if depth_exceeds(content, DEEPEST):
        raise Broken(f"{name}nested more than {DEEPEST} levels deep")
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(map(str, first["loc"]))
    message = first["msg"].removeprefix("Value error, ")
    if field:
        message = f"{field}: {message[:1].lower()}{message[1:]}"
    raise Broken(f"{name}{message}")


def depth_exceeds(content: object, levels: int) -> bool:
    if isinstance(content, dict):
        content = list(content.values())
    if not isinstance(content, list):
        return False
    return levels < 0 or any(depth_exceeds(child, levels - 1) for child in content)


def unknown_field(content: object, at: str = "") -> str:
    """Return the path of the first field that is not in its schema, or "". at: path of `content` in the file."""
    children: list[tuple[object, object]] = []
    if isinstance(content, list):
        children = list(enumerate(content))
    elif isinstance(content, Schema):
        for name in content.model_extra or ():
            if name != "schema":
                return f"{at}{name}"
        children = [(name, getattr(content, name)) for name in type(content).model_fields]
    paths = (unknown_field(child, f"{at}{name}.") for name, child in children)
    return next(filter(None, paths), "")
