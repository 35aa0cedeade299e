"""Running: nothing finished is trained again, nothing killed is lost, and a bad trial stops no other."""

import io
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from closed_form import HELPERS, RECIPE, STUDY, loss
from devcluster import wait_until
from run_trials import Quiet, curve_job, job_of, outcomes, planned_curves, serve_all, served, workers_of
from small_study import command, trials
from trainings import tiny
from waits import PATIENCE, published, started

from ablations import machine
from ablations.cli.work import failures
from ablations.execution import pool, retry_rules, runner
from ablations.execution.launch import Place
from ablations.execution.messages import Compiling, Ended, read_event
from ablations.execution.worker import Worker
from ablations.jobs import Job
from ablations.jobs import jobs as jobs_of
from ablations.status import slurm_answers
from ablations.status.study_status import study_status
from results import store
from results.store import lease
from results.store.schemas.plans import Arm, Plan, PlannedTrial
from results.store.standing import Kind, Standings
from vitcore.config import Config


@pytest.fixture(autouse=True)
def helpers_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers find the closed form."""
    monkeypatch.setenv("PYTHONPATH", HELPERS)


def wait_for(folder: Path, pattern: str) -> None:
    wait_until(lambda: any((folder / "runs/trials").glob(pattern)), pattern, PATIENCE, every=0.05)


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


def test_failed_trials_are_recorded_and_stop_no_other(tmp_path: Path) -> None:
    """Only other code tries again."""
    bad, good = jobs = [curve_job(act="raise RuntimeError('no such thing')"), curve_job()]
    place = Place(tmp_path, None)
    tally = runner.run(jobs, place, Quiet(), workers=1)
    again = runner.run(jobs, place, Quiet())
    assert tally.failed == again.failed == {bad.id: "RuntimeError: no such thing"}
    assert good.id in tally.done
    assert "Traceback" in store.trial(place.runs, bad.id).failure().traceback
    assert len(store.trial(place.runs, bad.id).attempts()) == 2  # the same traceback twice
    assert bad.standing(Standings(place.runs, place.code)).kind is Kind.FAILED
    assert bad.standing(Standings(place.runs, replace(place, plugins={"plugin.py": "0" * 12}).code)).kind is Kind.READY


def test_a_trial_that_asks_for_a_missing_gpu_fails_at_once(tmp_path: Path) -> None:
    if machine.gpus():
        pytest.skip("there is a GPU")
    job = job_of(Config(device="cuda", steps=2, width=16, depth=1, heads=2))
    ended = served(tmp_path, job)
    assert ended.kind == "failed"
    assert "no usable GPU" in ended.cause


def test_trial_that_kills_its_workers_fails_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "oom_kills", itertools.count().__next__)
    display = Quiet()
    jobs = [curve_job(act="import os; os.kill(os.getpid(), 9)"), curve_job()]
    tally = runner.run(jobs, Place(tmp_path, None), display, workers=1)
    assert tally.done == [jobs[1].id]
    assert tally.failed == {jobs[0].id: f"3 attempts without progress: the last was {retry_rules.KILLED}"}
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


def test_trial_that_fails_once_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "drive", serve_all)
    display = Quiet()
    job = curve_job(act="assert run.path.name != '0001'")
    tally = runner.run([job], Place(tmp_path, None), display)
    assert tally.done == [job.id]
    assert any("trying again" in line for line in display.said)
    first = store.trial(tmp_path, job.id).attempts()[0]
    assert "AssertionError" in store.read_json(first / "failure.json")["traceback"]


def test_lost_cuda_context_takes_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATE_PAUSE_SECONDS", "0.1")
    error = "CUDA error: unspecified launch failure"
    bad, good = curve_job(act=f"raise RuntimeError({error!r})"), curve_job()
    tally = runner.run([bad, good], Place(tmp_path, None), Quiet(), workers=1)
    assert tally.done == [good.id]
    assert error in tally.failed[bad.id]
    tried = store.trial(tmp_path, bad.id).attempts()
    assert len({json.loads((path / lease.RELEASED).read_text())["pid"] for path in tried}) == 3


def test_workers_that_never_start_end_the_run_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "CRASHED_STARTS", 1)
    monkeypatch.setenv("BROKEN", "1")
    with pytest.raises(ValueError, match=r"^workers do not start: no such library$"):
        runner.run([curve_job()], Place(tmp_path, None), Quiet(), 1)


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
    for seed in (0, 1, 2):
        worker.serve(job_of(tiny(seed=seed, steps=2, compile=True)))
    events = [read_event(line) for line in channel.getvalue().splitlines()]
    assert (events.count(Compiling()), sum(isinstance(event, Ended) for event in events)) == (1, 3)


# A first attempt waits at its second step until it is asked to stop: a test is never too late.
HOLD = "import time\nwhile step == 2 and run.path.name == '0001' and not context.should_stop(): time.sleep(0.01)"
HELD = RECIPE.replace("steps: 3", f"act: {json.dumps(HOLD)}")


def write(folder: Path, recipe: str = RECIPE, study: str = STUDY) -> None:
    (folder / "r.yaml").write_text(recipe)
    (folder / "s.yaml").write_text(study)


def started_run(folder: Path, *more: str) -> "AbstractContextManager[subprocess.Popen[str]]":
    return started(command("run", "s.yaml", "--recipe", "r.yaml", "--jobs", "1", *more), os.environ, cwd=folder)


@pytest.mark.slow
def test_two_runs_at_once_share_the_work(tmp_path: Path) -> None:
    """A second run in a directory waits for the trials that the first holds: each is trained once."""
    write(tmp_path, RECIPE.replace("steps: 3", "steps: 30, pause: 0.02"))
    with started_run(tmp_path) as one, started_run(tmp_path) as other:
        for process in (one, other):
            output, errors = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, errors
            assert "rate=0.25" in output
    assert published(tmp_path / "runs") == [1] * 6
    assert all(len(trial.attempts()) == 1 for trial in trials(tmp_path / "runs"))


def assert_undisturbed(runs: Path, job: Job) -> None:
    """Check that a resumed closed form of three steps has the numbers of one that was not interrupted."""
    (_, metrics, curve), *_ = outcomes(runs, [job]).values()
    assert [line["step"] for line in curve] == [1, 2, 3]
    assert metrics == {"loss": loss(job.config, 3)}


def assert_interrupted(folder: Path, process: "subprocess.Popen[str]", number: signal.Signals) -> None:
    """Send a signal to a run whose first attempt holds, and check how it ends."""
    wait_for(folder, "*/attempts/0001/metrics.jsonl")
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "the same command continues" in errors
    assert list((folder / "runs/trials").glob("*/attempts/0001/checkpoints/*"))
    assert not workers_of(process.pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_continues_where_it_was(tmp_path: Path, number: signal.Signals) -> None:
    write(tmp_path, HELD)
    with started_run(tmp_path, "--seeds", "1") as process:
        assert_interrupted(tmp_path, process, number)
    (begun,) = trials(tmp_path / "runs")
    (job,) = [job for job in jobs_of(store.read_plans(tmp_path / "runs").readable) if job.id == begun.id]
    served(tmp_path / "runs", job)
    assert_undisturbed(tmp_path / "runs", job)


def test_workers_of_a_killed_run_stop_with_a_checkpoint(tmp_path: Path) -> None:
    write(tmp_path, HELD)
    with started_run(tmp_path, "--seeds", "1") as process:
        wait_for(tmp_path, "*/attempts/0001/metrics.jsonl")
        workers = workers_of(process.pid)
        process.kill()
        process.communicate()
        wait_until(lambda: not any(lease.start_time(pid) for pid in workers), "the worker's end", PATIENCE)
    (attempt,) = (tmp_path / "runs/trials").glob("*/attempts/0001")
    assert store.Trial(attempt.parents[1]).newest_step() in (1, 2)  # 1: killed before the second step began


def test_stopped_worker_is_killed_and_its_trial_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After SIGSTOP `status` names the worker. The pool kills it for lack of heartbeats. The result is the same."""
    runs, (job, *_) = planned_curves(tmp_path, recipe=HELD)
    (planned,) = store.read_plans(runs).readable
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
        monkeypatch.setattr(pool, "SILENT_SECONDS", 0.5)  # only while this worker, the only one, is stopped

    thread, display = threading.Thread(target=stop), Display()
    thread.start()
    tally = runner.run([job], Place(runs, None), display, workers=1)
    thread.join()
    assert tally.done == [job.id]
    assert len(store.trial(runs, job.id).attempts()) == 2
    assert_undisturbed(runs, job)
    assert shown[1:] == [f"stopped (pid {shown[0]} on {socket.gethostname()})"]
    assert any("no heartbeat" in line for line in display.said)
    assert any("died (signal SIGKILL)" in line for line in display.said)


def test_worker_that_reaches_no_step_ends_after_its_parent(tmp_path: Path) -> None:
    busy = dedent("""
        import os
        from ablations.execution import worker
        worker.ORPHAN_SECONDS = worker.BEAT_SECONDS = 0.2
        worker.start_heartbeat(os.getppid(), lambda: None)
        print(os.getpid(), flush=True)
        while True:
            pass
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
