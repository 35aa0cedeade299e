"""A page for each command of `ablate`, from its function's signature and docstring."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, CommandInfo, OptionInfo

from ablations.cli import app
from reference.markup import choices, code, fence, prose, shell, table, toctree

DEFAULT = re.compile(r"\s*\[default: (.*?)\]")
EXAMPLE = re.compile(r"^Examples?:\s*(.*)", re.DOTALL)
PLACEHOLDER = {int: "N", float: "X", Path: "PATH", str: "TEXT"}


@dataclass(frozen=True)
class Word:
    spelt: str  # "--jobs N, --workers N"
    meaning: str
    default: str
    is_option: bool


@dataclass(frozen=True)
class Command:
    """A command as its page shows it."""

    name: str  # "bench step"
    panel: str  # of the help
    about: str  # the first sentence
    details: str
    examples: list[str]
    words: list[Word]

    @property
    def page(self) -> str:
        return self.name.replace(" ", "-")


def pages() -> dict[str, str]:
    found = list(commands(app))
    return {"index.md": overview(found), **{f"{command.page}.md": page(command) for command in found}}


def commands(group: typer.Typer, prefix: str = "", panel: str = "") -> Iterator[Command]:
    """Every command, those of groups behind the others. panel: of the whole group."""
    for info in group.registered_commands:
        if not info.hidden:
            yield described(info, prefix, panel or str(info.rich_help_panel))
    for one in group.registered_groups:
        if one.typer_instance is not None:
            yield from commands(one.typer_instance, f"{one.name} ", str(one.rich_help_panel))


def described(info: CommandInfo, prefix: str, panel: str) -> Command:
    assert info.callback is not None
    text = inspect.cleandoc(f"{info.help or info.callback.__doc__ or ''}\n\n{info.epilog or ''}")
    about, *paragraphs = re.split(r"\n\s*\n", text.replace("\b\n", ""))
    about, _, rest = about.partition("\n") if about.partition("\n")[0].endswith(".") else (about, "", "")
    examples = [match[1] for paragraph in paragraphs if (match := EXAMPLE.match(paragraph))]
    details = [rest, *(paragraph for paragraph in paragraphs if not EXAMPLE.match(paragraph))]
    return Command(
        name=prefix + (info.name or info.callback.__name__),
        panel=panel,
        about=" ".join(about.split()),
        details="\n\n".join(filter(None, details)),
        examples=[line.strip() for text in examples for line in text.splitlines() if line.strip()],
        words=list(words(info.callback)),
    )


def words(function: Any) -> Iterator[Word]:
    """What a command takes, from the annotations of its function."""
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        kind, info = get_args(hints[name])[:2]
        assert isinstance(info, OptionInfo | ArgumentInfo)
        if info.hidden:
            continue
        kind, help_text = plain(kind), info.help or ""
        stated, value = DEFAULT.search(help_text), written(parameter.default)
        default = prose(stated[1]) if stated else value and code(value)
        meaning = [DEFAULT.sub("", help_text).strip(), limits(info)]
        if get_origin(kind) is Literal:
            meaning.append(f"One of {choices(get_args(kind))}.")
        is_option = isinstance(info, OptionInfo)
        yield Word(
            spelt=spelling(name, kind, info) if is_option else info.metavar or name.upper(),
            meaning=" ".join(filter(None, [prose(meaning[0]), *meaning[1:]])),
            default=default,
            is_option=is_option,
        )


def plain(kind: Any) -> Any:
    """int of `int | None`, Path of `list[Path]`."""
    if get_origin(kind) in (Union, UnionType):
        return plain(next(one for one in get_args(kind) if one is not NoneType))
    return plain(get_args(kind)[0]) if get_origin(kind) is list else kind


def spelling(name: str, kind: Any, info: OptionInfo) -> str:
    """ "--jobs N, --workers N"."""
    declared = (info.default, *(info.param_decls or ()))  # in Annotated[...] typer keeps the first name as the default
    names = [one for one in declared if str(one).startswith("-")] or [f"--{name.replace('_', '-')}"]
    if kind is bool:
        return ", ".join(names)
    value = info.metavar or "|".join(get_args(kind)) or PLACEHOLDER[kind]
    return ", ".join(f"{one} {value}" for one in names)


def limits(info: Any) -> str:
    match info.min, info.max:
        case None, None:
            return ""
        case low, None:
            return f"At least {low}."
        case None, high:
            return f"At most {high:,}."
        case low, high:
            return f"From {low} to {high:,}."


def written(default: Any) -> str:
    """A default as it would be typed; "" where there is none to speak of."""
    if isinstance(default, list | tuple):
        return " ".join(map(str, default))
    return "" if default is inspect.Parameter.empty or default in (None, False, True) else str(default)


def page(command: Command) -> str:
    arguments = [word for word in command.words if not word.is_option]
    options = [word for word in command.words if word.is_option]
    usage = " ".join(["ablate", command.name, *(word.spelt for word in arguments), "[OPTIONS]" if options else ""])
    lines = [
        f"# ablate {command.name}\n",
        prose(command.about) + "\n",
        f"```text\n{usage.strip()}\n```\n",
        prose(command.details) + "\n",
    ]
    if command.examples:
        lines += ["## Examples\n", shell(command.examples)]
    lines.append(f"```{{program}} ablate {command.name}\n```\n")
    for title, group in (("Arguments", arguments), ("Options", options)):
        if group:
            lines += [f"## {title}\n", *map(entry, group)]
    return "\n".join(lines)


def entry(word: Word) -> str:
    default = f" Default: {word.default}." if word.default else ""
    return fence("option", word.spelt, word.meaning + default)


def overview(found: list[Command]) -> str:
    lines = ["# The command `ablate`\n", "`ablate COMMAND -h` prints what these pages say.\n"]
    ordered = []
    for panel in dict.fromkeys(one.panel for one in found):
        inside = [one for one in found if one.panel == panel]
        rows = [[f"[`ablate {one.name}`]({one.page}.md)", prose(one.about)] for one in inside]
        lines += [f"## {panel}\n", table(["command", "what it does"], rows)]
        ordered += inside
    return "\n".join([*lines, toctree(one.page for one in ordered)])
