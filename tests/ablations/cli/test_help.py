"""The help of every command: a short summary, plain words, valid examples."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from in_process import Ablate

from ablations.cli import app
from ablations.cli.help import PANELS


def commands(group: typer.Typer, prefix: str = "") -> Iterator[str]:
    for info in group.registered_commands:
        yield prefix + (info.name or info.callback.__name__)
    for one in group.registered_groups:
        assert one.typer_instance is not None
        yield from commands(one.typer_instance, f"{one.name} ")


COMMANDS = list(commands(app))
EXPORT = Path(__file__).parents[3] / "docs" / "how-to" / "export.md"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERMINAL_WIDTH", "120")


def test_every_command_stands_in_a_panel_with_a_summary(ablate: Ablate) -> None:
    _, output, _ = ablate("-h")
    for panel in PANELS:
        assert f"\n{panel}:\n" in output
    assert "\nCommands:\n" not in output
    listed = re.findall(r"^  ([a-z]+) +(\S.*)$", output, re.MULTILINE)
    assert {name for name, _ in listed} == {name.split()[0] for name in COMMANDS}
    for name, summary in listed:
        assert len(summary) <= 50, name
        assert summary.endswith("."), name


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_in_plain_words(ablate: Ablate, command: str) -> None:
    status, output, _ = ablate(*command.split(), "-h")
    assert status == 0
    assert not re.search(r"<|>|list\[|\[\[|]]|INTEGER|TEXT", output.replace("->", ""))
    described, _, examples = output.partition("Examples:\n")
    summary, examples = described.splitlines()[2].strip(), examples.strip().splitlines()
    assert len(summary) <= 50
    assert len(examples) >= 2
    for line in examples:
        words = shlex.split(line)
        assert words[: 1 + len(command.split())] == ["ablate", *command.split()]
        for option in (word for word in words if word.startswith("-")):
            assert re.search(rf"(?<![\w-]){option}\b", described)


def test_commands_that_the_documentation_says_print_json_have_the_option(ablate: Ablate) -> None:
    (names,) = re.findall(r"^`([a-z ]+)` and `data verify` take `--json`", EXPORT.read_text(), re.MULTILINE)
    having = [one for one in COMMANDS if "--json" in ablate(*one.split(), "-h")[1]]
    assert {*names.split(), "data verify"} == {one for one in having if one != "train" and not one.startswith("bench")}


def test_version_is_that_of_the_package(ablate: Ablate) -> None:
    assert re.fullmatch(r"ablate \d+\.\d+\.\d+\n", ablate("--version")[1])


def test_the_shell_completes_commands_and_studies(monkeypatch: pytest.MonkeyPatch, ablate: Ablate) -> None:
    for words, offered in (("ablate pl", {"plan", "plot"}), ("ablate run pooling", {"pooling", "pooling-zoo"})):
        monkeypatch.setenv("_ABLATE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        assert {*ablate()[1].split()} == offered


@pytest.mark.parametrize("words", ["", "data", "profile"])
def test_without_a_command_there_is_the_help(ablate: Ablate, words: str) -> None:
    status, output, errors = ablate(*words.split())
    assert (status, output) == (2, "")
    assert errors == ablate(*words.split(), "-h")[1]
