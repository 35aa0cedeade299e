"""The layout of help texts: options without Python types, examples, and commands in titled panels."""

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

PANELS = ("Run", "Cluster", "Results", "Data", "Develop")
EXAMPLES = re.compile(r"Examples:\n")
LIMITS = r"(?:[\d.]+<=?)?x[<>]?=?[\d.]*"
RANGE = re.compile(rf" *\[{LIMITS}\]|; {LIMITS}(?=\])")  # Typer's "[default: 2; x>=1]"


class Command(TyperCommand):
    """A command whose docstring may end with a paragraph of examples, one per line."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return usage(self.get_params(ctx))

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        with formatter.indentation():
            for text in paragraphs(self.help):
                if not EXAMPLES.match(text):
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
    """A group of commands whose help lists the commands under the titles of their panels."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_parameters(self.get_params(ctx), ctx, formatter)
        commands = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        there = [one for one in commands if one is not None and not one.hidden]
        width = max(len(one.name or "") for one in there)
        rows: dict[str, list[tuple[str, str]]] = {panel: [] for panel in PANELS}
        for one in there:
            panel = getattr(one, "rich_help_panel", None)
            title = panel if panel in PANELS else "Commands"
            rows.setdefault(title, []).append((f"{one.name:{width}}", one.get_short_help_str(limit=80)))
        for title, lines in rows.items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)


class App(typer.Typer):
    """A Typer app whose help texts have the layout defined here."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=Group, rich_markup_mode=None, no_args_is_help=True, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        return super().command(name, cls=Command, **settings)


def write_parameters(parameters: Iterable[Any], ctx: Any, formatter: Any) -> None:
    """Write the sections of arguments and options into the help text. Hidden parameters are left out."""
    shown = [one for one in parameters if not one.hidden]
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        if rows := [row(one, ctx) for one in shown if one.param_type_name == kind]:
            with formatter.section(title):
                formatter.write_dl(rows)


def usage(parameters: Iterable[Any]) -> list[str]:
    """Return what follows a command's name in its usage line: the arguments, then [OPTIONS]."""
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    names = {metavar(one): one.required for one in arguments}
    shown = [name if required or name.startswith("[") else f"[{name}]" for name, required in names.items()]
    return [*shown, "[OPTIONS]"]


def paragraphs(text: str | None) -> list[str]:
    return inspect.cleandoc(text or "").split("\n\n")


def metavar(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def row(parameter: Any, ctx: Any) -> tuple[str, str]:
    """Return (the parameter as written on the command line, its meaning with the default)."""
    written, meaning = parameter.get_help_record(ctx)
    if parameter.param_type_name == "argument":
        written = metavar(parameter)
    return written.translate({ord("<"): None, ord(">"): None}), RANGE.sub("", meaning).replace("  [required]", "")
