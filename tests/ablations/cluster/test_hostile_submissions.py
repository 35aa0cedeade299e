"""Broken files of submissions, logs that are pipes, and control characters in messages."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import synthetic
from hostile import ended, mutations
from in_process import Ablate

from ablations.cluster import arrays, node, rounds
from ablations.cluster import campaign as campaigns
from ablations.execution import retry_rules
from ablations.execution.launch import Place
from ablations.execution.runner import LineDisplay
from ablations.planning import estimate
from ablations.planning.estimate import Device
from results import store
from results.store.schemas.step_times import StepTime
from slurm import task
from slurm.profile import Profile

FILES = ["campaign.json", "private.json", "arrays/0001/intent.json", "gave-up.json"]
READING = (("status",), ("logs", "position-embedding"))


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a study with one submitted array, on a machine without SLURM."""
    monkeypatch.setenv("PATH", str(tmp_path))
    plan = synthetic.position(seeds=1)
    synthetic.write(tmp_path, plan)
    campaign = campaigns.write(campaigns.new([plan["name"]], Profile(gpus=0), Place(tmp_path, None)))
    array = campaign.folder / "arrays/0001"
    array.mkdir(parents=True)
    content = {"function": arrays.WORK, "written": 1.0, "progress": [0, 0, 0]}
    store.write_json(array / "intent.json", content)
    arrays.give_up(campaign)
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_submission_that_breaks_its_schema_ends_in_one_line(runs: Path, ablate: Ablate, name: str) -> None:
    (path,) = runs.glob(f"submissions/*/{name}")
    whole: dict[str, Any] = json.loads(path.read_text())
    every = slice(None) if os.environ.get("ABLATE_EVERY_MUTATION") else slice(FILES.index(name), None, 5)
    contents = [(what, json.dumps(mutated)) for what, mutated in list(mutations(whole))[every]]
    for what, content in [*contents, ("pipe", None)]:
        path.unlink()
        os.mkfifo(path) if content is None else path.write_text(content)
        for words in READING:
            assert not ended(ablate, *words, "--runs", str(runs)), (what, words)


def test_broken_step_times_are_one_line_or_ignored(runs: Path) -> None:
    device = Device(False, "cpu")
    estimate.write_step_times(runs, device, {"0" * 12: StepTime(seconds=1.0, steps=50)})
    (times,) = runs.glob("probes/*.json")
    whole = json.loads(times.read_text())
    for _, mutated in mutations(whole):
        times.write_text(json.dumps(mutated) + "\n")
        with suppress(store.Broken, store.NewerSchema):
            estimate.read_step_times(runs, device)


@pytest.mark.parametrize("name", ["env.json", "failure.json"])
def test_an_earlier_attempt_with_broken_files_stops_no_new_one(runs: Path, name: str) -> None:
    """The cause of its end is read only from valid files; `run` continues in any case."""
    attempt = sorted(runs.glob("trials/*/attempts/0001"))[0]
    (attempt / "result.json").unlink()
    content = {"cause": "c", "code": "0", "node": "n", "where": ["a:b:1"]}
    content |= {"resumed_from": {"attempt": "0001", "step": 0}}
    for what, mutated in mutations(content):
        (attempt / name).write_text(json.dumps(mutated))
        found = retry_rules.read_failure(attempt, "0")
        assert found is None or found.cause, what


def test_logs_that_are_pipes_are_named(runs: Path, ablate: Ablate) -> None:
    for trial in runs.glob("trials/*"):
        os.mkfifo(trial / "attempts/0001/log")
    assert not ended(ablate, "logs", "position-embedding", "--runs", str(runs))


def test_output_of_a_task_has_no_control_characters(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder,) = runs.glob("submissions/2*")

    def give_up(*_: object, **__: object) -> rounds.Round:
        LineDisplay().say("\x1b[2J\u202e")
        return rounds.Round(0, 0, left=1, given_up="\x07")

    monkeypatch.setattr(rounds, "submit_round", give_up)
    assert node.last(str(folder / "arrays/0002")) == node.FAILED
    assert task.run("builtins:int", ["\x1b[2J\u202e"]) == task.REFUSED
    told = capsys.readouterr()
    assert not [one for one in told.out + told.err if not one.isprintable() and one != "\n"]
    assert "\\x1b[2J\\u202e" in told.out
