"""Trials that scancel ends stay cancelled until `ablate submit`; after preemption, limits and kills they go on."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_study import CANCEL, PROFILE, SUBMIT, Ablate, logs, results, run_on, write
from waits import await_empty_queue, await_report, await_results, queued

from slurm.devcluster import Cluster, Settings, until
from slurm.queries.queue import is_cancelled

STATUS = ("status", "s", "--recipe", "r.yaml")
AFTER_SECONDS = 15.0  # far more than a dying share needs to hand over a last job


@pytest.fixture(params=[True, False], ids=["accounting", "no accounting"])
def any_cluster(request: pytest.FixtureRequest, folder: Path) -> Iterator[Cluster]:
    """Yield the session's cluster, or one without accounting."""
    if request.param:
        yield request.getfixturevalue("cluster")
    else:
        with Cluster(folder, Settings(accounting=False)) as running:
            yield running


def test_all_jobs_of_a_submission_stay_cancelled(tmp_path: Path, any_cluster: Cluster) -> None:
    """Cancelled shares submit no last job; `status` shows it, and `submit` continues."""
    write(tmp_path, steps=4000, profile=PROFILE.replace("}", ", parallel: 1}").replace("0.2", "0.001"), seeds=1)
    run_on(any_cluster, tmp_path, *SUBMIT)
    runs = tmp_path / "runs"
    until(lambda: any(runs.glob("trials/*/attempts/0001/metrics.jsonl")), "a training", 120)
    any_cluster.run("scancel", *{*queued(any_cluster, "%F")})
    await_empty_queue(any_cluster)
    arrays = len(list(runs.glob("submissions/*/arrays/*")))
    until(lambda: "cancelled by scancel" in logs(runs), "the share's word", 60)
    time.sleep(AFTER_SECONDS)
    assert not queued(any_cluster)
    assert len(list(runs.glob("submissions/*/arrays/*"))) == arrays
    shown = " ".join(run_on(any_cluster, tmp_path, *STATUS).stdout.split())
    assert ("CANCELLED" if any_cluster.settings.accounting else "CANCELLED by scancel") in shown
    assert "to continue: give the same `ablate submit` again" in shown
    assert "2 submitted" in run_on(any_cluster, tmp_path, *SUBMIT).stdout
    run_on(any_cluster, tmp_path, *CANCEL)


def test_one_cancelled_task_is_left_out_by_the_last_job(tmp_path: Path, ablate: Ablate, cluster: Cluster) -> None:
    """The other trial finishes, tables and report are written, and `submit` continues the cancelled trial."""
    write(tmp_path, steps=1500, profile=PROFILE.replace("}", ", parallel: 1}").replace("0.2", "0.001"), seeds=1)
    ablate(*SUBMIT)
    runs = tmp_path / "runs"
    until(lambda: any(runs.glob("trials/*/attempts/0001/metrics.jsonl")), f"a training (logs: {logs(runs)})", 120)
    (running,) = [line.split()[0] for line in queued(cluster) if line.endswith("_0 RUNNING")]
    cluster.run("scancel", running)
    await_report(runs)
    await_empty_queue(cluster)
    assert len(results(runs)) == 1
    view = json.loads(ablate(*STATUS, "--json").stdout)
    assert (view["finished"], view["interrupted"]) == (1, 1)
    assert "1 submitted" in ablate(*SUBMIT).stdout
    await_results(runs, 2)


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
    assert is_cancelled(COMPLETING | fields, "0") is cancelled
