"""The keys of a record, a pydantic model: what each may be, its default and its meaning."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from sphinx.pycode import ModuleAnalyzer

from reference.markup import choices, fence, prose
from vitcore.variants import VARIANTS

Schema = dict[str, Any]  # a part of a JSON schema
WORDS = {
    "boolean": "true or false",
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "any": "any value",
}
BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}


@dataclass(frozen=True)
class Key:
    name: str
    allowed: str
    required: bool
    default: str  # "" without one
    meaning: str


def keys(record: type[BaseModel]) -> Iterator[Key]:
    """Yield the keys of a record in the order of its class. Raises ValueError if no comment explains one."""
    meanings, schema = documented(record), record.model_json_schema()
    for name, field in record.model_fields.items():
        if field.exclude:  # not in the file
            continue
        if name not in meanings:
            raise ValueError(f"{record.__module__}.{record.__qualname__}.{name}: no `#:` comment says what it means")
        key = field.alias or name
        about = schema["properties"][key]
        required = key in schema.get("required", ())
        yield Key(key, allowed(about), required, written(about.get("default")), meanings[name])


def documented(record: type[BaseModel]) -> dict[str, str]:
    """Return the `#:` comments and attribute docstrings of a class and its base classes."""
    comments: dict[str, str] = {}
    for base in reversed(record.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            texts = ModuleAnalyzer.for_module(base.__module__).find_attr_docs()
            of_base = {name: lines for (owner, name), lines in texts.items() if owner == base.__qualname__}
            comments |= {name: " ".join(lines).strip() for name, lines in of_base.items()}
    return comments


def allowed(schema: Schema) -> str:
    """Return a JSON schema in plain words, such as "whole number, at least 1"."""
    if "anyOf" in schema:
        kinds = dict.fromkeys(allowed(option) for option in schema["anyOf"] if option.get("type") != "null")
        return WORDS["any"] if {"text", "true or false", "number"} <= kinds.keys() else " or ".join(kinds)
    if "const" in schema or "enum" in schema:
        return choices(schema.get("enum") or [schema["const"]])
    match schema.get("type", "object" if "$ref" in schema else "any"):
        case "array":
            return f"list of {plural(allowed(schema['items']))}"
        case "object":
            values = schema.get("additionalProperties")
            inside = allowed(values) if isinstance(values, dict) else WORDS["any"]
            return "mapping" if inside == WORDS["any"] else f"mapping from names to {plural(inside)}"
        case kind:
            return ", ".join(filter(None, [WORDS[kind], bounds(schema)]))


def plural(words: str) -> str:
    first, comma, rest = words.partition(",")
    ends = "s" if first.split()[-1] in ("text", "number", "value", "mapping") else ""
    return f"{first.removeprefix('any ')}{ends}{comma}{rest}"


def bounds(schema: Schema) -> str:
    given = {key: schema[key] for key in BOUNDS if key in schema}
    if given.keys() == {"minimum", "maximum"}:
        return f"from {given['minimum']:,} to {given['maximum']:,}"
    return ", ".join(f"{BOUNDS[key]} {value:,}" for key, value in given.items())


def written(value: Any) -> str:
    """Return a default as YAML writes it."""
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
    """Return the directive of a key of a file, of an option of a slot's variant, or of a setting."""
    name = ".".join(filter(None, [file or slot, key.name]))
    needed = " Required." if key.required and file else ""
    chosen = f"One of these {{doc}}`variants </reference/variants/{name}>`." if VARIANTS.get(name) else ""
    about = f"{chosen or key.allowed[:1].upper() + key.allowed[1:] + '.'}{needed} {prose(key.meaning)}"
    shown = {"shown": key.name if file else name, "default": key.default} | ({} if index else {"no-index": " "})
    return fence("key" if file else "setting", name, about, **shown)
