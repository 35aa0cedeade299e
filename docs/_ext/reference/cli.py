"""A page for each command of `ablate`, from the help that the command prints."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from typer.main import get_command

from ablations.cli.app import app
from ablations.cli.help import EXAMPLES, paragraphs, row, usage
from reference.markup import fence, prose, shell, table, toctree

DEFAULT = re.compile(r"\s*\[default: (.*?)\]")


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
    found = [*command_pages(get_command(app))]
    return {"index.md": overview(found), **{f"{one.file}.md": render(one) for one in found}}


def command_pages(group: Any, prefix: str = "", panel: str = "") -> Iterator[Page]:
    """Yield each command, and then each command of each group. panel: that of the whole group."""
    groups = {name: one for name, one in group.commands.items() if hasattr(one, "commands")}
    for name, command in group.commands.items():
        if name not in groups and not command.hidden:
            yield Page(prefix + name, panel or command.rich_help_panel, command)
    for name, one in groups.items():
        yield from command_pages(one, f"{name} ", one.rich_help_panel)


def render(page: Page) -> str:
    command = page.command
    _, *texts = paragraphs(command.help)
    lines = [
        f"# ablate {page.name}\n",
        page.summary + "\n",
        f"```text\n{' '.join(['ablate', page.name, *usage(command.params)])}\n```\n",
        *(f"{prose(text)}\n" for text in texts if not EXAMPLES.match(text)),
        "## Examples\n",
        *(shell(map(str.strip, text.splitlines()[1:])) for text in texts if EXAMPLES.match(text)),
        f"```{{program}} ablate {page.name}\n```\n",
    ]
    context = command.make_context(page.name, [], resilient_parsing=True)
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        entries = [entry(one, context) for one in command.params if one.param_type_name == kind and not one.hidden]
        lines += [f"## {title}\n", *entries] if entries else []
    return "\n".join(lines)


def entry(parameter: Any, context: Any) -> str:
    written, meaning = row(parameter, context)
    default = DEFAULT.search(meaning)
    parts = [prose(DEFAULT.sub("", meaning)), limits(parameter), f"Default: {prose(default[1])}." if default else ""]
    return fence("option", written, " ".join(filter(None, parts)))


def limits(parameter: Any) -> str:
    match parameter.min, parameter.max:
        case None, None:
            return ""
        case low, None:
            return f"At least {low}."
        case low, high:
            return f"From {low} to {high:,}."


def overview(found: list[Page]) -> str:
    lines = ["# The command `ablate`\n", "`ablate COMMAND -h` prints what these pages say.\n"]
    ordered = []
    for panel in dict.fromkeys(one.panel for one in found):
        inside = [one for one in found if one.panel == panel]
        rows = [[f"[`ablate {one.name}`]({one.file}.md)", one.summary] for one in inside]
        lines += [f"## {panel}\n", table(["command", "what it does"], rows)]
        ordered += inside
    return "\n".join([*lines, toctree(one.file for one in ordered)])
