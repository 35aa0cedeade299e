"""Submitting a study to a real SLURM: every trial is trained exactly once, despite kills and limits."""

import json
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from disturbance import processes
from small_study import PROFILE, SUBMIT, Ablate, Wrap, launch, published, results, run_here, trials, write
from waits import await_empty_queue, await_report, await_results, queued

from ablations.cluster import array_tasks
from ablations.cluster import campaign as campaigns
from results import store
from slurm.devcluster import Cluster, until


@pytest.fixture(autouse=True)
def study(tmp_path: Path) -> None:
    """A small study of ten trials."""
    write(tmp_path)


def test_submitted_study_ends_with_its_report(tmp_path: Path, ablate: Ablate) -> None:
    """One submit leads to results equal to a local run's, tables and a report; a second submit adds nothing."""
    said = ablate(*SUBMIT).stdout
    assert "10 submitted" in said
    assert "0 submitted in 0 arrays" in ablate(*SUBMIT).stdout
    runs = tmp_path / "runs"
    await_results(runs, 10)
    await_report(runs)
    assert (runs / "studies/s@r/tables/table.md").read_text().count("position=") > 1
    assert results(runs) == run_here(tmp_path)
    assert all(len(store.Trial(path).attempts()) == 1 for path in (runs / "trials").iterdir())
    assert "10 done, 0 already queued, 0 submitted" in ablate(*SUBMIT).stdout


def test_some_arms_are_submitted_first_and_the_rest_later(tmp_path: Path, ablate: Ablate) -> None:
    some = (*SUBMIT, "--arm", "position=none")
    assert "5 submitted" in ablate(*some).stdout
    assert "0 submitted" in ablate(*some).stdout
    runs = tmp_path / "runs"
    await_results(runs, 5)
    await_report(runs)
    assert len(trials(runs)) == 5
    assert "5 done, 0 already queued, 5 submitted" in ablate(*SUBMIT).stdout
    await_results(runs, 10)
    assert published(runs) == [1] * 10


def test_few_slots_are_enough(tmp_path: Path, ablate: Ablate, cluster: Cluster) -> None:
    cluster.limit_submissions(5)
    ablate(*SUBMIT)
    most = 0
    deadline = time.monotonic() + 240
    while len(results(tmp_path / "runs")) < 10 and time.monotonic() < deadline:
        most = max(most, len(queued(cluster, "%i", "--array")))
        time.sleep(0.5)
    assert len(results(tmp_path / "runs")) == 10
    assert most <= 5


def test_too_few_slots_are_said(ablate: Ablate, cluster: Cluster) -> None:
    """A limit of two jobs has room for last jobs only: the error is one line, and nothing is submitted."""
    cluster.limit_submissions(2)
    done = ablate(*SUBMIT, check=False)
    assert done.returncode == 2
    assert "MaxSubmitJobs of account lab is 2: a submission needs at least 3 jobs at once" in done.stderr
    assert not queued(cluster)


def test_killed_workers_tasks_and_launchers_lose_nothing(tmp_path: Path, ablate: Ablate, cluster: Cluster) -> None:
    """After SIGKILLs of all running processes, slurmctld too, ten results equal those of an undisturbed run."""
    write(tmp_path, steps=2000)
    ablate(*SUBMIT)
    runs, choose, kills = tmp_path / "runs", random.Random(0), 0
    deadline = time.monotonic() + 300
    while len(results(runs)) < 10 and time.monotonic() < deadline:
        time.sleep(choose.uniform(2, 5))
        if kills == 4:
            cluster.restart("slurmctld")
            kills += 1
        elif kills < 10 and (victims := processes(runs)):
            with suppress(ProcessLookupError):
                os.kill(choose.choice(victims).pid, signal.SIGKILL)
            kills += 1
        if not queued(cluster):
            ablate(*SUBMIT)
    await_results(runs, 10)
    assert kills >= 5
    assert results(runs) == run_here(tmp_path)


def test_preempted_and_time_limited_trials_continue(tmp_path: Path, ablate: Ablate, cluster: Cluster) -> None:
    """After a time limit of a minute, and preemption, the trials resume from their checkpoints and finish."""
    write(tmp_path, steps=1500, profile=PROFILE.replace("time: 5", "time: 1"))
    ablate(*SUBMIT)
    until(lambda: any((tmp_path / "runs/trials").glob("*/attempts/0001/log")), "a running trial", 90)
    urgent = cluster.sbatch("--partition=urgent", "--exclusive", "--wrap", "sleep 3")
    until(lambda: cluster.state(urgent) in ("COMPLETED", ""), "the urgent job", 90)
    await_results(tmp_path / "runs", 10, 300)


def test_launchers_at_once_submit_once(tmp_path: Path, ablate: Ablate, here: Cluster) -> None:
    """Three launchers start together, and one is killed: no share is submitted twice."""
    started = [launch(here, tmp_path, *SUBMIT) for _ in range(3)]
    time.sleep(4)
    started[0].kill()
    for launcher in started:
        launcher.communicate(timeout=120)
    ablate(*SUBMIT)
    intents = [json.loads(file.read_text()) for file in tmp_path.glob("runs/submissions/*/arrays/*/intent.json")]
    shares = [key for intent in intents for share in intent["shares"] for key in share]
    assert len(shares) == len(set(shares)) == 10
    lasts = [task.function for task in array_tasks.queued_tasks(tmp_path / "runs") if task.is_last]
    assert len(lasts) == len(set(lasts))  # the last job, and the watching job


def test_task_asks_slurm_once(tmp_path: Path, ablate: Ablate, cluster: Cluster, wrap: Wrap) -> None:
    """Each of four consecutive tasks calls squeue once; the two last jobs call little more, as for-admins.md says."""
    calls = tmp_path / "calls"
    calls.mkdir()
    for name in ("sbatch", "squeue", "scontrol", "scancel", "sacct", "sacctmgr", "sinfo"):
        wrap(name, f"echo {name} >> {calls}/${{ABLATE_JOB_BEGAN:-outside}}; REAL")
    profile = PROFILE.replace("}", ", parallel: 1}").replace("0.2", "0.001")
    write(tmp_path, steps=20, profile=profile, seeds=2)
    ablate(*SUBMIT)
    runs = tmp_path / "runs"
    await_report(runs, 400)
    await_empty_queue(cluster)
    assert len(results(runs)) == 4
    asked = {path.name: Counter(path.read_text().split()) for path in calls.iterdir()}
    submitting, tasks = asked.pop("outside"), sorted(asked.values(), key=Counter.total)
    print("submit:", dict(submitting), "jobs:", [dict(task) for task in tasks])
    assert tasks[:3] == [{"squeue": 1}] * 3
    (campaign,) = campaigns.campaigns(runs)
    functions = [intent.function for _, intent in campaigns.read_intents(campaign.folder)]
    assert Counter(functions) == Counter([campaigns.SHARE, campaigns.LAST, campaigns.WATCH])
    assert len(tasks) == 5
    assert tasks[-1].total() <= 10
    assert submitting["sbatch"] == 3
