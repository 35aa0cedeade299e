"""Submitting studies, also of two stages, to a real SLURM: each trial is trained once, despite kills and limits."""

import json
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
import synthetic
from disturbance import processes
from small_study import STATUS, SUBMIT, Ablate, Wrap, launch, results, run_here, trials, with_keys, write
from waits import await_empty_queue, await_report, await_results, published, queued, reopen

from ablations.cluster import array_tasks
from ablations.execution import provenance
from ablations.planning import plan as planning
from ablations.planning.jobs import jobs as jobs_of
from ablations.study.design import Design
from ablations.study.reading import read_recipe, read_study
from results import store
from slurm.devcluster import Cluster

STAGED = """
question: What does pre-training bring?
stages: {pretrain: {steps: 400}}
baseline: {init_from: {stage: pretrain}}
factors: {lr: [2e-3, 1e-3]}
"""


@pytest.fixture(autouse=True)
def study(tmp_path: Path) -> None:
    """A small study of ten trials."""
    write(tmp_path)


@pytest.fixture
def staged(tmp_path: Path) -> None:
    """Write a study of two pre-trainings and four fine-tunings."""
    write(tmp_path, steps=100, seeds=2)
    (tmp_path / "s.yaml").write_text(STAGED)
    (tmp_path / "r.yaml").write_text((tmp_path / "r.yaml").read_text() + "stages: {finetune: {}}\n")


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
    assert all(len(trial.attempts()) == 1 for trial in trials(runs))
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
    deadline = time.monotonic() + 240
    while (over := len(results(tmp_path / "runs"))) < 10 and time.monotonic() < deadline:
        assert len(queued(cluster, "%i", "--array")) <= 5
        time.sleep(0.5)
    assert over == 10


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


def test_launchers_at_once_submit_once(tmp_path: Path, ablate: Ablate, here: Cluster) -> None:
    """Three launchers start together, and one is killed: no share is submitted twice."""
    started = [launch(here, tmp_path, *SUBMIT) for _ in range(3)]
    time.sleep(4)
    started[0].kill()
    for launcher in started:
        launcher.communicate(timeout=120)
    assert [launcher.returncode for launcher in started[1:]] == [0, 0]
    ablate(*SUBMIT)
    submitted = array_tasks.submitted_tasks(tmp_path / "runs")
    assert [len(tasks) for tasks in submitted.values()] == [1] * 10
    lasts = [task.function for task in array_tasks.queued_tasks(tmp_path / "runs") if task.is_last]
    assert len(lasts) == len(set(lasts))  # the last job, and the watching job


def test_task_asks_slurm_once(tmp_path: Path, ablate: Ablate, cluster: Cluster, wrap: Wrap) -> None:
    """Each of four consecutive tasks calls squeue once; the two last jobs call little more, as for-admins.md says."""
    calls = tmp_path / "calls"
    calls.mkdir()
    for name in ("sbatch", "squeue", "scontrol", "scancel", "sacct", "sacctmgr", "sinfo"):
        wrap(name, f"echo {name} >> {calls}/${{ABLATE_JOB_BEGAN:-outside}}; REAL")
    profile = with_keys("parallel: 1").replace("0.2", "0.001")
    write(tmp_path, steps=20, profile=profile, seeds=2)
    ablate(*SUBMIT)
    runs = tmp_path / "runs"
    await_report(runs, 400)
    await_empty_queue(cluster)
    assert len(results(runs)) == 4
    asked = {path.name: Counter(path.read_text().split()) for path in calls.iterdir()}
    submitting, tasks = asked.pop("outside"), sorted(asked.values(), key=Counter.total)
    assert tasks[:3] == [{"squeue": 1}] * 3
    assert len(tasks) == 5
    assert tasks[-1].total() <= 10
    assert submitting["sbatch"] == 3


def test_fine_tuning_waits_for_pre_training(staged: None, tmp_path: Path, ablate: Ablate, closed: Cluster) -> None:
    assert "6 submitted in 2 arrays" in ablate(*SUBMIT).stdout
    jobs = dict(line.split() for line in queued(closed, "%F %E"))
    before = [job for job, dependency in jobs.items() if dependency == "(null)"]
    assert len(before) == 1  # the pre-trainings; all others wait for them
    assert all(f"afterany:{before[0]}" in dependency for job, dependency in jobs.items() if job != before[0])
    view = json.loads(ablate(*STATUS, "--json").stdout)
    assert [(one["arm"], one["queued"]) for one in view["stages"]] == [("pretrain", 2)]
    reasons = {one["reason"] for arm in view["arms"] for one in arm["now_queued"]}
    assert reasons in ({"Dependency"}, {"PartitionDown"})  # slurmctld says which of the two it met last
    reopen(closed)
    runs = tmp_path / "runs"
    await_results(runs, 6)
    assert results(runs) == run_here(tmp_path)
    assert all(len(trial.attempts()) == 1 for trial in trials(runs))
    await_report(runs)


def test_failed_pre_training_blocks_what_starts_from_it(staged: None, tmp_path: Path, ablate: Ablate) -> None:
    runs = tmp_path / "runs"
    design = Design(read_study(str(tmp_path / "s.yaml")), read_recipe(str(tmp_path / "r.yaml")), {})
    jobs = jobs_of([planning.build(design, [0, 1])])
    with synthetic.claimed(store.trial(runs, jobs[0].id)) as attempt:
        attempt.fail("RuntimeError: no such thing", "Traceback", provenance.source_digest())
    assert "1 failed" in (said := ablate(*SUBMIT).stdout)
    assert "2 blocked by their parents" in said
    await_results(runs, 3)
    await_report(runs)
    view = json.loads(ablate(*STATUS, "--json").stdout)
    assert (view["finished"], view["failed"], view["blocked"]) == (3, 1, 2)
    assert not any(store.trial(runs, job.id).attempts() for job in jobs if jobs[0].id in job.parents)
