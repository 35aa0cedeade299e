"""A page for each package: the public names that its `dir()` lists, from their docstrings."""

import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from pydantic import BaseModel
from sphinx.application import Sphinx

from reference.markup import CODE, prose, table, toctree
from vitcore.variants import VARIANTS

PACKAGES = ("vitcore", "results", "slurm", "ablations")
SPECIAL = re.compile(r"([*|\\]|(?<=\w)_(?=\W|$))")


def pages() -> dict[str, str]:
    packages = [importlib.import_module(name) for name in PACKAGES]
    return {"index.md": overview(packages), **{f"{package.__name__}.md": page(package) for package in packages}}


def overview(packages: list[ModuleType]) -> str:
    rows = [[f"[`{package.__name__}`]({package.__name__}.md)", summary(package)] for package in packages]
    text = "The public names of each package. Names that are not here may change with any version.\n"
    return "\n".join(["# Python API\n", text, table(["package", "what it is"], rows), toctree(PACKAGES)])


def page(package: ModuleType) -> str:
    name = package.__name__
    listed = [[f"[`{public_name}`](#{name}.{public_name})", summary(what)] for public_name, what in public(package)]
    described = [described_as(package, public_name, what) for public_name, what in public(package)]
    lines = [f"# {name}\n", prose(inspect.getdoc(package) or "") + "\n"]
    return "\n".join([*lines, table(["name", "what it is"], listed) if listed else "", *described])


def public(package: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield our classes, functions and dictionaries that `dir()` names."""
    for name in dir(package):
        what = getattr(package, name)
        ours = getattr(what, "__module__", "").partition(".")[0] in PACKAGES
        if not name.startswith("_") and (ours or slot_of(what)):
            yield name, what


def slot_of(what: Any) -> str:
    """Return the setting whose variants a dictionary holds, or ""."""
    return next((slot for slot, entries in VARIANTS.items() if entries is what), "")


def summary(what: Any) -> str:
    if slot := slot_of(what):
        return f"The variants of {{setting}}`{slot}` by name."
    return prose(" ".join((inspect.getdoc(what) or "").partition("\n\n")[0].split()))


def described_as(package: ModuleType, name: str, what: Any) -> str:
    full = f"{package.__name__}.{name}"
    if slot := slot_of(what):
        text = f"The [variants of `{slot}`](../variants/{slot}.md) by name. A plugin adds an entry."
        return f"```{{py:data}} {full}\n\n{text}\n```\n"
    if not inspect.isclass(what):
        return f"```{{eval-rst}}\n.. autofunction:: {full}\n```\n"
    record = issubclass(what, BaseModel)
    lines = [
        f".. autoclass:: {full}{'(**settings)' if record else ''}",
        "   :members:",
        f"   :exclude-members: {', '.join(machinery(what)) if record else ''}",
        "   :member-order: bysource",
        *(["   :show-inheritance:"] if what.__base__ is not object else []),
    ]
    return "\n".join(["```{eval-rst}", *lines, "```\n"])


def machinery(record: type[BaseModel]) -> list[str]:
    """Return the fields, which other pages explain, and the methods that only pydantic calls."""
    decorated = record.__pydantic_decorators__
    called = (decorated.field_validators, decorated.model_validators, decorated.model_serializers)
    return ["model_config", *record.model_fields, *(name for group in called for name in group)]


def as_rst(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape a docstring, in which only backticks are markup, for reStructuredText."""
    parts = CODE.split("\n".join(lines))
    text = "".join(f"``{part.strip('`')}``" if k % 2 else SPECIAL.sub(r"\\\1", part) for k, part in enumerate(parts))
    lines[:] = text.split("\n")
