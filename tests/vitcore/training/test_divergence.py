"""A divergence is verified once from the last finite checkpoint; then it is a result or a hardware fault."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
import torch
import trainings
from trainings import Killed, after

from results import store
from vitcore import train
from vitcore.training.run import Memory
from vitcore.training.state import Training
from vitcore.training.step import TrainStep

K = 13  # the step, from 1, whose loss is not a number


tiny = partial(trainings.tiny, steps=20)
Break = Callable[..., list[int]]


@pytest.fixture
def break_at(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Return a function that spoils these steps in turn, and returns the steps spoilt so far."""

    def install(*steps: int) -> list[int]:
        due, spoilt = list(steps), []
        gradients, advance = TrainStep.backward, Training.advance

        def not_numbers(self: TrainStep, *batch: Any) -> torch.Tensor:
            loss = gradients(self, *batch)
            for parameter in self.model.parameters():
                parameter.grad = torch.full_like(parameter, torch.nan)
            return loss * torch.nan

        def spoiling(self: Training) -> None:
            with monkeypatch.context() as step:
                if due and due[0] == self.step + 1:
                    spoilt.append(due.pop(0))
                    step.setattr(TrainStep, "backward", not_numbers)
                advance(self)

        monkeypatch.setattr(Training, "advance", spoiling)
        return spoilt

    return install


@pytest.mark.parametrize("checkpoint_seconds", [0, 1000])
def test_divergence_that_comes_back_is_a_result(break_at: Break, checkpoint_seconds: float) -> None:
    """It occurs twice at one step, from a checkpoint or the start; no checkpoint holds the diverged state."""

    class Strict(Memory):
        def save_checkpoint(self, step: int, payload: bytes) -> None:
            assert step < K
            super().save_checkpoint(step, payload)

    spoilt = break_at(K, K)
    outcome = train(tiny(), Strict(), checkpoint_seconds=checkpoint_seconds)
    assert (outcome.status, outcome.diverged_at_step, outcome.steps) == ("diverged", K, K)
    assert (outcome.metrics, outcome.suspect_hardware, spoilt) == ({}, None, [K, K])


@pytest.mark.parametrize("checkpoint_seconds", [0, 1000])
def test_divergence_that_does_not_come_back_is_a_fault(break_at: Break, checkpoint_seconds: float) -> None:
    """The recomputed loss is finite: the training ends as an undisturbed one, and reports the step."""
    calm, run = Memory(), Memory()
    assert train(tiny(), calm).suspect_hardware is None
    break_at(K)
    outcome = train(tiny(), run, checkpoint_seconds=checkpoint_seconds)
    assert (outcome.status, outcome.suspect_hardware, outcome.diverged_at_step) == ("finished", K, None)
    trainings.assert_same(run, calm)


def kill_after(steps: int) -> Callable[[], bool]:
    stop = after(steps)

    def kill() -> bool:
        if stop():
            raise Killed
        return False

    return kill


@pytest.mark.parametrize("spoilt", [1, 9])
def test_killed_while_verifying_ends_the_same(break_at: Break, spoilt: int) -> None:
    """Killed in the first or second pass, it has the same outcome and forgets no fault."""
    break_at(*[K] * spoilt)
    expected = train(tiny(), calm := Memory(), checkpoint_seconds=0)

    for steps in (5, 20, 21):
        break_at(*[K] * spoilt)
        run = Memory()
        try:
            outcome = train(tiny(), run, checkpoint_seconds=0, stop=kill_after(steps))
        except Killed:
            outcome = train(tiny(), run, checkpoint_seconds=0)
        for field in ("status", "diverged_at_step", "suspect_hardware", "steps"):
            assert getattr(outcome, field) == getattr(expected, field), (steps, field)
        assert run.weights == calm.weights, steps


def test_divergence_is_found_although_no_slice_reaches_an_evaluation(break_at: Break) -> None:
    """Its state is in no checkpoint: without a check at a stop, every slice would repeat the one before."""
    break_at(*[K] * 20)
    run, statuses = Memory(), []
    for _ in range(8):
        outcome = train(tiny(), run, checkpoint_seconds=1000, stop=after(4))
        statuses.append(outcome.status)
        if outcome.status != "stopped":
            break
    assert statuses == ["stopped"] * 4 + ["diverged"]
    assert outcome.diverged_at_step == K


def test_the_third_suspicion_is_confirmed_at_any_step(break_at: Break) -> None:
    break_at(13, 12, 14, 11)
    outcome = train(tiny(), Memory(), checkpoint_seconds=1000)
    assert (outcome.status, outcome.diverged_at_step, outcome.suspect_hardware) == ("diverged", 11, 12)


def test_nothing_is_checked_at_each_step_while_nothing_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    """The losses leave the device at evaluations alone."""
    looked = []
    honest = Training.finite_losses
    monkeypatch.setattr(Training, "finite_losses", lambda self: (looked.append(self.step), honest(self))[1])
    train(tiny(), Memory(), checkpoint_seconds=1000)
    assert looked == [10, 20]


def test_attempt_comes_back_to_its_own_checkpoint(tmp_path: Path) -> None:
    """Metrics after it are dropped, later lines follow, and env.json is unchanged."""
    with synthetic.claimed(store.trial(tmp_path, "0123456789ab")) as attempt:
        attempt.write_env({"code": "a"})
        for step in (10, 20, 30):
            attempt.log({"step": step})
            attempt.save_checkpoint(step - 1, b"state %d" % step)
        attempt.save_checkpoint(29, b"state 30, suspected")
        assert attempt.checkpoint() == b"state 30, suspected"
        attempt.log({"step": 31})
        assert [line.step for line in store.read_metrics(attempt.path)] == [10, 20, 31]
        assert store.read_json(attempt.path / "env.json") == {"code": "a"}


def test_table_names_the_trial_and_the_machine_of_a_fault() -> None:
    suspect = synthetic.changed(synthetic.finished(0.7, seed=3), suspect_hardware=120.0, host="node7")
    row = synthetic.row_of_arm(synthetic.table_with_holes({("position=none", 3): suspect}), "position=none")
    assert row.n == 5
    assert row.notes == [
        "seed 3 finished: loss was NaN at step 120 but finite when recomputed: suspect hardware (node7)"
    ]
    assert np.isnan(synthetic.results(synthetic.position()).trials["suspect_hardware"]).all()
