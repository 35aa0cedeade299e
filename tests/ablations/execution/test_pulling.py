"""Pools that pull: each takes the next unclaimed trial, and no trial is trained twice."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import synthetic
from closed_form import HELPERS, loss
from designs import ONE_STAGE, staged_plan
from devcluster import wait_until
from in_process import Ablate, called, refusal
from run_trials import Quiet, planned_curves, workers_of
from small_study import command, trials
from waits import published

from ablations import machine
from ablations.execution import pool, runner
from ablations.execution.launch import Place
from ablations.execution.messages import Ended, Ready
from ablations.execution.pool import Pool, RunSummary, Slot
from ablations.jobs import Job, jobs
from results import store
from results.store import lease


@pytest.fixture(autouse=True)
def helpers_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers find the closed form."""
    monkeypatch.setenv("PYTHONPATH", HELPERS)


def start(folder: Path, *options: str) -> "subprocess.Popen[str]":
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command("work", "runs", "--jobs", "1", *options), cwd=folder, **pipes)


def attempts(runs: Path) -> list[int]:
    return [len(trial.attempts()) for trial in trials(runs)]


def test_two_pools_train_each_trial_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The later of the two writes the tables; a third has nothing to do and does not start a worker."""
    runs, todo = planned_curves(tmp_path)
    pools = [start(tmp_path), start(tmp_path)]
    said = [process.communicate(timeout=120)[0] for process in pools]
    assert [process.returncode for process in pools] == [0, 0], said
    assert attempts(runs) == published(runs) == [1] * len(todo)
    assert sum(len([line for line in text.splitlines() if " finished" in line]) for text in said) == len(todo)
    assert (runs / "studies/s@r/tables/table.md").exists()
    monkeypatch.chdir(tmp_path)
    assert "0 trials done here, 0 failed, 0 left" in called(monkeypatch, "work", "runs")[1]


@pytest.mark.slow
def test_killed_pools_lose_nothing(tmp_path: Path) -> None:
    """SIGKILL of a pool while two race, and SIGUSR2 of the next: the results equal an undisturbed run's."""
    runs, todo = planned_curves(tmp_path, steps=100, pause=0.02)
    killed, other = start(tmp_path), start(tmp_path)
    wait_until(lambda: len([*runs.glob("trials/*/attempts/*/checkpoints/*")]) >= 2, "checkpoints", 60, every=0.05)
    killed.kill()
    killed.communicate()
    warned = start(tmp_path)
    wait_until(lambda: workers_of(warned.pid), "its worker", 60)
    wait_until(lambda: sum(attempts(runs)) >= 3, "a third attempt", 60)
    warned.send_signal(signal.SIGUSR2)
    last = start(tmp_path)
    said = [process.communicate(timeout=200)[0] for process in (warned, other, last)]
    assert [process.returncode for process in (warned, other, last)] == [130, 0, 0], said
    again = start(tmp_path)  # for what `warned` left when the others had already ended
    assert "0 left" in again.communicate(timeout=200)[0]
    for job in todo:
        state = store.trial(runs, job.id).state()
        assert state.result.metrics == {"loss": loss(job.config, 100)}
        assert [line.step for line in store.read_metrics(state.attempt)] == list(range(1, 101))
    assert published(runs) == [1] * len(todo)


def test_a_pool_takes_no_trial_when_its_time_is_nearly_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with the status of an interrupted run, and leaves everything as it was."""
    runs, todo = planned_curves(tmp_path)
    monkeypatch.chdir(tmp_path)
    status, _, errors = called(monkeypatch, "work", "runs", "--minutes", "0.1")
    assert f"interrupted: 0 trials done, {len(todo)} left" in errors
    assert status == 130
    assert not (runs / "trials").exists()


def test_work_names_what_it_lacks(tmp_path: Path, ablate: Ablate) -> None:
    """A run directory without plans; a plan with a plug-in, as its trials would all fail."""
    assert "no study is planned there: ablate run STUDY" in refusal(ablate, "work", "nothing")
    plan = synthetic.position() | {"asked": {"study": "s", "recipe": "r", "plugins": ["/parts/mine.py"]}}
    synthetic.write(tmp_path / "made", plan)
    assert "was planned with a plug-in: --plugin /parts/mine.py" in refusal(ablate, "work", str(tmp_path / "made"))


def pulling(folder: Path, some: list[Job]) -> Pool:
    slot = Slot(0, {})
    return Pool(some, Place(folder / "runs", None), [slot], Quiet(), lambda job: None, RunSummary(), pulls=True)


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[tuple[list[Job], store.Attempt]]:
    """Yield the jobs of a parent and its children, and the parent's attempt, which a living process holds."""
    some = jobs([staged_plan(tmp_path, ONE_STAGE)])
    with synthetic.claimed(store.trial(tmp_path / "runs", some[0].id)) as attempt:
        yield some, attempt


def test_a_pool_without_work_waits_ten_minutes_for_a_parent(
    tmp_path: Path, staged: tuple[list[Job], store.Attempt], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the children if the parent finishes by then, and starts no worker before."""
    some, attempt = staged
    family = [job for job in some if job.id == some[0].id or some[0].id in job.parents]
    made = pulling(tmp_path, family)
    made.tick()
    assert made.has_work
    assert not made.workers
    monkeypatch.setattr(pool, "PATIENCE_SECONDS", -1.0)
    assert not made.has_work
    monkeypatch.undo()
    attempt.save_weights(b"")
    attempt.publish({"status": "finished", "metrics": {}})
    made.look_again()
    assert next(made.ready_trials(time.monotonic())).job in family[1:]


def test_a_pool_leaves_trials_that_others_hold(tmp_path: Path, staged: tuple[list[Job], store.Attempt]) -> None:
    """It ends at once if there are no others. A trial whose holder has died is taken."""
    some, attempt = staged
    made = pulling(tmp_path, some[:1])
    made.tick()
    assert not made.has_work
    assert not made.workers
    attempt.release()
    gone = subprocess.Popen(["true"])
    gone.wait()
    held = lease.own_lease().content() | {"pid": gone.pid, "nonce": ""}
    (attempt.path / lease.RELEASED).unlink()
    (attempt.path / lease.NAME).write_text(json.dumps(held))
    made = pulling(tmp_path, some[:1])
    assert next(made.ready_trials(0.0)).job == some[0]


def test_a_failure_elsewhere_is_not_this_pools(tmp_path: Path, staged: tuple[list[Job], store.Attempt]) -> None:
    some, attempt = staged
    attempt.fail("RuntimeError: no such thing", "Traceback", Place(tmp_path, None).code)
    attempt.release()
    made = pulling(tmp_path, some[:1])
    made.tick()
    assert not made.has_work
    assert made.summary == RunSummary()


def test_a_pool_leaves_trials_that_its_node_broke_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third fault there would end the trial for good. After two such trials the pool takes no other."""
    some = [Job(f"{number:012x}", {"seed": 0, "device": "cpu"}, "a", "s") for number in range(3)]
    code = Place(tmp_path / "runs", None).code
    for _ in range(2):
        with synthetic.claimed(store.trial(tmp_path / "runs", some[0].id)) as attempt:
            attempt.write_env({"schema": 1, "node": "node1", "code": code})
            attempt.fail("RuntimeError: ECC", "", code, kind="machine", again=True)
    for node, taken in (("node1", some[1]), ("node2", some[0]), ("", some[0])):
        monkeypatch.setenv("SLURMD_NODENAME", node)
        made = pulling(tmp_path, some)
        assert next(made.ready_trials(time.monotonic())).job == taken
    for trial in [*made.trials.values()][:2]:
        assert next(made.ready_trials(time.monotonic()), None) is not None
        made.settle(trial, Ended("interrupted", "RuntimeError: ECC, twice on node1: it goes on elsewhere"))
    assert next(made.ready_trials(time.monotonic()), None) is None
    assert not made.has_work


def test_pools_begin_at_different_trials_seed_by_seed(tmp_path: Path) -> None:
    some = [Job(f"{number:012x}", {"seed": number % 50, "device": "cpu"}, "a", "s") for number in range(500)]
    orders = [runner.pull_order(some, f"node{number}:7") for number in range(20)]
    assert len({order[0].id for order in orders}) > 8
    for order in orders:
        assert sorted(job.id for job in order) == [job.id for job in some]
        assert {job.config["seed"] for job in order[: runner.SPREAD]} <= set(range(4))
        later = [job.config["seed"] for job in order[runner.SPREAD :]]
        assert later == sorted(later)


@pytest.mark.parametrize(("end", "seconds"), [("", None), ("0", None), ("soon", None), ("100", 100)])
def test_a_job_ends_when_slurm_says(monkeypatch: pytest.MonkeyPatch, end: str, seconds: int | None) -> None:
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 100) if end == "100" else end)
    left = machine.seconds_left()
    assert left == float("inf") if seconds is None else left == pytest.approx(seconds, abs=3)
    assert machine.stop_time(left) - time.monotonic() == pytest.approx(left - 10, abs=3) or seconds is None


@pytest.mark.parametrize("is_won", [True, False])
def test_a_lost_claim_is_left_to_its_winner(
    tmp_path: Path, staged: tuple[list[Job], store.Attempt], is_won: bool
) -> None:
    """Without one, the holder may be dead: a claim must watch its lease for a minute, so the pool tries again."""
    some, attempt = staged
    attempt.release()
    made = pulling(tmp_path, some[:1])
    made.start = lambda slot: type("Worker", (), {"send": lambda self, job: None, "close": lambda self: None})()
    made.tick()
    made.handle(made.slots[0].worker, Ready())
    made.tick()
    assert made.slots[0].trial.job == some[0]
    winner = synthetic.claimed(store.trial(tmp_path / "runs", some[0].id)) if is_won else nullcontext()
    with winner:
        made.handle(made.slots[0].worker, Ended("held"))
        assert made.has_work != is_won
