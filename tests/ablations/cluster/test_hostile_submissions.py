"""Files of a submission that break their schema, logs that are pipes, and text that no terminal should see."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import synthetic
from hostile_files import ended, mutations

from ablations.cluster import campaign as campaigns
from ablations.cluster import node
from ablations.execution.launch import Place
from slurm.profiles.profile import Profile
from slurm.submission import intent, job

PLACES = {
    "campaign.json": "submissions/*/campaign.json",
    "private.json": "submissions/*/private.json",
    "intent.json": "submissions/*/arrays/0001/intent.json",
    "ack.json": "submissions/*/arrays/0001/ack.json",
}
READING = (("status",), ("logs", "position-embedding"))


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of which one array was handed to SLURM, which is not there now."""
    monkeypatch.setenv("PATH", str(tmp_path))
    plan = synthetic.position()
    synthetic.write(tmp_path, plan)
    campaign = campaigns.create(tmp_path, [plan["name"]], Profile(gpus=0), Place(tmp_path, None))
    array = campaign.folder / "arrays/0001"
    array.mkdir(parents=True)
    ids = [trial["id"] for trial in plan["arms"][0]["trials"]]
    intent.write(array, campaigns.tag(array), campaigns.SHARE, [str(campaign.folder)], [ids])
    intent.acknowledge(array, 7)
    return tmp_path


@pytest.mark.parametrize("name", PLACES)
def test_a_file_of_a_submission_that_breaks_its_schema_ends_in_one_line(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Every reading command survives every field that is missing or wrong; so do pipes."""
    (path,) = runs.glob(PLACES[name])
    whole: dict[str, Any] = json.loads(path.read_text())
    bad, tried = [], 0
    every = slice(None) if os.environ.get("ABLATE_EVERY_MUTATION") else slice(list(PLACES).index(name), None, 5)
    contents = [(what, json.dumps(mutated)) for what, mutated in list(mutations(whole))[every]]
    for what, content in [*contents, ("pipe", None)]:
        path.unlink()
        os.mkfifo(path) if content is None else path.write_text(content)
        for words in READING:
            tried += 1
            if wrong := ended(monkeypatch, capsys, *words, "--runs", str(runs)):
                bad.append(f"{what}: {words[0]}: {wrong}")
    print(f"{name}: {tried} commands on hostile files")
    assert not bad


def test_logs_that_are_pipes_are_named(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody waits for a writer; the other logs are shown."""
    for trial in runs.glob("trials/*"):
        os.mkfifo(trial / "attempts/0001/log")
    assert not ended(monkeypatch, capsys, "logs", "position-embedding", "--runs", str(runs))


def test_what_a_task_prints_moves_no_cursor(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither the lines of the pool nor the error that ends the task."""
    (folder,) = runs.glob("submissions/2*")
    monkeypatch.setattr(node, "reconcile_patiently", lambda campaign: node.Lines().say("\x1b[2J\u202e"))
    monkeypatch.setattr(node.no_progress, "give_up", lambda campaign: "\x07")
    assert node.last(str(folder)) == node.FAILED
    assert job.run("builtins:int", ["\x1b[2J\u202e"], []) == job.REFUSED
    told = capsys.readouterr()
    assert not [one for one in told.out + told.err if not one.isprintable() and one != "\n"]
    assert "\\x1b[2J\\u202e" in told.out
