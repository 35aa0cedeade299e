"""`ablate status` on a real SLURM, where unknown is unknown, and trials that scancel ended until `ablate submit`."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from devcluster import Cluster, Settings, wait_until
from disturbance import processes
from in_process import called
from small_study import CANCEL, STATUS, STUDY, SUBMIT, Ablate, Wrap, run_on, with_keys, write
from waits import await_empty_queue, await_report, await_training, close, logs, queued

from ablations.execution.reopen import advice
from ablations.faults import BUG
from ablations.status import slurm_answers
from slurm.queue import shows_scancel

BROKEN = """
import torch

from vitcore.model.position import POSITION, Learned1D

class Broken(Learned1D):
    def tokens(self, x, layer, grid):
        if torch.is_grad_enabled() and not x.is_meta:  # in training, and not while its cost is counted
            raise ZeroDivisionError("division by zero")
        return x

POSITION["broken"] = Broken
"""
ANSWER_SECONDS = 30  # 15 are promised; twice that on a machine that is busy with other tests


@pytest.fixture(autouse=True)
def study(tmp_path: Path) -> None:
    """A study of six trials, two at a time."""
    write(tmp_path, 20_000, with_keys("parallel: 2"), seeds=3)


def viewed(ablate: Ablate) -> dict[str, Any]:
    view: dict[str, Any] = json.loads(ablate("status", "--json").stdout)
    return view


def counts(view: dict[str, Any]) -> dict[str, int]:
    kinds = ("finished", "diverged", "running", "queued", "unknown", "interrupted", "failed", "missing")
    return {kind: view[kind] for kind in kinds if view[kind]}


def task_at_work(runs: Path) -> int:
    """Return the id of a task that has a worker. A killed task's worker lives a little longer."""
    found = processes(runs)
    tasks = {process.pid for process in found if process.name == "task"}
    return next(process.parent for process in found if process.name == "worker" and process.parent in tasks)


def test_running_queued_and_ended_trials_are_told_apart(tmp_path: Path, ablate: Ablate, cluster: Cluster) -> None:
    ablate(*SUBMIT)
    wait_until(lambda: len([*tmp_path.glob("runs/trials/*/attempts/*/metrics.jsonl")]) == 2, "two running trials", 120)
    close(cluster)
    os.kill(task_at_work(tmp_path / "runs"), signal.SIGKILL)
    wait_until(lambda: counts(viewed(ablate)) == {"running": 1, "queued": 5}, "the end of a task", 60)
    view = viewed(ablate)
    (running,) = (one for arm in view["arms"] for one in arm["now_running"])
    assert 0 < running["step"] < running["steps"] == 20_000
    assert 0 <= running["accuracy"] <= 1
    shown = ablate("status").stdout
    assert "queued    5 trials: waiting in a running job" in shown
    assert "\x1b" not in shown  # no colours off a terminal
    os.kill(task_at_work(tmp_path / "runs"), signal.SIGKILL)
    wait_until(lambda: [arm["ended"] for arm in viewed(ablate)["arms"] if arm["ended"]], "its accounting", 60)
    assert counts(viewed(ablate)) == {"interrupted": 2, "missing": 4}
    ended = [one for arm in viewed(ablate)["arms"] for one in arm["ended"]]
    assert len(ended) == 6
    assert all(one["followed"] and "FAILED on node" in one["job"] for one in ended)
    shown = ablate("status").stdout
    assert "ended     6 trials: FAILED on node" in shown
    assert "the submission's last job resubmits these" in shown
    ablate("cancel", "s@r")
    await_empty_queue(cluster)
    assert "2 submitted" in ablate(*SUBMIT).stdout


def test_trials_whose_waiting_jobs_were_cancelled_say_by_whom(ablate: Ablate, closed: Cluster) -> None:
    """After scancel or `ablate cancel` the trials are missing, and the accounting or the disk says why."""
    ablate(*SUBMIT)
    assert counts(viewed(ablate)) == {"queued": 6}
    closed.clear()
    wait_until(lambda: "CANCELLED by 0" in ablate("status").stdout, "the accounting", 30)
    assert counts(viewed(ablate)) == {"missing": 6}
    assert "the same `ablate submit` again" in ablate("status").stdout
    ablate(*SUBMIT)
    ablate("cancel", "s@r")
    wait_until(lambda: counts(viewed(ablate)) == {"missing": 6}, "an empty queue", 30)
    assert "6 trials: cancelled by `ablate cancel`" in ablate("status").stdout
    assert "2 submitted" in ablate(*SUBMIT).stdout


def test_failures_are_grouped_by_cause_with_the_command_that_helps(ablate: Ablate, tmp_path: Path) -> None:
    """Three equal failures of an arm are one cause with its seeds and commands; `logs` has the traceback."""
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "ablate.toml").write_text('plugins = ["broken.py"]')
    write(tmp_path, 100, seeds=3)
    (tmp_path / "s.yaml").write_text(STUDY.replace("none", "broken"))
    ablate(*SUBMIT)
    wait_until(lambda: counts(viewed(ablate)) == {"finished": 3, "failed": 3}, "the end of six trials", 180)
    shown = ablate("status").stdout
    assert "failed    3 trials: ZeroDivisionError: division by zero" in shown
    assert "position=broken seeds 0, 1, 2" in shown
    assert " ".join(shown.split()).count(advice(BUG, "s@r")) == 1
    assert ablate("logs", "s@r", "--failed").stdout.count("ZeroDivisionError: division by zero") == 3
    assert "3 trials may be run again" in ablate("retry", "s@r").stdout


def viewed_in_time(ablate: Ablate) -> dict[str, Any]:
    began = time.monotonic()
    view = viewed(ablate)
    assert time.monotonic() - began < ANSWER_SECONDS
    return view


def test_with_slurmdbd_frozen_or_dead_the_accounting_is_unknown(ablate: Ablate, closed: Cluster) -> None:
    ablate(*SUBMIT)
    closed.freeze("slurmdbd")
    view = viewed_in_time(ablate)
    assert (counts(view), view["accounting"]) == ({"queued": 6}, "")
    closed.clear()
    for _ in ("frozen", "killed"):
        view = viewed_in_time(ablate)
        assert (counts(view), view["slurm"]) == ({"missing": 6}, "")
        assert view["accounting"] == "accounting unknown: sacct does not answer"
        closed.kill("slurmdbd")


def test_with_slurmctld_frozen_or_dead_submitted_trials_are_unknown(ablate: Ablate, closed: Cluster) -> None:
    """Submitted trials are neither queued nor missing but unknown, with the time since when."""
    ablate(*SUBMIT)
    closed.freeze("slurmctld")
    for _ in ("frozen", "killed"):
        view = viewed_in_time(ablate)
        assert counts(view) == {"unknown": 6}
        assert "SLURM does not answer" in view["slurm"]
        assert "what is queued is unknown (since " in view["slurm"]
        closed.kill("slurmctld")


def test_without_slurm_the_disk_is_shown(
    tmp_path: Path, ablate: Ablate, closed: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 20, seeds=3)
    ablate(*SUBMIT)
    closed.clear()
    ablate("run", "s.yaml", "--recipe", "r.yaml", "--arm", "position=1d")
    monkeypatch.setenv("PATH", "/nowhere")
    view = json.loads(called(monkeypatch, "status", "--json", "--runs", str(tmp_path / "runs"))[1])
    assert counts(view) == {"finished": 3, "unknown": 3}
    assert view["slurm"].startswith("no SLURM on this machine: what is queued is unknown")


def test_a_minute_later_slurm_is_asked_again(tmp_path: Path) -> None:
    clock = [0.0]
    asker = slurm_answers.RateLimitedAsker(tmp_path, clock=lambda: clock[0])
    first = asker()
    for now, again in ((59.9, False), (60.0, True), (119.9, False), (120.0, True)):
        clock[0] = now
        second = asker()
        assert (second is not first) == again
        first = second


def test_status_asks_slurm_nothing_where_nothing_was_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrap: Wrap
) -> None:
    for name in ("squeue", "sacct", "scontrol", "sinfo", "sacctmgr", "sbatch"):
        wrap(name, f"touch {tmp_path / 'called'}; REAL")
    monkeypatch.chdir(tmp_path)
    write(tmp_path, 20, seeds=1)
    assert called(monkeypatch, "run", *SUBMIT[1:-2])[0] == 0
    (tmp_path / "called").unlink(missing_ok=True)
    assert counts(json.loads(called(monkeypatch, "status", "--json")[1])) == {"finished": 2}
    assert not (tmp_path / "called").exists()


ONE_AT_A_TIME = with_keys("parallel: 1").replace("0.2", "0.001")
AFTER_SECONDS = 15.0  # far more than a dying task would need to submit another


@pytest.fixture(params=[True, False], ids=["accounting", "no accounting"])
def any_cluster(request: pytest.FixtureRequest, folder: Path) -> Iterator[Cluster]:
    """Yield the session's cluster, or one without accounting."""
    if request.param:
        yield request.getfixturevalue("cluster")
    else:
        with Cluster(folder, Settings(accounting=False)) as running:
            yield running


def test_all_jobs_of_a_submission_stay_cancelled(tmp_path: Path, any_cluster: Cluster) -> None:
    """Nothing is submitted after scancel of all; `status` shows it, and `submit` continues."""
    write(tmp_path, steps=4000, profile=ONE_AT_A_TIME, seeds=1)
    run_on(any_cluster, tmp_path, *SUBMIT)
    runs = tmp_path / "runs"
    await_training(runs)
    any_cluster.run("scancel", *{*queued(any_cluster, "%F")})
    await_empty_queue(any_cluster)
    arrays = len(list(runs.glob("submissions/*/arrays/*")))
    wait_until(lambda: "cancelled by scancel" in logs(runs), "the task's word", 60)
    time.sleep(AFTER_SECONDS)
    assert not queued(any_cluster)
    assert len(list(runs.glob("submissions/*/arrays/*"))) == arrays
    shown = " ".join(run_on(any_cluster, tmp_path, *STATUS).stdout.split())
    assert "CANCELLED by scancel" in shown
    assert "to continue: give the same `ablate submit` again" in shown
    assert "1 submitted" in run_on(any_cluster, tmp_path, *SUBMIT).stdout
    run_on(any_cluster, tmp_path, *CANCEL)


def test_last_job_submits_nothing_after_scancel_of_the_tasks(tmp_path: Path, ablate: Ablate, cluster: Cluster) -> None:
    """It writes tables and report, and `submit` continues."""
    write(tmp_path, steps=4000, profile=ONE_AT_A_TIME, seeds=1)
    ablate(*SUBMIT)
    runs = tmp_path / "runs"
    await_training(runs)
    (running,) = [line.split()[0] for line in queued(cluster) if line.endswith(" RUNNING")]
    cluster.run("scancel", running)
    await_report(runs)
    await_empty_queue(cluster)
    assert len(list(runs.glob("submissions/*/arrays/*"))) == 3
    assert "1 submitted" in ablate(*SUBMIT).stdout


COMPLETING = {"JobState": "COMPLETING", "Reason": "None", "Restarts": "0"}


@pytest.mark.parametrize(
    ("fields", "cancelled"),
    [
        ({"PreemptTime": "None"}, True),
        ({"JobState": "CANCELLED"}, True),
        ({"PreemptTime": "2026-11-23T08:46:35"}, False),  # preempted, PreemptMode=CANCEL
        ({"Restarts": "1"}, False),  # preempted, PreemptMode=REQUEUE; scontrol requeue
        ({"Reason": "TimeLimit", "PreemptTime": "None"}, False),
        ({"JobState": "PENDING", "Restarts": "1"}, False),  # of a node that is down
        ({"JobState": "RUNNING", "PreemptTime": "None"}, False),  # scancel --signal
    ],
)
def test_only_scancel_cancels(fields: dict[str, str], cancelled: bool) -> None:
    """The fields that slurmctld 22.05 shows for a dying job tell scancel from other causes."""
    assert shows_scancel(COMPLETING | fields, "0") is cancelled
