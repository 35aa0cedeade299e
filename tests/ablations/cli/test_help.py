"""The help of every command, and `list` and `check all`, which know every study, recipe, part, option and setting."""

import re
import shlex
from pathlib import Path

import pytest
from in_process import Ablate, json_output, refusal

from ablations.cli import check
from ablations.cli.commands import COMMANDS as PANELS
from ablations.trainables.vit.commands import part_checks
from vitcore.config import Config
from vitcore.variants import VARIANTS

COMMANDS = {name: summary for commands in PANELS.values() for name, (_, summary) in commands.items()}
EXPORT = Path(__file__).parents[3] / "docs" / "how-to" / "export.md"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERMINAL_WIDTH", "120")


def test_every_command_stands_in_a_panel_with_a_summary(ablate: Ablate) -> None:
    _, output, _ = ablate("-h")
    assert re.findall(r"─ (\w+) ─", output) == ["Options", *PANELS]
    listed = re.findall(r"│ ([a-z]+) +(\S.*?) *│", output)
    assert {name for name, _ in listed} == {name.split()[0] for name in COMMANDS}
    for name, summary in listed:
        assert summary == COMMANDS.get(name, summary)
        assert summary.endswith("."), name


@pytest.mark.parametrize("command", COMMANDS)
def test_help_begins_with_the_summary_and_ends_with_examples_that_use_its_options(ablate: Ablate, command: str) -> None:
    status, output, _ = ablate(*command.split(), "-h")
    assert status == 0
    described, _, rest = output.partition("Examples:")
    options = rest.partition("╭")[2]
    assert described.splitlines()[3].strip() == COMMANDS[command]
    assert len(COMMANDS[command]) <= 50
    examples = re.findall(r"^  (ablate .*?) *$", rest, re.MULTILINE)
    assert len(examples) >= 2
    for line in examples:
        words = shlex.split(line)
        assert words[: 1 + len(command.split())] == ["ablate", *command.split()]
        for option in (word for word in words if word.startswith("-")):
            assert re.search(rf"(?<![\w-]){option}\b", options)


def test_commands_that_the_documentation_says_print_json_have_the_option(ablate: Ablate) -> None:
    (names,) = re.findall(r"^`([a-z ]+)` and\s`data verify` take `--json`", EXPORT.read_text(), re.MULTILINE)
    having = [one for one in COMMANDS if "--json" in ablate(*one.split(), "-h")[1]]
    assert {*names.split(), "data verify"} == {one for one in having if one != "train"}


def test_version_is_that_of_the_package(ablate: Ablate) -> None:
    assert re.fullmatch(r"ablate \d+\.\d+\.\d+\n", ablate("--version")[1])


def test_the_shell_completes_commands_and_studies(monkeypatch: pytest.MonkeyPatch, ablate: Ablate) -> None:
    for words, offered in (("ablate pl", {"plan", "plot"}), ("ablate run pooling", {"pooling", "pooling-zoo"})):
        monkeypatch.setenv("_ABLATE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        assert {*ablate()[1].split()} == offered


@pytest.mark.parametrize("words", ["", "data"])
def test_without_a_command_there_is_the_help(ablate: Ablate, words: str) -> None:
    status, output, errors = ablate(*words.split())
    assert (status, errors) == (2, "")
    assert output.strip() == ablate(*words.split(), "-h")[1].strip()


def test_list_names_every_study_and_recipe(ablate: Ablate) -> None:
    (status, output, _), listing = ablate("list"), json_output(ablate, "list")
    assert status == 0
    assert all(f"  {one['name']} " in output for one in [*listing["studies"], *listing["recipes"]])


OWN_QUESTIONS = {"init", "norm-and-block", "optimizer-modern"}


def test_list_groups_studies_by_the_first_known_paper_of_their_source(ablate: Ablate) -> None:
    """A study that stands among our own questions by mistake lacks a line in ablations/study/papers.py."""
    papers = {one["name"]: one["paper"] for one in json_output(ablate, "list", "studies")["studies"]}
    assert papers["rope-vit"] == {"name": "RoPE-ViT", "arxiv": "2403.13298", "year": 2024}
    assert {name for name, paper in papers.items() if paper is None} == OWN_QUESTIONS
    headings = {}
    for line in ablate("list", "studies")[1].splitlines()[1:]:
        if not line.startswith("    "):
            heading = line.strip()
        headings[line.split()[0]] = heading
    assert headings["pooling"] == headings["position-zoo"] == "ViT (arXiv 2010.11929, 2020)"
    assert headings["hybrid-stem"] == "Early convolutions (arXiv 2106.14881, 2021)"
    assert headings["init"] == "Our own questions"


MINE = """
from vitcore.config import Options
from vitcore.training.schedules import SCHEDULE, Schedule
class Mine(Schedule):
    'Goes down.'
    class Options(Options):
        by: float
        to: int = 3
SCHEDULE['mine'] = Mine
"""


def test_list_names_every_variant_and_option(ablate: Ablate, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    request.addfinalizer(lambda: VARIANTS["schedule"].pop("mine", None))
    slots = json_output(ablate, "list", "--variants", "--plugin", "mine.py")["variants"]
    output = ablate("list", "--variants")[1]
    named = {slot["slot"]: [one["name"] for one in slot["entries"]] for slot in slots}
    assert named == {slot: list(variants) for slot, variants in VARIANTS.items()}
    found = {f"{slot['slot']}={one['name']}": one for slot in slots for one in slot["entries"]}
    assert found["schedule=mine"] == {"name": "mine", "about": "Goes down.", "options": {"by": None, "to": 3}}
    assert found["optimizer=sgd"]["options"] == {"momentum": 0.9, "nesterov": False}
    assert all(one["about"] and one["about"] in output for one in found.values())
    assert "optimizer.momentum=0.9  optimizer.nesterov=False" in output


def test_every_setting_is_listed_with_its_meaning(ablate: Ablate) -> None:
    lines = dict(re.split(r"  +", line, maxsplit=1) for line in ablate("list", "--settings")[1].splitlines())
    assert list(lines) == list(Config.model_fields)
    assert all(text.endswith((".", ")")) for text in lines.values())
    assert lines["depth"].startswith("[12] Number of encoder blocks")
    assert json_output(ablate, "list", "--settings")["settings"] == lines


def test_check_all_is_every_packaged_part_study_and_recipe(ablate: Ablate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_checks, "contracts", lambda slot, name: [("is tried", lambda slot, name: None)])
    few = {"studies": ["pooling"], "recipes": ["digits", "imagenet"]}
    assert "unknown recipe 'nowhere'" in refusal(ablate, "check", "all", "--recipe", "nowhere")
    monkeypatch.setattr(check, "packaged_names", few.__getitem__)
    status, output, _ = ablate("check", "all")
    lines = [f"ok      {slot}={name}: is tried" for slot, parts in VARIANTS.items() for name in parts]
    for line in (*lines, "\npooling on recipe digits", ": baseline\n", "\ndigits\n  ok", "\nimagenet\n  skipped"):
        assert line in output
    assert status == 0
    few["studies"] = ["nothing"]
    status, output, _ = ablate("check", "all")
    assert status == 1
    assert all(line in output for line in ("nothing\n  FAILED  unknown study 'nothing'", "digits\n  ok"))
