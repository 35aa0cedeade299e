"""A page for each command of `ablate`, from the help that the command prints."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ablations.cli.app import app
from reference.markup import fence, prose, shell, table, toctree


@dataclass(frozen=True)
class Page:
    """A command as its page shows it."""

    name: str  # "profile check"
    panel: str  # the title under which the help lists it
    command: Any

    @property
    def file(self) -> str:
        return self.name.replace(" ", "-")

    @property
    def summary(self) -> str:
        return prose(paragraphs(self.command.help)[0])


def pages() -> dict[str, str]:
    commands = [*command_pages(app)]
    return {"index.md": overview(commands), **{f"{command.file}.md": render(command) for command in commands}}


def command_pages(group: Any, prefix: str = "", panel: str = "") -> Iterator[Page]:
    """Yield each command, and then each command of each group. panel: that of the whole group."""
    groups = {name: inner for name, inner in group.commands.items() if hasattr(inner, "commands")}
    for name, command in group.commands.items():
        if name not in groups and not command.hidden:
            yield Page(prefix + name, panel or command.rich_help_panel, command.load())
    for name, inner in groups.items():
        yield from command_pages(inner, f"{name} ", inner.rich_help_panel)


def paragraphs(text: str) -> list[str]:
    return inspect.cleandoc(text).split("\n\n")


def render(page: Page) -> str:
    command = page.command
    described, _, examples = command.help.partition("Examples:\n")
    _, *texts = paragraphs(described)
    lines = [
        f"# ablate {page.name}\n",
        page.summary + "\n",
        f"```text\n{' '.join(['ablate', page.name, *usage(command.params)])}\n```\n",
        *(f"{prose(text)}\n" for text in texts if text),
        "## Examples\n",
        shell(map(str.strip, examples.strip().splitlines())),
        f"```{{program}} ablate {page.name}\n```\n",
    ]
    shown = [parameter for parameter in command.params if not parameter.hidden]
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        entries = [entry(parameter) for parameter in shown if parameter.param_type_name == kind]
        lines += [f"## {title}\n", *entries] if entries else []
    return "\n".join(lines)


def usage(parameters: list[Any]) -> list[str]:
    """Return what follows a command's name: the arguments, in brackets if they can be left out, and the options."""
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    words = [f"{written(parameter)}..." if parameter.nargs != 1 else written(parameter) for parameter in arguments]
    shown = [word if parameter.required else f"[{word}]" for word, parameter in zip(words, arguments, strict=True)]
    return [*shown, "[OPTIONS]"]


def written(parameter: Any) -> str:
    """Return a parameter as it is written on the command line, such as "--seeds, -s N"."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    names = ", ".join(parameter.opts)
    if parameter.is_bool_flag:
        return names
    return f"{names} {parameter.metavar or '|'.join(parameter.type_descriptor.choices or ()) or 'N'}"


def entry(parameter: Any) -> str:
    shown = parameter.show_default if isinstance(parameter.show_default, str) else parameter.default
    default = "" if shown in (None, False, "") else f"Default: {prose(str(shown))}."
    parts = [prose(parameter.help or ""), limits(parameter), default]
    return fence("option", written(parameter), " ".join(filter(None, parts)))


def limits(parameter: Any) -> str:
    match parameter.min, parameter.max:
        case None, None:
            return ""
        case low, None:
            return f"At least {low}."
        case low, high:
            return f"From {low} to {high:,}."


def overview(commands: list[Page]) -> str:
    lines = ["# The command `ablate`\n", "`ablate COMMAND -h` prints what these pages say.\n"]
    ordered = []
    for panel in dict.fromkeys(command.panel for command in commands):
        inside = [command for command in commands if command.panel == panel]
        rows = [[f"[`ablate {command.name}`]({command.file}.md)", command.summary] for command in inside]
        lines += [f"## {panel}\n", table(["command", "what it does"], rows)]
        ordered += inside
    return "\n".join([*lines, toctree(command.file for command in ordered)])
