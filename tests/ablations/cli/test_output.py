"""Output without control characters or formulas of foreign text, and the display of a run."""

import csv
import io
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import synthetic
from in_process import Ablate
from rich.console import Console

from ablations.cli import data
from ablations.cli.inputs.preparation import track_planning
from ablations.execution.messages import Ended, Progress
from ablations.execution.progress import GrowingTable, Live, stderr_console
from ablations.jobs import Job, jobs
from ablations.output import plain_output
from ablations.status import view
from ablations.status.study_status import TRIAL_KINDS, ArmStatus, StudyStatus
from ablations.status.view import show_live
from commonfloor.messages import printable
from results import store
from results.figures import study_figure
from results.tables import formats
from vitcore.data.imagefolder import list_classes

HOSTILE = "a\x1b[2J\x9b31m\x07\u202e\u2066\u200bz"
SHOWN = r"a\x1b[2J\x9b31m\x07\u202e\u2066\u200bz"


def hostile(text: str = HOSTILE) -> dict[str, Any]:
    """Return a plan with this text in the question and in the name of an arm."""
    plan = synthetic.make_plan("s", {"position": ["1d", "2d"]}, {"position": "1d"}, seeds=2)
    plan["arms"][1]["name"] = text
    return plan | {"question": text}


def test_plain_text_keeps_what_prints() -> None:
    assert printable("±é名 x") == "±é名 x"
    assert printable(HOSTILE) == SHOWN
    assert printable("a\nb\tc\r", "\n\t") == "a\nb\tc\\r"
    assert printable("\ud800") == r"\ud800"


@pytest.mark.parametrize("words", [("table",), ("status",), ("table", "--format", "csv")])
def test_commands_print_no_control_characters_of_others(tmp_path: Path, words: tuple[str, ...], ablate: Ablate) -> None:
    status, said, errors = ablate(*words, "--runs", str(synthetic.write(tmp_path, hostile())))
    assert status == 0, errors
    assert SHOWN in said
    assert set(said) - {"\n"} == {c for c in said if c.isprintable()}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watch_status() -> None:
    arm = ArmStatus("a", "", dict.fromkeys(TRIAL_KINDS, 1), [], [], [], [])
    waiting = StudyStatus("s", "r", "s@r", 1, dict.fromkeys(TRIAL_KINDS, 1), [], [arm], "", "", "", "")
    answers = [([waiting], []), ([], [])]
    show_live(lambda: answers.pop(0), "")


def pack_data() -> None:
    with data.progress("packing", 2) as advance:
        advance(1)


@pytest.mark.parametrize("draw", [lambda: list(track_planning([object()])), pack_data, watch_status])
def test_what_is_drawn_on_a_terminal_is_not_escaped(
    draw: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(view, "REDRAW_SECONDS", 0)
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, terminal)
    with plain_output():
        draw()
        print(HOSTILE)
    drawn, _, printed = terminal.getvalue().rpartition(SHOWN)
    assert "\x1b[" in drawn
    assert "\\x1b" not in drawn
    assert printed == "\n"


def test_a_terminal_gets_bars_and_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line break of Rich would stay in copied text."""
    row, drawn = "| position=relative,position_at=every-layer " * 5, b""
    terminal, ours = os.openpty()
    with open(terminal, "rb", buffering=0) as shown, open(ours, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        with plain_output(), Live(stderr_console(), 1) as display:
            display.show_end(Job("0" * 12, {"seed": 0, "steps": 2}, "a", "s"), Ended("finished"))
            display.print_result(f"{HOSTILE}\n{row}")
        stream.flush()
        while b"\x1b[?25h" not in drawn:  # the cursor comes back, which Rich does last
            drawn += shown.read(2**16)
    text = drawn.decode()
    assert "\x1b[2K" in text
    assert "\\x1b[2K" not in text
    assert SHOWN in text
    assert "\x1b[2J" not in text
    assert row.rstrip() in text


def test_output_into_a_file_has_no_bars_if_colors_are_forced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    _, ours = os.openpty()
    with open(ours, "w") as terminal, open(tmp_path / "table.md", "w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        monkeypatch.setattr(sys, "stderr", terminal)
        with plain_output(), Live(stderr_console(), 1) as display:
            display.print_result("| arm |")
    assert (tmp_path / "table.md").read_text() == "| arm |\n"


def test_progress_shows_names_as_they_are_on_one_line() -> None:
    """Brackets are no markup. Off a terminal no line is wrapped."""
    job = Job("0" * 12, {"seed": 0, "steps": 2}, f"[/x]{HOSTILE}", "s")
    for terminal in (True, False):
        console = Console(file=io.StringIO(), force_terminal=terminal, width=200 if terminal else 20)
        with Live(console, 1) as display:
            display.show_running(0, job, Progress(1))
            display.show_end(job, Ended("failed", HOSTILE))
        said = console.file.getvalue()
        assert f"[/x]{SHOWN} seed 0: {SHOWN}" in said
        assert not re.search("\u202e|\x1b\\[2J", said)


def test_logs_hold_no_control_characters(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from ablations.output import output_to_file
with output_to_file(Path({str(tmp_path / "log")!r})):
    print({HOSTILE!r})
    sys.stdout.flush()
    print({HOSTILE!r}, file=sys.stderr)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "log").read_text() == f"{SHOWN}\n{SHOWN}\n"


def test_figure_of_any_text_is_xml() -> None:
    content = study_figure.picture(synthetic.results(hostile("a\x1b\x00\x07\u202ez")), "svg").decode()
    ElementTree.fromstring(content)
    assert not {"\x1b", "\u202e"} & {*content}


def test_cells_and_headers_of_a_csv_are_no_formulas() -> None:
    header, row = csv.reader(io.StringIO(formats.as_csv([{"=1+1": "=2+2", "@x\ny": 3}])))
    assert header == ["'=1+1", "'@x y"]
    assert row == ["'=2+2", "3"]


@pytest.mark.parametrize(
    ("listing", "reader"),
    [
        ("listdir", lambda folder: store.sorted_paths(folder / "trials")),
        ("listdir", store.read_plans),
        ("scandir", lambda folder: list_classes(folder, "", ["studies"])),
    ],
)
def test_unreadable_folder_is_called_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listing: str, reader: Callable[[Path], object]
) -> None:
    (tmp_path / "studies").mkdir()
    (tmp_path / "trials").mkdir()

    def refused(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, listing, refused)
    with pytest.raises(ValueError, match=r"(studies|trials): cannot be read \(Permission denied\)"):
        reader(tmp_path)


def test_a_trial_that_compiles_says_so_and_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    job, file = Job("id", {"seed": 0, "steps": 9}, "arm", ""), io.StringIO()
    Live(Console(file=file), 2).show_compiling(0, job)
    assert "arm seed 0: compiling" in file.getvalue()
    now, display = 100.0, Live(Console(file=io.StringIO(), force_terminal=True, width=120), 2)
    monkeypatch.setattr(display.progress, "get_time", lambda: now)

    def drawn() -> str:
        with display.console.capture() as capture:
            display.console.print(display.progress.get_renderable())
        return capture.get()

    display.show_running(0, job, None)
    now = 200.0
    display.show_running(0, job, None)  # the next trial
    display.show_compiling(0, job)
    now = 242.0
    assert re.search(r"arm seed 0 .*compiling.*0:00:42", drawn())
    display.show_running(0, job, Progress(1))
    assert re.search(r"arm seed 0 .*step 1/9", drawn())
    assert "compiling" not in drawn()


def test_one_estimate_of_the_time_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    file = io.StringIO()
    display = Live(Console(file=file), 4, workers=2)
    job = Job("id", {"seed": 0, "steps": 100}, "arm", "")
    reports = (None, 100.0), (Progress(1), 103.0), (Progress(11), 105.0), (Progress(21), 107.0)
    for progress, now in reports:  # noqa: B007 - the clock reads it
        display.show_running(0, job, progress)
    (line,) = file.getvalue().splitlines()
    assert "first step after 3.0 s" in line
    assert line.endswith("200 ms per step: 22.8 s per trial, about 44.5 s left")  # (4 - 0.1) * 22.8 s / 2
    assert display.time_left() == ", about 43.3 s left"


def test_the_chosen_metric_is_shown_of_each_trial() -> None:
    end, file = Ended("finished", metrics={"test_accuracy": 0.9, "val_accuracy": 0.4}), io.StringIO()
    Live(Console(file=file), 1).show_end(Job("id", {"seed": 0}, "arm", "", metric="val_accuracy"), end)
    assert file.getvalue() == "[1/1] arm seed 0: val accuracy 40.0%, 0.0 s\n"


def test_evaluations_do_not_count_as_steps_and_are_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: steps of 2 s, evaluations of 60 s after steps 1 and 2, and 30 times as long as training in all."""
    now, file = 0.0, io.StringIO()
    monkeypatch.setattr("time.monotonic", lambda: now)
    display = Live(Console(file=file, force_terminal=True, width=120), 1)
    job = Job("id", {"seed": 0, "steps": 20}, "arm", "", evaluation=30.0, selection_metric="val_loss")
    display.show_running(0, job, None)
    reports = (5.0, Progress(1, None, True)), (65.0, Progress(1, 0.1)), (67.0, Progress(2, 0.1, True))
    for now, progress in reports:  # noqa: B007 - the clock reads it
        display.show_running(0, job, progress)
    assert "then 2.0 s per step: 19 min 43 s per trial, 19 min 0 s of it for evaluations" in file.getvalue()
    with display.console.capture() as capture:
        display.console.print(display.progress.get_renderable())
    assert "step 2/20  evaluating  val loss 0.1" in capture.get()


def test_the_table_fills_in_as_trials_end(tmp_path: Path) -> None:
    synthetic.write(tmp_path, synthetic.position(seeds=2))
    (plan,) = store.read_plans(tmp_path).all()
    asked = jobs([plan])
    table = GrowingTable([*asked, Job("0" * 12, asked[0].config | {"seed": 9}, asked[0].arm, "")], tmp_path)
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    display = Live(console, len(asked), table)
    for job in asked:
        table.show_end(job)
    with console.capture() as capture:
        console.print(display.progress.get_renderable())
    line = next(line for line in capture.get().splitlines() if asked[0].arm in line)
    result = store.trial(tmp_path, asked[0].id).state().result
    assert f"{100 * result.metrics['test_accuracy']:.2f}" in line
    assert "seed 9" in capture.get()
