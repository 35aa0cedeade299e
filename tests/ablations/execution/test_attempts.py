"""Attempts on disk: whether they allow a trial another one, on any machine."""

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


def end(trial: store.Trial, how: str, step: int | None = 0, code: str = CODE, where: str = "a", saves: int = 0) -> None:
    """Make an attempt that began at `step` (None: never), saved a checkpoint at `saves` unless 0, and ended."""
    attempt = store.claim(trial, lease.Watch())
    origin = {} if step is None else {"resumed_from": {"attempt": "0001", "step": step}}
    attempt.write_env({"code": code, **origin})
    if saves:
        attempt.save_checkpoint(saves, b"state %d" % saves)
    if how in ("bug", "machine"):
        attempt.fail(how, "", code, kind=how, where=[where], again=True)
    attempt.release()
    if how == "killed":
        (attempt.path / lease.RELEASED).rename(attempt.path / lease.NAME)
        store.write_json(attempt.path / lease.NAME, lease.own_lease().content() | {"started": "0"})


def chances(trial: store.Trial, code: str = CODE) -> str:
    """Return why there is no further attempt; "" if there is one."""
    with synthetic.claimed(trial) as current:
        return attempts.no_progress_reason(trial, attempts.earlier_failures(trial, current.path, code))


def test_three_killed_without_progress_are_enough(trial: store.Trial) -> None:
    """Two are not; the message names the last cause. An attempt without env.json counts too."""
    end(trial, "killed")
    end(trial, "machine")
    assert chances(trial) == ""
    end(trial, "killed")
    (trial.attempts()[-1] / "env.json").unlink()
    assert chances(trial) == f"3 attempts without progress: the last was {attempts.KILLED}"


def test_other_code_and_retry_start_anew(trial: store.Trial) -> None:
    for _ in range(3):
        end(trial, "killed", code="4567")
    assert chances(trial, "4567")
    assert chances(trial) == ""
    assert trial.reopen(lease.Watch(), None)
    assert chances(trial, "4567") == ""


PROGRESS = [("killed", step, step + 10) for step in (0, 10, 20, 30, 40)]
STARTLESS = [("killed", 0, 50), ("killed", None, 0), ("killed", None, 0)]


@pytest.mark.parametrize(
    ("ends", "goes_on"),
    [
        (PROGRESS, True),
        ([("stopped", 0, 0)] * 5, True),  # preemption, Ctrl-C and time limits are no faults
        (STARTLESS, True),
        ([*STARTLESS, ("killed", None, 0)], False),
    ],
)
def test_attempts_killed_without_progress_count(
    trial: store.Trial, ends: list[tuple[str, int | None, int]], goes_on: bool
) -> None:
    """An attempt that was killed before it read a checkpoint counts too."""
    for how, step, saves in ends:
        end(trial, how, step, saves=saves)
    assert (chances(trial) == "") is goes_on


def test_checkpoint_that_is_damaged_is_no_progress(trial: store.Trial) -> None:
    end(trial, "killed", saves=40)
    end(trial, "killed", 40, saves=50)
    newest = trial.checkpoints()[0]
    newest.write_bytes(newest.read_bytes()[:-1])
    for _ in range(2):
        end(trial, "killed", 40)
    assert chances(trial) != ""


@pytest.mark.parametrize("saves", [0, 30])
def test_where_an_attempt_began_is_written_once_decided(trial: store.Trial, saves: int) -> None:
    """Step 0 is written too: without a step, the attempt never began."""
    end(trial, "stopped", saves=saves)
    with synthetic.claimed(trial) as attempt:
        assert "resumed_from" not in attempt.env
        attempt.checkpoint()
        assert store.read_json(attempt.path / "env.json")["resumed_from"]["step"] == saves


def test_attempts_are_ordered_by_number(trial: store.Trial) -> None:
    for name in ("9999", "10000"):
        store.write_json(trial.path / "attempts" / name / lease.RELEASED, {})
        store.write_json(trial.path / "attempts" / name / "failure.json", {"kind": "machine", "cause": "a"})
    assert [path.name for path in trial.attempts()] == ["9999", "10000"]
    with synthetic.claimed(trial) as attempt:
        assert attempt.path.name == "10001"
        assert len(attempts.earlier_failures(trial, attempt.path, CODE)) == 2


@pytest.mark.parametrize(
    ("before", "now", "again"), [([], "a", True), (["a"], "a", False), (["a"], "b", True), (["a", "b"], "c", False)]
)
def test_a_traceback_twice_or_three_errors_end_it(trial: store.Trial, before: list[str], now: str, again: bool) -> None:
    for where in before:
        end(trial, "bug", where=where)
    past = attempts.earlier_failures(trial, trial.path / "attempts/9999", CODE)
    assert attempts.may_retry_exception(past, [now]) is again


def test_trial_between_two_attempts_is_interrupted_not_failed(trial: store.Trial) -> None:
    end(trial, "bug")
    state = trial.state()
    assert (state.status, state.reason) == ("interrupted", "interrupted: bug")
    with synthetic.claimed(trial) as attempt:
        attempt.fail("bug", "", CODE, kind="bug", where=["a"], again=False)
    assert trial.state().status == "failed"


def test_the_machines_faults_are_given_time_to_pass() -> None:
    """Each pause is five times the previous one, up to a limit; bugs and kills add none."""
    others = [attempts.EndedAttempt(False, "bug", 0), attempts.EndedAttempt(True, attempts.KILLED, 0)]
    faults = [attempts.EndedAttempt(True, "ECC", 0)] * 5
    pauses = [attempts.retry_delay(others + faults[:count]) for count in range(6)]
    assert pauses == [attempts.PAUSE_SECONDS * times for times in (0, 1, 5, 25, 30, 30)]
