"""Running: nothing finished is trained again, nothing killed is lost, and a bad trial stops no other."""

import hashlib
import io
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from designs import design
from devcluster import wait_until
from run_trials import Quiet, job_of, outcomes, serve_all, served, workers_of
from small_study import RECIPE, STUDY, command
from waits import PATIENCE, started

from ablations import machine
from ablations.cli.running import failures
from ablations.execution import attempts, pool, runner
from ablations.execution.launch import Place
from ablations.execution.messages import Compiling, Ended, read_event
from ablations.execution.worker import Worker
from ablations.jobs import Job
from ablations.jobs import jobs as jobs_of
from ablations.planning import plan as planning
from ablations.status import slurm_answers
from ablations.status.study_status import study_status
from results import store
from results.store import lease
from results.store.schemas import Arm, Plan, PlannedTrial
from results.store.standing import Kind, Standings
from vitcore.config import Config


def plan(folder: Path, steps: int = 40, study: str = STUDY, seeds: int = 2) -> Plan:
    recipe = RECIPE.replace("STEPS", str(steps)).replace("SEEDS", "2")
    return planning.build(design(folder, study, recipe), range(seeds))


def with_plugin(folder: Path, source: str) -> Place:
    path = folder / "plugin.py"
    path.write_text(source)
    return Place(folder / "runs", None, {str(path): hashlib.sha256(path.read_bytes()).hexdigest()[:12]})


def wait_for(folder: Path, pattern: str) -> None:
    wait_until(lambda: any((folder / "runs/trials").glob(pattern)), pattern, PATIENCE, every=0.05)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Job], dict[str, Any]]:
    """Return two jobs of a second or more each, and their outcomes by id."""
    folder = tmp_path_factory.mktemp("undisturbed")
    jobs = jobs_of([plan(folder, 300, seeds=1)])
    for job in jobs:
        served(folder, job)
    return jobs, outcomes(folder, jobs)


def test_failures_are_reported_with_cause_and_command() -> None:
    def plan(study: str, ids: str) -> Plan:
        trials = [PlannedTrial.model_construct(id=one, seed=0) for one in ids]
        arm = Arm.model_construct(name="a", config={}, trials=trials)
        name = f"{study}@digits+54cd58"
        return Plan.model_construct(study=study, name=name, metric="test_loss", seeds=[0], arms=[arm])

    plans = [plan("one", "abcd"), plan("other", "xyz")]
    said = failures(dict.fromkeys("ab", "OSError: no"), " --runs here", plans)
    assert said == "2 trials failed (OSError: no); fix the cause, then: `ablate retry a b --runs here`"
    many = dict.fromkeys("abc", "OSError: no") | {"d": "KeyError: 'x'"}
    said = failures(many, "", plans)
    assert said.startswith("4 trials failed (3 of them: OSError: no); ")
    assert said.endswith("`ablate retry one@digits+54cd58`")
    assert "`ablate retry a b c d`" in failures(many, "", [])


PLUGIN = """
import os, signal
from vitcore.model.position import POSITION, Position

class Bad(Position):
    numerics = 1
    def tokens(self, x, layer, grid):
        if x.is_meta:  # planned, not trained
            return x
        {action}

POSITION["bad"] = Bad
"""


@contextmanager
def bad_jobs(folder: Path, action: str) -> Iterator[tuple[list[Job], Place]]:
    """Yield jobs of the arms `bad` and `1d`, one seed each. The plug-in's part `bad` takes the action off `meta`."""
    from ablations.trainables.vit import plugins
    from vitcore.model.position import POSITION

    place = with_plugin(folder, PLUGIN.format(action=action))
    plugins.load(map(Path, place.plugins))  # to plan
    study = "{question: 'Which?', baseline: {position: 1d}, factors: {position: [bad, 1d]}}"
    jobs = sorted(jobs_of([plan(folder, study=study, seeds=1)]), key=lambda job: job.arm != "position=bad")
    yield jobs, place
    del POSITION["bad"]


def test_failed_trials_are_recorded_and_stop_no_other(tmp_path: Path) -> None:
    """Only other code tries again. Without a GPU, a trial that asks for one fails at once."""
    with bad_jobs(tmp_path, "raise RuntimeError('no such thing')") as (jobs, place):
        config = Config(device="auto" if machine.gpus() else "cuda", steps=2, width=16, depth=1, heads=2)
        bad, good, gpu = jobs = [*jobs, job_of(config)]
        tally = runner.run(jobs, place, Quiet(), workers=1)
        again = runner.run(jobs, place, Quiet())
    assert tally.failed[bad.id] == "RuntimeError: no such thing"
    assert good.id in tally.done
    assert "Traceback" in store.trial(place.runs, bad.id).failure().traceback
    assert again.failed == tally.failed
    assert len(store.trial(place.runs, bad.id).attempts()) == 2  # the same traceback twice
    assert bad.standing(Standings(place.runs, place.code)).kind is Kind.FAILED
    assert bad.standing(Standings(place.runs, replace(place, plugins={"plugin.py": "0" * 12}).code)).kind is Kind.READY
    if not machine.gpus():
        assert "no usable GPU" in tally.failed[gpu.id]
    assert len(store.trial(place.runs, gpu.id).attempts()) == 1


def test_trial_that_kills_its_workers_fails_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "oom_kills", itertools.count().__next__)
    display = Quiet()
    with bad_jobs(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)") as (jobs, place):
        tally = runner.run(jobs, place, display, workers=1)
    assert tally.done == [jobs[1].id]
    assert tally.failed == {jobs[0].id: f"3 attempts without progress: the last was {attempts.KILLED}"}
    assert any("died (signal SIGKILL: out of memory)" in line for line in display.said)


def test_processes_that_the_kernel_killed_for_memory_are_counted() -> None:
    """In a control group of 100 MB, where one can be made, the kernel kills a process that takes 200 MB."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    groups = [group.lstrip("/") for _, controllers, group in lines if controllers == "memory"]
    group = Path("/sys/fs/cgroup/memory", *groups[:1], f"test-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(10**8))
    except OSError as error:
        pytest.skip(f"no control group of version 1 can be made here ({error.strerror})")
    code = """
    import subprocess, sys
    open(sys.argv[1] + '/cgroup.procs', 'w').write('0')
    from ablations.machine import oom_kills
    before = oom_kills()
    words = [[sys.executable, '-c', f'print(len(b"x" * {size}))'] for size in (10**6, 2 * 10**8)]
    ended = [subprocess.run(some).returncode for some in words]
    print(ended, oom_kills() - before)
    """
    words = [sys.executable, "-c", dedent(code), str(group)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    finally:
        group.rmdir()
    assert done.stdout.splitlines() == ["1000000", "[0, -9] 1"]


ONCE = "once = __import__('pathlib').Path(__file__).with_name('once'); first = not once.exists(); once.touch()"


def test_trial_that_fails_once_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "drive", serve_all)
    display = Quiet()
    with bad_jobs(tmp_path, f"{ONCE}\n        assert not first\n        return x") as (jobs, place):
        tally = runner.run(jobs[:1], place, display)
    assert tally.done == [jobs[0].id]
    assert any("trying again" in line for line in display.said)
    first = store.trial(place.runs, jobs[0].id).attempts()[0]
    assert "AssertionError" in store.read_json(first / "failure.json")["traceback"]


@pytest.mark.slow
def test_lost_cuda_context_takes_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATE_PAUSE_SECONDS", "0.1")
    error = "CUDA error: unspecified launch failure"
    with bad_jobs(tmp_path, f"raise RuntimeError({error!r})") as (jobs, place):
        tally = runner.run(jobs, place, Quiet(), workers=1)
    assert tally.done == [jobs[1].id]
    assert error in tally.failed[jobs[0].id]
    tried = store.trial(place.runs, jobs[0].id).attempts()
    assert len({json.loads((path / lease.RELEASED).read_text())["pid"] for path in tried}) == 3


PICKY = """
import os
if "BROKEN" in os.environ:
    raise RuntimeError("no such library")
"""


def test_workers_that_never_start_end_the_run_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "CRASHED_STARTS", 1)
    monkeypatch.setenv("BROKEN", "1")
    with pytest.raises(ValueError, match=r"^workers do not start: .*no such library$"):
        runner.run(jobs_of([plan(tmp_path)]), with_plugin(tmp_path, PICKY), Quiet(), 1)


def test_runs_that_cannot_be_written_interrupt_the_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "attempts")

    monkeypatch.setattr(store, "claim", refuse)
    channel = io.StringIO()
    Worker(Place(tmp_path, None), channel).serve(Job("0" * 12, {}, "a", "s"))
    ended = Ended("interrupted", "attempts: Permission denied")
    assert [read_event(line) for line in channel.getvalue().splitlines()] == [ended]


def test_a_worker_says_once_for_all_seeds_that_it_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitcore.training.step.compile_model", lambda model, attention: model)
    worker = Worker(Place(tmp_path, None), channel := io.StringIO())
    for job in jobs_of([plan(tmp_path)]):
        worker.serve(job_of(Config(**job.config | {"steps": 2, "compile": True})))
    events = [read_event(line) for line in channel.getvalue().splitlines()]
    assert (events.count(Compiling()), sum(isinstance(event, Ended) for event in events)) == (2, 4)


HOLDING = """
import time
from results.store.attempts import Attempt

log = Attempt.log

def log_and_wait(attempt, line):
    log(attempt, line)
    while attempt.path.name == "0001" and not attempt.patience.given_up():
        time.sleep(0.01)

Attempt.log = log_and_wait
"""  # a first attempt waits after its first evaluation until it is asked to stop: a test is never too late


def started_run(folder: Path, *more: str) -> "AbstractContextManager[subprocess.Popen[str]]":
    return started(command("run", "s.yaml", "--recipe", "r.yaml", *more), cwd=folder)


@pytest.mark.slow
def test_two_runs_at_once_share_the_work(tmp_path: Path) -> None:
    """A second run in a directory waits for the trials that the first holds: each is trained once."""
    jobs = jobs_of([plan(tmp_path, steps=600)])
    with started_run(tmp_path, "--jobs", "1") as one, started_run(tmp_path, "--jobs", "1") as other:
        for process in (one, other):
            output, errors = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, errors
            assert "position=none" in output
    for job in jobs:
        trial = store.trial(tmp_path / "runs", job.id)
        assert len(trial.attempts()) == 1
        assert trial.state().status == "finished"


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_interrupted_run_continues_where_it_was(
    tmp_path: Path, undisturbed: tuple[list[Job], dict[str, Any]], number: signal.Signals
) -> None:
    jobs, calm = undisturbed
    plan(tmp_path, steps=300)
    (tmp_path / "holding.py").write_text(HOLDING)
    with started_run(tmp_path, "--seeds", "1", "--jobs", "1", "--plugin", "holding.py") as process:
        wait_for(tmp_path, "*/attempts/0001/metrics.jsonl")
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        assert "the same command continues" in errors
        assert list((tmp_path / "runs/trials").glob("*/attempts/0001/checkpoints/*"))
        assert not workers_of(process.pid)
    for job in jobs:
        served(tmp_path / "runs", job)
    assert outcomes(tmp_path / "runs", jobs) == calm


def test_workers_of_a_killed_run_stop_with_a_checkpoint(tmp_path: Path) -> None:
    plan(tmp_path, steps=100_000)
    with started_run(tmp_path, "--seeds", "1", "--jobs", "1") as process:
        wait_for(tmp_path, "*/attempts/0001/log")
        workers = workers_of(process.pid)
        process.kill()
        process.communicate()
        wait_until(lambda: not any(lease.start_time(pid) for pid in workers), "the worker's end", PATIENCE)
    assert list((tmp_path / "runs/trials").glob("*/attempts/0001/checkpoints/*"))


def test_stopped_worker_is_killed_and_its_trial_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: tuple[list[Job], dict[str, Any]]
) -> None:
    """After SIGSTOP `status` names the worker. The pool kills it for lack of heartbeats. The result is the same."""
    jobs, calm = undisturbed
    planned, job, place = plan(tmp_path, 300, seeds=1), jobs[0], with_plugin(tmp_path, HOLDING)
    runs = place.runs
    shown: list[str] = []

    class Display(Quiet):
        def say(self, text: str) -> None:
            super().say(text)
            if "no heartbeat" in text:  # the one worker that was stopped has been killed
                monkeypatch.setattr(pool, "SILENT_SECONDS", 300.0)

    def stop() -> None:
        wait_for(tmp_path, "*/attempts/0001/metrics.jsonl")
        (pid,) = workers_of(os.getpid())
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: "(stopped)" in Path(f"/proc/{pid}/status").read_text(), "SIGSTOP", PATIENCE, every=0.05)
        arms = study_status(planned, runs, slurm_answers.SlurmAnswers()).arms
        shown.extend([f"{pid}", *(cause.cause for arm in arms for cause in arm.causes)])
        monkeypatch.setattr(pool, "SILENT_SECONDS", 2.0)  # only while this worker, the only one, is stopped

    thread, display = threading.Thread(target=stop), Display()
    thread.start()
    tally = runner.run([job], place, display, workers=1)
    thread.join()
    assert tally.done == [job.id]
    assert len(store.trial(runs, job.id).attempts()) == 2
    assert outcomes(runs, [job]) == {job.id: calm[job.id]}
    assert shown[1:] == [f"stopped (pid {shown[0]} on {socket.gethostname()})"]
    assert any("no heartbeat" in line for line in display.said)
    assert any("died (signal SIGKILL)" in line for line in display.said)


def test_worker_that_reaches_no_step_ends_after_its_parent(tmp_path: Path) -> None:
    busy = dedent("""
        import os, torch
        from ablations.execution import worker
        worker.ORPHAN_SECONDS = worker.BEAT_SECONDS = 0.2
        worker.start_heartbeat(os.getppid(), lambda: None)
        print(os.getpid(), flush=True)
        while True:
            torch.empty(2**24).normal_()
    """)
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    with subprocess.Popen([sys.executable, "-c", parent, busy], stdout=subprocess.PIPE, text=True) as process:
        pid = int(process.stdout.readline())
        process.kill()
    try:
        wait_until(lambda: not lease.start_time(pid), "the worker's end", PATIENCE)
    finally:
        if lease.start_time(pid):
            os.kill(pid, signal.SIGKILL)
