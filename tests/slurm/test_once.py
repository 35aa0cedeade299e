"""Exactly one effect per task: many tasks, launchers at once, kills, preemption, a slurmctld that forgets."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from devcluster import Cluster, Settings, wait_until
from disturbance import Storm, allow_urgent, processes, resume
from small_study import CANCEL, PROFILE, SUBMIT, Result, Wrap, launch, results, run_here, run_on, trials, write
from waits import await_empty_queue, await_report, await_results, await_training, logs, published, queued, reopen

from ablations.cluster.rounds import SETTLE_SECONDS
from slurm import arrays
from slurm.arrays import JobArray
from slurm.profile import Profile

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TASKS = 1500


@pytest.fixture
def closed(cluster: Cluster) -> Iterator[Cluster]:
    """Yield the cluster, whose slurm.conf starts no job: a new slurmctld does not recover a partition's state."""
    path = cluster.folder / "slurm.conf"
    opened = path.read_text()
    path.write_text(re.sub("(?m)^PartitionName=main .*", r"\g<0> State=DOWN", opened))
    cluster.run("scontrol", "reconfigure")
    yield cluster
    cluster.clear()
    path.write_text(opened)
    cluster.run("scontrol", "reconfigure")


def in_queue(cluster: Cluster, runs: Path) -> Counter[str]:
    """Return how many tasks and helper jobs are queued, by function and by the tags in the queue."""
    found = Counter[str]()
    for line in queued(cluster, "%k", "--array"):
        _, campaign, array = line.split(":")
        path = runs / "submissions" / campaign / "arrays" / array / "intent.json"
        if path.exists():
            found[json.loads(path.read_text())["function"].rpartition(":")[2]] += 1
    return found


def settle(runs: Path) -> None:
    """Let the arrays be so old that squeue must show them."""
    for path in runs.glob("submissions/*/arrays/*/intent.json"):
        content = json.loads(path.read_text())
        path.write_text(json.dumps(content | {"written": content["written"] - SETTLE_SECONDS}))


def test_more_tasks_than_an_array_takes(tmp_path: Path, here: Cluster) -> None:
    """1,500 tasks with MaxArraySize=1001 become two arrays; every task runs once."""
    most = here.settings.max_array
    chosen = Profile(gpus=0, memory="100M", time=5)
    began = time.monotonic()
    for number, count in enumerate([most, TASKS - most]):
        folder = tmp_path / f"{number:04d}"
        arrays.submit(JobArray(folder, f"tiny:{folder.name}", "builtins:print", ["begun"], chosen, ROOT, count=count))
    submitted = time.monotonic() - began
    await_empty_queue(here, 1200)
    print(f"\n{TASKS} tasks: submitted in {submitted:.1f} s, over after {time.monotonic() - began:.0f} s")
    logs = [path.read_text() for path in tmp_path.glob("*/logs/*")]
    assert logs == ["begun\n"] * TASKS, "each task has a log of its own, and began once"


def test_a_thousand_trials_are_few_calls(tmp_path: Path, closed: Cluster, wrap: Wrap) -> None:
    """A thousand trials, one per task, take two sbatch calls to test, one for the array, and two for helper jobs."""
    write(tmp_path, seeds=500, profile=PROFILE.replace("0.2", "0.001"))
    calls = tmp_path / "calls"
    wrap("sbatch", f'echo "$@" >> {calls}; REAL')
    began = time.time()
    assert "1000 submitted" in run_on(closed, tmp_path, *SUBMIT).stdout
    asked = calls.read_text().splitlines()
    print(f"\n1000 trials: {len(asked)} sbatch calls in {time.time() - began:.1f} s, planning included")
    assert len(asked) <= 5
    assert in_queue(closed, tmp_path / "runs") == {"work": 1000, "last": 1, "watch": 1}


def test_what_slurmctld_forgets_is_submitted_again(tmp_path: Path, closed: Cluster) -> None:
    """After SIGKILL within a second of its answer, a later `submit` queues as many tasks as before; five times."""
    write(tmp_path, profile=PROFILE.replace("0.2", "0.001"))
    choose, lost = random.Random(0), 0
    closed.kill("slurmctld")  # its state files change while it runs
    saved = shutil.copytree(closed.folder / "state", tmp_path / "state")
    closed.start("slurmctld")
    for number in range(5):
        runs = tmp_path / f"runs{number}"
        launcher = launch(closed, tmp_path, *SUBMIT, "--runs", str(runs))
        wait_until(
            lambda runs=runs: any(runs.glob("submissions/*/arrays/0002/intent.json")), "an acknowledged array", 120
        )
        time.sleep(choose.uniform(0, 1))
        closed.kill("slurmctld")
        if number == 0:  # the others lose what slurmctld has not saved by chance; this one loses all
            shutil.rmtree(closed.folder / "state")
            shutil.copytree(saved, closed.folder / "state")
        closed.start("slurmctld")
        launcher.communicate(timeout=300)  # it may have been told that SLURM does not answer
        lost += 10 - in_queue(closed, runs)["work"]
        settle(runs)
        run_on(closed, tmp_path, *SUBMIT, "--runs", str(runs))
        assert in_queue(closed, runs)["work"] == 10
        if number < 4:
            closed.clear()
    print(f"\n{lost} of 50 acknowledged tasks were forgotten by slurmctld")
    assert lost >= 10
    reopen(closed)
    await_results(runs, 10, 300)
    assert published(runs) == [1] * 10
    await_report(runs)


@pytest.mark.parametrize("place", ["this host", "another host, frozen"])
def test_a_worker_that_slurm_believes_dead(tmp_path: Path, folder: Path, place: str) -> None:
    """It publishes no second result beside its successor; on another host the successor replaces it."""
    write(tmp_path, steps=4000, seeds=1, profile=PROFILE.replace("task_minutes: 0.2", "task_minutes: 60"))
    runs = tmp_path / "runs"
    with Cluster(folder, Settings(requeue_delay=5)) as cluster:
        if place != "this host":
            rename_hosts(cluster)
        run_on(cluster, tmp_path, *SUBMIT)
        await_training(runs)
        (zombie,) = [process for process in processes(runs) if process.name == "worker"]
        give_up_node_of_task(cluster)
        if place != "this host":
            os.kill(zombie.pid, signal.SIGSTOP)
        workers = wait_until(lambda: [p for p in processes(runs) if p.name == "worker"][1:], "a second worker", 120)
        print(f"\nSLURM believes {zombie.pid} dead; beside it works {workers[0].pid}")
        await_results(runs, 2, 400)
        if place != "this host":
            os.kill(zombie.pid, signal.SIGCONT)
        wait_until(lambda: not any(p.pid == zombie.pid for p in processes(runs)), "the zombie's end", 120)
        attempts = sorted(len(trial.attempts()) for trial in trials(runs))
        assert attempts == ([1, 1] if place == "this host" else [1, 2])
        assert published(runs) == [1, 1]
        assert results(runs) == run_here(tmp_path)
        run_on(cluster, tmp_path, *CANCEL)


def rename_hosts(cluster: Cluster) -> None:
    """Restart each slurmd with another host name, in a namespace that its jobs share."""
    for name in cluster.settings.names:
        cluster.kill(name)
        words = ["unshare", "--uts", "sh", "-c", f"hostname {name} && exec slurmd -N {name}"]
        with open(cluster.folder / "log" / f"{name}.out", "ab") as output:
            subprocess.run(words, env=cluster.environment, check=True, stdout=output, stderr=output, timeout=60)
        cluster.wait(name)


def give_up_node_of_task(cluster: Cluster) -> None:
    """Kill the slurmd of the running task and mark its node down, so that the task restarts on the other."""
    (line,) = queued(cluster, "%A %N", "--array", "--states=RUNNING")
    job, node = line.split()
    cluster.kill(node)
    cluster.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    wait_until(lambda: cluster.state(job) == "PENDING", f"job {job} waiting again")
    cluster.start_soon(job)


TRIALS, STEPS = 40, 150
STRIKES = 15  # at least, of those in DECK
DECK = {"worker": 18, "task": 6, "last": 6, "slurmctld": 3, "REQUEUE": 3, "CANCEL": 2}
SECONDS = 2400.0  # far more than it takes where nothing else runs


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory, slurm_installed: None) -> dict[str, Result]:
    """Return the study's results without disturbance."""
    folder = tmp_path_factory.mktemp("calm")
    write(folder, STEPS, seeds=TRIALS // 2)
    return run_here(folder)


@pytest.fixture(params=["five jobs at most", "neither limit nor slurmdbd"])
def stormy(request: pytest.FixtureRequest, folder: Path) -> Iterator[Cluster]:
    limited = request.param == "five jobs at most"
    with Cluster(folder, Settings(max_submit=5 if limited else None, accounting=limited, requeue_delay=8)) as running:
        if limited:
            allow_urgent(running)
        yield running


def test_storm_changes_no_result(tmp_path: Path, stormy: Cluster, calm: dict[str, Result]) -> None:
    """After one submit, SIGKILLs and preemptions, each of 40 results is published once and bit-identical."""
    write(tmp_path, STEPS, PROFILE.replace("time: 5", "time: 1, parallel: 3"), seeds=TRIALS // 2)
    began = time.monotonic()
    run_on(stormy, tmp_path, *SUBMIT)
    runs = tmp_path / "runs"
    storm = Storm(stormy, runs, DECK)
    most: list[str] = []
    queued = ["the submission"]
    while queued and time.monotonic() - began < SECONDS:
        queued = storm.queue()
        counted = [line for line in queued if not line.startswith("COMPLETING")]  # SLURM's limit leaves these out
        most = max(most, counted, key=len)
        resume(stormy)
        if storm.fraction_dealt <= len(results(runs)) / (0.8 * TRIALS):  # as quick as the trials are, on any machine
            storm.strike()
        time.sleep(0.3)
    tell(storm, runs, time.monotonic() - began, len(most))
    assert results(runs) == calm, logs(runs)
    assert published(runs) == [1] * TRIALS
    assert (runs / "report.html").exists()
    assert storm.done.total() >= STRIKES, "pools that pull end soon, and some kinds find no process to strike"
    assert stormy.settings.max_submit is None or len(most) <= stormy.settings.max_submit, most


def tell(storm: Storm, runs: Path, seconds: float, most: int) -> None:
    attempts = Counter(len(trial.attempts()) for trial in trials(runs))
    print(
        f"\n{len(results(runs))} results in {seconds:.0f} s, one submit; disturbed: {dict(storm.done)},"
        f" left: {+storm.deck}; arrays handed over: {len(list(runs.glob('submissions/*/arrays/*')))},"
        f" most jobs at once: {most}; trials by attempts: {dict(sorted(attempts.items()))}"
    )
