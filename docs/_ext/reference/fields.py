"""The keys of a record, a pydantic model: what each may be, its default and its meaning."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from sphinx.pycode import ModuleAnalyzer

from reference.markup import choices, fence, prose
from vitcore.variants import VARIANTS

BOUNDS = {"Ge": "at least", "Gt": "more than", "Le": "at most", "Lt": "less than"}  # classes of annotated_types


@dataclass(frozen=True)
class Key:
    name: str
    allowed: str
    required: bool
    default: str  # "" without one
    meaning: str


def keys(record: type[BaseModel]) -> Iterator[Key]:
    """Those of a record in the order of its class. Raises ValueError for one that nothing explains."""
    meanings = documented(record)
    for name, field in record.model_fields.items():
        if field.exclude:  # not in the file
            continue
        if name not in meanings:
            raise ValueError(f"{record.__module__}.{record.__qualname__}.{name}: no `#:` comment says what it means")
        required = field.is_required()
        yield Key(
            name=field.alias or name,
            allowed=allowed(field.annotation, field.metadata),
            required=required,
            default="" if required else written(field.get_default(call_default_factory=True)),
            meaning=meanings[name],
        )


def documented(record: type[BaseModel]) -> dict[str, str]:
    """The `#:` comments and attribute docstrings of a class and its base classes."""
    found: dict[str, str] = {}
    for one in reversed(record.__mro__):
        if issubclass(one, BaseModel) and one is not BaseModel:
            texts = ModuleAnalyzer.for_module(one.__module__).find_attr_docs()
            own = {name: lines for (owner, name), lines in texts.items() if owner == one.__qualname__}
            found |= {name: " ".join(lines).strip() for name, lines in own.items()}
    return found


def allowed(kind: Any, limits: Any = ()) -> str:
    """A type in plain words, as in "whole number, at least 1"."""
    if get_origin(kind) is Annotated:
        kind, *more = get_args(kind)
        return allowed(kind, [*limits, *unfolded(more)])
    arguments = get_args(kind)
    match get_origin(kind):
        case origin if origin in (Union, UnionType):
            return " or ".join(dict.fromkeys(allowed(one, limits) for one in arguments if one is not NoneType))
        case origin if origin is Literal:
            return choices(arguments)
        case origin if origin in (list, tuple):
            return f"list of {plural(allowed(arguments[0]))}"
        case origin if origin is not None and issubclass(origin, dict):
            inside = allowed(arguments[1])
            return "mapping" if arguments[1] is Any else f"mapping from names to {plural(inside)}"
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        return "mapping"
    words = {bool: "true or false", int: "whole number", float: "number", str: "text", Any: "any value"}
    return ", ".join(filter(None, [words.get(kind, str(kind)), bounds(limits)]))


def plural(words: str) -> str:
    first, comma, rest = words.partition(",")
    ends = "s" if first.split()[-1] in ("text", "number", "value", "mapping") else ""
    return f"{first.removeprefix('any ')}{ends}{comma}{rest}"


def unfolded(metadata: Any) -> Iterator[Any]:
    """The limits inside `Field(ge=..., le=...)` too."""
    for one in metadata:
        yield from one.metadata if isinstance(one, FieldInfo) else [one]


def bounds(limits: Any) -> str:
    """From the limits that pydantic checks; a pattern has no short words."""
    named = {type(limit).__name__: limit for limit in limits}
    found = {name: getattr(limit, name.lower()) for name, limit in named.items() if name in BOUNDS}
    if found.keys() == {"Ge", "Le"}:
        return f"from {found['Ge']:,} to {found['Le']:,}"
    return ", ".join(f"{BOUNDS[name]} {value:,}" for name, value in found.items())


def written(value: Any) -> str:
    """A default as YAML would have it."""
    match value:
        case None | "" | () | {} | []:
            return ""
        case bool():
            return str(value).lower()
        case list() | tuple():
            return f"[{', '.join(map(written, value))}]"
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def entry(key: Key, file: str = "", slot: str = "", index: bool = True) -> str:
    """The description of a key of a file, of the option of a slot's variant, or of a setting."""
    name = ".".join(filter(None, [file or slot, key.name]))
    needed = " Required." if key.required and file else ""
    chosen = f"One of these {{doc}}`variants </reference/variants/{name}>`." if name in VARIANTS else ""
    about = f"{chosen or key.allowed[:1].upper() + key.allowed[1:] + '.'}{needed} {prose(key.meaning)}"
    shown = {"shown": key.name if file else name, "default": key.default} | ({} if index else {"no-index": " "})
    return fence("key" if file else "setting", name, about, **shown)
