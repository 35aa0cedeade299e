"""Print `-h`: usage in plain words, options without Python types, examples, commands in panels."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

PANELS = ("Run", "Cluster", "Results", "Data", "Develop")
EXAMPLES = re.compile(r"Examples:\n")
LIMITS = r"(?:[\d.]+<=?)?x[<>]?=?[\d.]*"
RANGE = re.compile(rf" *\[{LIMITS}\]|; {LIMITS}(?=\])")  # Typer's "[default: 2; x>=1]"


class Command(TyperCommand):
    """A command whose docstring may end in a paragraph of examples, a line each."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [one for one in self.get_params(ctx) if one.param_type_name == "argument"]
        return [*map(in_usage, arguments), "[OPTIONS]"]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        told = [text for text in paragraphs(self.help) if not EXAMPLES.match(text)]
        with formatter.indentation():
            for text in told:
                formatter.write_paragraph()
                formatter.write_text(" ".join(text.split()))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_parameters(self.get_params(ctx), ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        for text in paragraphs(self.help):
            if EXAMPLES.match(text):
                with formatter.section("Examples"):
                    for line in text.splitlines()[1:]:
                        formatter.write(f"{'':{formatter.current_indent}}{line.strip()}\n")


class Group(TyperGroup):
    """Commands under the titles of their panels."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_parameters(self.get_params(ctx), ctx, formatter)
        commands = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        there = [one for one in commands if one is not None and not one.hidden]
        width = max(len(one.name or "") for one in there)
        for panel in (*PANELS, None):
            rows = [
                (f"{one.name:{width}}", one.get_short_help_str(limit=80)) for one in there if panel_of(one) == panel
            ]
            if rows:
                with formatter.section(panel or "Commands"):
                    formatter.write_dl(rows)


class App(typer.Typer):
    """A group of commands shown in the layout of this file."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=Group, rich_markup_mode=None, no_args_is_help=True, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        return super().command(name, cls=Command, **settings)


def write_parameters(parameters: Iterable[Any], ctx: Any, formatter: Any) -> None:
    shown = [one for one in parameters if not one.hidden]
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        if rows := [row(one, ctx) for one in shown if one.param_type_name == kind]:
            with formatter.section(title):
                formatter.write_dl(rows)


def paragraphs(text: str | None) -> Iterator[str]:
    return iter(inspect.cleandoc(text or "").split("\n\n"))


def panel_of(command: Any) -> str | None:
    panel = getattr(command, "rich_help_panel", None)
    return panel if panel in PANELS else None


def called(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def in_usage(argument: Any) -> str:
    name = called(argument)
    return name if argument.required or name.startswith("[") else f"[{name}]"


def row(parameter: Any, ctx: Any) -> tuple[str, str]:
    """Return how a parameter is written, and its meaning with its default."""
    written, meaning = parameter.get_help_record(ctx)
    if parameter.param_type_name == "argument":
        written = called(parameter)
    return written.translate({ord("<"): None, ord(">"): None}), RANGE.sub("", meaning).replace("  [required]", "")
