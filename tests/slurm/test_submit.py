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
from devcluster import Cluster, wait_until
from disturbance import processes
from small_study import PROFILE, STATUS, SUBMIT, Ablate, Wrap, launch, results, run_here, trials, write
from waits import await_empty_queue, await_report, await_results, published, queued

from ablations import provenance
from ablations.cluster import campaign as campaigns
from ablations.cluster.arrays import task_arrays
from ablations.jobs import jobs as jobs_of
from ablations.planning import plan as planning
from ablations.study.design import Design
from ablations.study.reading import read_recipe, read_study
from results import store

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
    assert "10 to train" in said
    assert ", 0 submitted" in ablate(*SUBMIT).stdout
    runs = tmp_path / "runs"
    await_results(runs, 10)
    await_report(runs)
    assert (runs / "studies/s@r/tables/table.md").read_text().count("position=") > 1
    assert results(runs) == run_here(tmp_path)
    assert all(len(trial.attempts()) == 1 for trial in trials(runs))
    assert "10 done, 0 to train, 0 tasks already queued, 0 submitted" in ablate(*SUBMIT).stdout


def test_some_arms_are_submitted_first_and_the_rest_later(tmp_path: Path, ablate: Ablate) -> None:
    some = (*SUBMIT, "--arm", "position=none")
    assert "5 to train" in ablate(*some).stdout
    assert ", 0 submitted" in ablate(*some).stdout
    runs = tmp_path / "runs"
    await_results(runs, 5)
    await_report(runs)
    assert len(trials(runs)) == 5
    assert "5 done, 5 to train" in ablate(*SUBMIT).stdout
    await_results(runs, 10)
    assert published(runs) == [1] * 10


def test_few_slots_are_enough(tmp_path: Path, ablate: Ablate, cluster: Cluster) -> None:
    """Of five slots, two go to the helper jobs."""
    write(tmp_path, profile=PROFILE.replace("0.2", "0.001"))
    cluster.limit_submissions(5)
    assert "submitted" in ablate(*SUBMIT).stdout
    deadline = time.monotonic() + 240
    while (over := len(results(tmp_path / "runs"))) < 10 and time.monotonic() < deadline:
        assert len(queued(cluster, "%i", "--array")) <= 5
        time.sleep(0.5)
    assert over == 10
    await_report(tmp_path / "runs")


def test_full_queue_is_said(ablate: Ablate, cluster: Cluster) -> None:
    """The error is one line, and nothing is submitted."""
    cluster.limit_submissions(0)
    done = ablate(*SUBMIT, check=False)
    assert done.returncode == 2
    assert "Job violates accounting/QOS policy" in done.stderr
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
    """Three launchers start together, and one is killed: there is one array of tasks."""
    started = [launch(here, tmp_path, *SUBMIT) for _ in range(3)]
    time.sleep(4)
    started[0].kill()
    for launcher in started:
        launcher.communicate(timeout=120)
    assert [launcher.returncode for launcher in started[1:]] == [0, 0]
    ablate(*SUBMIT)
    (campaign,) = campaigns.campaigns(tmp_path / "runs")
    assert len(task_arrays(campaign)) == 1
    await_results(tmp_path / "runs", 10)
    assert published(tmp_path / "runs") == [1] * 10


HOLD = "if grep -qs node:work $1; then touch {reached}; while [ -e {hold} ]; do sleep 0.1; done; fi; REAL"


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_launcher_that_is_killed_or_stopped_while_sbatch_is_slow(
    tmp_path: Path, ablate: Ablate, cluster: Cluster, wrap: Wrap, end: signal.Signals
) -> None:
    """The array has all it needs on disk. The next `submit` adds the last job, and each trial is trained once."""
    write(tmp_path, steps=50, seeds=1)
    hold, reached = tmp_path / "hold", tmp_path / "reached"
    hold.touch()
    wrap("sbatch", HOLD.format(hold=hold, reached=reached))
    launcher = launch(cluster, tmp_path, *SUBMIT)
    wait_until(reached.exists, "sbatch", 120)
    launcher.send_signal(end)
    hold.unlink()
    wait_until(lambda: queued(cluster), "the array in the queue", 60)
    if end is signal.SIGSTOP:
        following = launch(cluster, tmp_path, *SUBMIT)
        time.sleep(2)
        launcher.send_signal(signal.SIGCONT)
        assert "0 submitted" in following.communicate(timeout=300)[0]
    else:
        ablate(*SUBMIT)
    launcher.communicate(timeout=300)
    await_report(tmp_path / "runs")
    assert published(tmp_path / "runs") == [1, 1]
    (campaign,) = campaigns.campaigns(tmp_path / "runs")
    assert len(task_arrays(campaign)) == 1


STALE = """
cache={folder}/cache
[ -z "$(find $cache -newermt '-{seconds} seconds' 2>/dev/null)" ] && REAL > $cache.new && mv $cache.new $cache
cat $cache
"""


@pytest.mark.parametrize("seconds", [30, 100_000])
def test_squeue_behind_a_cache_costs_no_array(
    tmp_path: Path, ablate: Ablate, cluster: Cluster, wrap: Wrap, seconds: int
) -> None:
    """The list of jobs is 30 s old, or stays as it was before the submission."""
    cache = tmp_path / "cached"
    cache.mkdir()
    wrap("squeue", STALE.format(folder=cache, seconds=seconds))
    write(tmp_path, seeds=1)
    cluster.run("squeue")
    for _ in range(3):
        ablate(*SUBMIT)
    runs = tmp_path / "runs"
    await_results(runs, 2)
    await_report(runs)
    assert published(runs) == [1, 1]
    (campaign,) = campaigns.campaigns(runs)
    assert len(task_arrays(campaign)) == 1


def test_tasks_ask_slurm_nothing(tmp_path: Path, ablate: Ablate, cluster: Cluster, wrap: Wrap) -> None:
    """Only submitting and the last job call SLURM, as for-admins.md says."""
    calls = tmp_path / "calls"
    calls.mkdir()
    for name in ("sbatch", "squeue", "scontrol", "scancel", "sacct", "sacctmgr", "sinfo"):
        wrap(name, f"echo {name} >> {calls}/${{ABLATE_CALLER:-outside}}; REAL")
    profile = PROFILE.replace("0.2", "0.001, environment: {ABLATE_CALLER: job}")
    write(tmp_path, steps=20, profile=profile, seeds=2)
    ablate(*SUBMIT)
    runs = tmp_path / "runs"
    await_report(runs, 400)
    await_empty_queue(cluster)
    assert len(results(runs)) == 4
    asked = {path.name: Counter(path.read_text().split()) for path in calls.iterdir()}
    submitting = asked.pop("outside")
    (last,) = asked.values()
    assert last <= Counter(squeue=2, scancel=1)
    assert submitting["sbatch"] == 5  # two tests, the tasks, the last job, the job that watches


def test_fine_tuning_waits_for_pre_training(staged: None, tmp_path: Path, ablate: Ablate) -> None:
    ablate(*SUBMIT)
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
