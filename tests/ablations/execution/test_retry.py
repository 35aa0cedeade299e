"""retry: selected trials are to do again, their old files stay, and `status` names what helps."""

import re
from pathlib import Path

import pytest
import synthetic
from in_process import Ablate

from ablations.execution import retry
from ablations.execution.retry import advice
from ablations.reporting import status as statuses
from ablations.reporting.status_view import render
from results import store
from results.store import eval_files, lease
from results.store.schemas import Plan

ARMS = {"bug": ("position=none", 1), "memory": ("position=2d", 2)}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Write a study in which one trial failed of a bug, one of memory, and one diverged."""
    plan = synthetic.position()
    holes = {synthetic.trial_id(plan, "position=none", 3): synthetic.hole("diverged")}
    holes |= {synthetic.trial_id(plan, *cell): synthetic.hole("missing") for cell in ARMS.values()}
    folder = synthetic.write(tmp_path / "runs", plan, holes)
    for kind, cell in ARMS.items():
        trial = store.trial(folder, synthetic.trial_id(plan, *cell))
        trial.create({"config": {}})
        with synthetic.claimed(trial) as attempt:
            attempt.fail(f"of {kind}", "Traceback ...", "code", kind=kind, where=["a"], again=False)
    return folder


OPEN = "interrupted"
LEFT = {"bug": "failed", "memory": "failed", "diverged": "diverged"}


@pytest.mark.parametrize(
    ("options", "said", "reopened"),
    [
        ([], "2 trials may be run again", ["bug", "memory"]),
        (["--oom"], "1 trial may be run again", ["memory"]),
        (["--failed", "--diverged"], "3 trials may be run again", ["bug", "memory", "diverged"]),
    ],
)
def test_selected_trials_reopen(runs: Path, ablate: Ablate, options: list[str], said: str, reopened: list[str]) -> None:
    assert said in ablate("retry", "position-embedding", *options)[1]
    cells, plan = {**ARMS, "diverged": ("position=none", 3)}, synthetic.position()
    trials = {name: store.trial(runs, synthetic.trial_id(plan, *cell)) for name, cell in cells.items()}
    assert {name: trial.state().status for name, trial in trials.items()} == LEFT | dict.fromkeys(reopened, OPEN)
    if "diverged" in reopened:
        kept = trials["diverged"].attempts()[-1] / "retried-result.json"
        assert store.read_json(kept)["status"] == "diverged"


def test_trials_that_cannot_be_retried_are_left_alone(runs: Path, ablate: Ablate) -> None:
    finished = synthetic.trial_id(synthetic.position(), "position=1d", 0)
    assert ablate("retry", finished) == (0, "0 of 1 trial failed: there is nothing to retry\n", "")
    assert "0 of 1 trial ran out of memory or diverged" in ablate("retry", finished, "--oom", "--diverged")[1]
    result = store.trial(runs, finished).path / "result.json"
    result.write_bytes(result.read_bytes()[:50])
    assert "`ablate run` trains trials with a damaged result again" in ablate("retry", finished)[1]
    trial = store.trial(runs, synthetic.trial_id(synthetic.position(), *ARMS["bug"]))
    with synthetic.claimed(trial) as attempt:
        attempt.fail("of bug", "", "code", kind="bug")
        assert "0 trials may be run again; 1 held" in ablate("retry", trial.id)[1]


def test_trial_with_a_new_result_is_left_alone(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process retries and finishes the trial between selection and reopening."""
    trial, watch = store.trial(runs, synthetic.trial_id(synthetic.position(), "position=none", 3)), lease.Watch

    def meanwhile() -> lease.Watch:
        monkeypatch.undo()
        assert trial.reopen(watch(), trial.result())
        attempt = store.claim(trial, watch())
        with attempt:
            attempt.save_weights(b"")
            attempt.publish({"status": "finished", "metrics": {}})
        return watch()

    monkeypatch.setattr(lease, "Watch", meanwhile)
    assert retry.retry([trial], failed=False, oom=False, diverged=True) == [False]
    assert trial.state().status == "finished"


def test_a_trial_whose_result_is_too_new_is_not_held_afterwards(runs: Path) -> None:
    trial = store.trial(runs, synthetic.trial_id(synthetic.position(), "position=none", 0))
    result = store.read_json(trial.path / "result.json")
    store.write_json(trial.path / "result.json", result | {"schema": 1000})
    for _ in range(2):  # the second would find it held
        with pytest.raises(store.NewerSchema):
            trial.reopen(lease.Watch(), None)


def test_status_groups_causes_and_names_what_helps(runs: Path) -> None:
    text = render([statuses.status(Plan.model_validate(synthetic.position()), runs, statuses.SlurmState({}))]).plain
    plan = "position-embedding@digits"
    for kind, arm in (("bug", "position=none seed 1"), ("memory", "position=2d seed 2")):
        lines = [f"failed    1 trial: of {kind}", "Traceback ...", arm, advice(kind, plan)]
        assert "\n            ".join(lines) in text
    assert f"ablate retry {plan} --oom" in text


def test_status_names_a_damaged_result_and_what_makes_it_again(runs: Path) -> None:
    result = runs / "trials" / synthetic.trial_id(synthetic.position(), "position=1d", 0) / "result.json"
    result.write_bytes(result.read_bytes()[:100])
    view = statuses.status(Plan.model_validate(synthetic.position()), runs, statuses.SlurmState({}))
    assert (view.counts["broken"], view.counts["missing"]) == (1, 0)
    advised = "position=1d seed 0\n +`ablate run` or `ablate submit` trains it again"
    assert re.search(f"broken    1 trial: result.json is not JSON.*\n +{advised}", render([view]).plain)


def test_trial_and_its_eval_that_failed_are_both_forgiven(runs: Path, ablate: Ablate) -> None:
    trial = store.trial(runs, synthetic.trial_id(synthetic.position(), *ARMS["bug"]))
    eval_files.write_failure(trial, "fewshot", "cause", "", "code")
    assert "2 trials may be run again\n" in ablate("retry", "position-embedding")[1]
    assert eval_files.first_failure(trial) is None
    assert trial.state().status == OPEN
