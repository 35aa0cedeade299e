"""`ablate gate`: streams of proposals, their seeds and answers, and what the ledger keeps."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_process import Ablate, refusal

from ablations.cli import gate as command
from ablations.decisions import gate as decisions
from results.statistics import stream
from results.store import gate_files
from results.store.schemas.gates import Proposal
from results.study_results import StudyResults

FUNCTION = """
import random
def train(run, lr=0.5, note=0):
    if lr < 0:
        raise ValueError("a rate below 0")
    return {"score": lr + random.Random(f"{run.seed} {lr} {note}").gauss(0, 0.01)}
"""
SCRIPT = """
import random, sys
level = 0.1
print("METRIC s=%f" % (level + random.Random(str(level) + sys.argv[2]).gauss(0, 0.001)))
"""
RECIPE = "{description: d, train: 'f.py:train', metrics: {score: {better: higher}}}"
Gate = Callable[..., tuple[int, Any]]


@pytest.fixture
def gate(ablate: Ablate, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Return the command on a function's recipe, with quick steps: exit status and JSON answer."""
    sys.modules.pop("f", None)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("f.py").write_text(FUNCTION)
    Path("r.yaml").write_text(RECIPE)

    def answered(*words: str, steps: str = "3,4") -> tuple[int, Any]:
        asked = ("gate", *words, "--recipe", "r.yaml", "--margin", "0.02", "--steps", steps, "--json")
        status, output, errors = ablate(*asked)
        assert status in (0, 1, 3), errors
        return status, json.loads(output)

    return answered


def trained(runs: str = "runs") -> set[str]:
    return {path.name for path in Path(runs, "trials").glob("*")}


def test_a_kept_change_is_the_next_baseline(gate: Gate, ablate: Ablate) -> None:
    """Every proposal has fresh seeds, a level by the decisions before it, and the log adds what was kept."""
    status, first = gate("lr=0.5", "lr=0.9")
    assert (status, first["answer"], first["seeds"]) == (0, "keep", [1000, 1001, 1002])
    assert first["level_of_proposal"] == pytest.approx(stream.next_level(0, []))
    assert first["estimate"]["n"] == 3
    assert first["estimate"]["difference"] != first["difference"]
    assert len(trained()) == 12

    line = refusal(ablate, "gate", "lr=0.5", "lr=0.7", "--recipe", "r.yaml", "--margin", "0.02", "--steps", "3,4")
    assert "lr=0.5: is not the baseline of stream main, which is lr=0.9 (kept by proposal 1)" in line

    status, second = gate("lr=0.9", "lr=0.4")
    assert (status, second["answer"], second["seeds"][0]) == (1, "reject", 1007)
    assert second["level_of_proposal"] == pytest.approx(stream.next_level(1, [1]))
    status, third = gate("lr=0.9", "lr=1.4")
    assert (status, third["seeds"][0]) == (0, 1014)

    _, output, _ = ablate("gate", "--log", "--json")
    log = json.loads(output)
    assert [entry["answer"] for entry in log["proposals"]] == ["keep", "reject", "keep"]
    assert log["baseline"] == "lr=1.4"
    gains = first["estimate"]["difference"] + third["estimate"]["difference"]
    assert log["total"]["difference"] == pytest.approx(gains)
    status, output, _ = ablate("gate", "--log")
    assert (status, "2 kept changes against the first baseline: +0.9" in output) == (0, True)


def test_more_continues_and_a_decision_stays(gate: Gate) -> None:
    """After `more`, the same command takes the next step; after a decision, it repeats the answer untrained."""
    status, first = gate("lr=0.5", "lr=0.515,note=2", steps="3,5,8")
    assert (status, first["answer"]) == (3, "more")
    assert first["next"] == {"seeds": 5, "trials": 4, "hours": pytest.approx(0, abs=0.01), "unit": "core-hours"}
    statuses = []
    while status == 3:
        status, last = gate("lr=0.5", "lr=0.515,note=2", steps="3,5,8")
        statuses.append(status)
    assert len(statuses) < 3
    before = trained()
    assert gate("lr=0.5", "lr=0.515,note=2", steps="3,5,8") == (status, last)
    assert trained() == before


def test_a_stream_without_its_first_proposal_or_an_answer_is_no_traceback(gate: Gate, ablate: Ablate) -> None:
    """The process was killed while it wrote the first proposal; later, somebody removes an answer."""
    Path("runs/gates/main").mkdir(parents=True)
    assert "runs: no change was proposed there" in refusal(ablate, "gate", "--log")
    while gate("lr=0.5", "lr=0.515,note=2", steps="3,5,8")[0] == 3:
        pass
    Path("runs/gates/main/0001-1.json").unlink()
    message = "runs/gates/main: answer 1 of proposal 1 is missing: restore it, or begin another stream"
    assert message in refusal(ablate, "gate", "--log")


def test_identical_arms_are_rejected_untrained_and_spend_nothing(gate: Gate) -> None:
    status, answer = gate("lr=0.5", "lr=5e-1,note=0")
    assert (status, answer["reason"], answer["level_of_proposal"]) == (1, "identical: nothing to train", 0.0)
    assert not trained()
    assert gate("lr=0.5", "lr=0.1")[1]["level_of_proposal"] == pytest.approx(stream.next_level(0, []))


def test_a_killed_step_continues(gate: Gate, ablate: Ablate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command died after its trials, or before any: the proposal, its seeds and its level stay."""

    def killed(*_: object) -> StudyResults:
        raise KeyboardInterrupt

    with monkeypatch.context() as own:
        own.setattr(decisions, "answer", killed)
        words = ("gate", "lr=0.5", "lr=0.9", "--recipe", "r.yaml", "--margin", "0.02", "--steps", "3,4")
        assert ablate(*words)[0] == 130
    before = trained()
    assert len(before) == 6
    assert "`ablate gate --log` shows proposed changes" in refusal(ablate, "status")
    status, answer = gate("lr=0.5", "lr=0.9")
    assert (status, answer["proposal"], before < trained()) == (0, 1, True)


def test_an_open_proposal_ends_when_its_baseline_is_replaced(gate: Gate, ablate: Ablate) -> None:
    """Its level stays spent."""
    words = ("gate", "lr=0.5", "lr=0.51,note=1", "--recipe", "r.yaml", "--margin", "0.1", "--steps", "3,4", "--json")
    Path("f.py").write_text(FUNCTION.replace("0.01)", "0.2)"))
    assert ablate(*words)[0] == 3
    status, kept = gate("lr=0.5", "lr=9.0")
    assert (status, kept["level_of_proposal"]) == (0, pytest.approx(stream.next_level(1, [])))
    assert "its baseline was replaced meanwhile: propose the change to lr=9.0" in refusal(ablate, *words)


def test_of_two_open_proposals_one_is_kept(gate: Gate, ablate: Ablate, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one trains, another process keeps the other: both gains are over the same baseline, and do not add up."""
    train = command.train

    def trained_slowly(proposal: Proposal, *rest: Any) -> None:
        train(proposal, *rest)
        if proposal.number == 1 and proposal.candidate.text == "lr=0.9":
            monkeypatch.setattr(command, "train", train)
            assert gate("lr=0.5", "lr=1.4")[1]["answer"] == "keep"

    monkeypatch.setattr(command, "train", trained_slowly)
    words = ("gate", "lr=0.5", "lr=0.9", "--recipe", "r.yaml", "--margin", "0.02", "--steps", "3,4")
    status, output, errors = ablate(*words)
    assert (status, output) == (2, "")
    assert "its baseline was replaced meanwhile: propose the change to lr=1.4" in errors
    (main,) = gate_files.read_streams(Path("runs")).values()
    assert [proposed.is_kept for proposed in main.proposals] == [False, True]
    assert main.current.text == "lr=1.4"


def test_a_failed_trial_is_no_answer(gate: Gate, ablate: Ablate) -> None:
    """Its exit status is neither that of an answer nor of bad input, and the proposal stays open."""
    words = ("gate", "lr=0.5", "lr=-1", "--recipe", "r.yaml", "--margin", "0.02", "--steps", "3,4")
    status, output, errors = ablate(*words)
    assert (status, output) == (4, "")
    assert "3 trials failed" in errors
    (main,) = gate_files.read_streams(Path("runs")).values()
    assert main.proposals[0].decision is None
    assert gate("lr=0.5", "lr=0.1")[1]["level_of_proposal"] == pytest.approx(stream.next_level(1, []))


def test_a_result_outside_the_range_of_its_metric_does_not_drop_its_seed(gate: Gate) -> None:
    """Otherwise a candidate could leave out the seeds in which it is bad."""
    result = "0.5 if lr == 0.5 else 1.5 if run.seed == 1001 else 0.9 + run.seed % 3 / 1000"
    Path("f.py").write_text(f"def train(run, lr=0.5):\n    return {{'score': {result}}}\n")
    Path("r.yaml").write_text(RECIPE.replace("higher", "higher, unit: fraction"))
    status, answer = gate("lr=0.5", "lr=0.9")
    assert (status, answer["answer"]) == (1, "reject")
    assert "a result of the candidate is broken: " in answer["reason"]


def test_what_was_declared_is_not_changed(gate: Gate, ablate: Ablate) -> None:
    gate("lr=0.5", "lr=0.4")
    words = ("gate", "lr=0.5", "lr=0.4", "--recipe", "r.yaml", "--steps", "3,4", "--margin")
    assert "was declared with margin 0.02, not 0.1" in refusal(ablate, *words, "0.1")
    assert "--margin X: a number above 0" in refusal(ablate, *words, "-1")
    seeded = ("gate", "lr=0.5", "lr=0.3,seed=7", *words[3:], "0.02")
    assert "lr=0.3,seed=7: seed: each proposal draws fresh seeds" in refusal(ablate, *seeded)
    unknown = ("gate", "lr=0.5", "lr=0.3", *words[3:], "0.02", "--max-hours", "0")
    assert "--max-hours 0: training 6 trials takes" in refusal(ablate, *unknown)
    assert not Path("runs/gates/main/0002.json").exists()
    Path("runs/gates/main/0001-1.json").write_text("{}")
    assert "runs/gates/main/0001-1.json" in refusal(ablate, "gate", "--log")


def test_two_revisions_of_code_are_compared(ablate: Ablate) -> None:
    """A git revision and a folder; a revision with the same files is identical."""
    Path("new").mkdir()
    Path("t.py").write_text(SCRIPT)
    Path("new/t.py").write_text(SCRIPT.replace("0.1", "0.9"))
    train = f"{sys.executable} t.py {{lr}} {{seed}}"
    Path("r.yaml").write_text(
        f"{{description: d, train: '{train}', config: {{lr: 1}}, metrics: {{s: {{better: higher}}}}}}"
    )
    git = ("git", "-c", "user.name=n", "-c", "user.email=e@example.org")
    for words in (("init", "-q"), ("add", "t.py"), ("commit", "-q", "-m", "first")):
        subprocess.run([*git, *words], check=True)
    words = ("gate", "--recipe", "r.yaml", "--margin", "0.02", "--steps", "3,4", "--json", "--code", "HEAD", "--code")
    status, output, errors = ablate(*words, "new")
    assert status == 0, errors
    answer = json.loads(output)
    assert (answer["baseline"], answer["candidate"]) == ("HEAD", "new")
    assert answer["difference"] == pytest.approx(0.8, abs=0.05)
    trials = trained()
    Path("same").mkdir()
    Path("same/t.py").write_text(SCRIPT.replace("0.1", "0.9"))
    words = (*words[:-2], "new", "--code")
    status, output, errors = ablate(*words, "same")
    assert (status, json.loads(output)["reason"], trained()) == (1, "identical: nothing to train", trials)
    assert "neither a folder nor a git revision" in refusal(ablate, *words, "missing")
