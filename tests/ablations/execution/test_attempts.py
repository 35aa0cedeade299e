"""Attempts: what those on disk leave of a trial's chances, whoever looks, and from wherever."""

from pathlib import Path

import pytest
import synthetic

from ablations.execution import attempts
from results import store
from results.store import lease

CODE = "0123"


@pytest.fixture
def trial(tmp_path: Path) -> store.Trial:
    made = store.trial(tmp_path, "0123456789ab")
    made.create({"config": {}})
    return made


def end(
    trial: store.Trial,
    how: str,
    step: int | None = 0,
    code: str = CODE,
    where: str = "a",
    saves: int = 0,
) -> None:
    """One attempt that began at `step` (None: never), may have saved a checkpoint, and ended in a way."""
    attempt = trial.claim(lease.Watch())
    origin = {} if step is None else {"resumed_from": {"attempt": "0001", "step": step}}
    attempt.write_env({"code": code, **origin})
    if saves:
        attempt.save_checkpoint(saves, b"state %d" % saves)
    if how in ("bug", "machine"):
        attempt.fail(how, "", code, kind=how, where=[where], again=True)
    attempt.release()
    if how == "killed":
        (attempt.path / lease.RELEASED).rename(attempt.path / lease.NAME)
        held = {"host": "gone", "boot": "b", "pid": 1, "started": "1"}
        store.write_json(
            attempt.path / lease.NAME, {**lease.holder().content(), "started": "0"} | ({} if how else held)
        )


def reason(trial: store.Trial, code: str = CODE, before: str = "9999") -> str:
    """Why there is no further attempt, or ""."""
    return attempts.no_progress_reason(trial, attempts.earlier_failures(trial, trial.path / "attempts" / before, code))


def chances(trial: store.Trial, code: str = CODE) -> str:
    """The same as the next attempt would find it, under its claim."""
    with synthetic.claimed(trial) as current:
        return reason(trial, code, current.path.name)


def test_three_killed_without_progress_are_enough(trial: store.Trial) -> None:
    """Two are not; the third is named with its cause."""
    end(trial, "killed")
    end(trial, "machine")
    assert reason(trial) == ""
    end(trial, "killed")
    assert chances(trial) == f"3 attempts without progress: the last was {attempts.KILLED}"


def test_newer_checkpoint_starts_the_count_again(trial: store.Trial) -> None:
    """A trial that is killed for ever but comes further each time goes on."""
    for step in (0, 10, 20, 30, 40):
        end(trial, "killed", step, saves=step + 10)
    assert chances(trial) == ""


def test_attempts_that_stopped_when_told_do_not_count(trial: store.Trial) -> None:
    """Preemption with notice, Ctrl-C and time limits are no faults."""
    for _ in range(5):
        end(trial, "stopped")
    assert chances(trial) == ""


def test_other_code_and_retry_start_anew(trial: store.Trial) -> None:
    """What failed under other code, or before `retry`, says nothing of this."""
    for _ in range(3):
        end(trial, "killed", code="4567")
    assert reason(trial, "4567")
    assert reason(trial) == ""
    assert trial.reopen(lease.Watch(), None)
    assert chances(trial, "4567") == ""


def test_attempt_that_died_before_it_wrote_anything_counts(trial: store.Trial) -> None:
    """No env.json: it certainly made no progress."""
    for _ in range(3):
        end(trial, "killed")
        (trial.attempts()[-1] / "env.json").unlink()
    assert chances(trial) != ""


def test_attempts_killed_before_they_read_a_checkpoint_count(trial: store.Trial) -> None:
    """However far the trial had come before: none of them made progress."""
    end(trial, "killed", saves=50)
    for _ in range(2):
        end(trial, "killed", step=None)
    assert reason(trial) == ""
    end(trial, "killed", step=None)
    assert chances(trial) != ""


def test_checkpoint_that_is_damaged_is_no_progress(trial: store.Trial) -> None:
    """Three attempts that went on from the one before it got nowhere."""
    end(trial, "killed", saves=40)
    end(trial, "killed", 40, saves=50)
    newest = trial.checkpoints()[0]
    newest.write_bytes(newest.read_bytes()[:-1])
    for _ in range(2):
        end(trial, "killed", 40)
    assert chances(trial) != ""


@pytest.mark.parametrize("saves", [0, 30])
def test_where_an_attempt_began_is_written_once_decided(trial: store.Trial, saves: int) -> None:
    """Step 0 too, so that its absence means that it came to nothing."""
    end(trial, "stopped", saves=saves)
    with synthetic.claimed(trial) as attempt:
        assert "resumed_from" not in attempt.env
        attempt.checkpoint()
        assert store.read_json(attempt.path / "env.json")["resumed_from"]["step"] == saves


def test_attempts_are_ordered_by_number(trial: store.Trial) -> None:
    """The ten-thousandth is after the one before it."""
    for name in ("9999", "10000"):
        store.write_json(trial.path / "attempts" / name / lease.RELEASED, {})
        store.write_json(trial.path / "attempts" / name / "failure.json", {"kind": "machine", "cause": "a"})
    assert [path.name for path in trial.attempts()] == ["9999", "10000"]
    with synthetic.claimed(trial) as attempt:
        assert attempt.path.name == "10001"
        assert len(attempts.earlier_failures(trial, attempt.path, CODE)) == 2


@pytest.mark.parametrize(
    ("before", "now", "again"),
    [
        ([], "a", True),
        (["a"], "a", False),
        (["a"], "b", True),
        (["a", "b"], "c", False),
        (["a", "b"], "b", False),
    ],
)
def test_same_traceback_twice_or_three_exceptions_end_it(
    trial: store.Trial, before: list[str], now: str, again: bool
) -> None:
    """One more try for each new exception, three attempts in all."""
    for where in before:
        end(trial, "bug", where=where)
    past = attempts.earlier_failures(trial, trial.path / "attempts/9999", CODE)
    assert attempts.may_retry_exception(past, [now]) is again


def test_trial_between_two_attempts_is_interrupted_not_failed(trial: store.Trial) -> None:
    """A failure that is to be tried again is no end, also where the run was killed before it tried."""
    end(trial, "bug")
    state = trial.state()
    assert (state.status, state.reason) == ("interrupted", "interrupted: bug")
    with synthetic.claimed(trial) as attempt:
        attempt.fail("bug", "", CODE, kind="bug", where=["a"], again=False)
    assert trial.state().status == "failed"


def test_reopened_result_is_moved_aside_under_a_claim(trial: store.Trial) -> None:
    """The old result stays readable in the attempt that moved it, and the trial is to do again."""
    with synthetic.claimed(trial) as attempt:
        attempt.publish({"status": "diverged", "metrics": {}})
    assert trial.claim(lease.Watch()) is None
    assert trial.reopen(lease.Watch(), trial.result())
    assert trial.state().status == "interrupted"
    assert store.read_json(trial.attempts()[-1] / "retried-result.json")["status"] == "diverged"
    with synthetic.claimed(trial):
        assert not trial.reopen(lease.Watch(), None)


def test_result_that_came_meanwhile_is_not_moved_aside(trial: store.Trial) -> None:
    """It was to be run again because it had failed; another run has finished it since."""
    with synthetic.claimed(trial) as attempt:
        attempt.publish({"status": "finished", "metrics": {}})
    assert not trial.reopen(lease.Watch(), None)
    assert trial.state().status == "finished"


def test_the_machines_faults_are_given_time_to_pass() -> None:
    """Each pause is five times the one before, up to a limit; an exception of the code's own, or a kill, needs none."""
    fault, bug, killed = (
        attempts.EndedAttempt(*how, 0) for how in ((True, "ECC"), (False, "bug"), (True, attempts.KILLED))
    )
    first = attempts.PAUSE_SECONDS
    pauses = [attempts.retry_delay([bug, killed, killed] + [fault] * count) / first for count in range(6)]
    assert pauses == [0, 1, 5, 25, 30, 30]
