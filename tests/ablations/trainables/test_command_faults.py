"""How commands end: each fault has one clear line, no process is left, and what was saved comes back."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from commands import ONE_ARM, RECIPE, planned, served_until
from run_trials import served, workers_of
from waits import left, wait_until

from ablations.execution.worker import Worker
from ablations.trainables.command import output, training
from results import store
from results.store import lease
from results.study_results import load_plans
from results.tables import study_table


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "STOP_SECONDS", 0.0)


MEMORY, BUG, INPUT, MACHINE = "memory", "bug", "input", "machine"
FAULTS = [
    ("print('METRIC score=1'); raise SystemExit(3)", BUG, "exit status 3: METRIC score=1"),
    ("raise ValueError('no such layer')", BUG, "exit status 1: ValueError: no such layer"),
    ("pass", INPUT, "metric score was not reported: print METRIC score=NUMBER, or write it to metrics.json"),
    ("print('METRIC scores=1')", INPUT, "metric score was not reported; did you mean 'scores'?"),
    ("print('METRIC score: 1')", INPUT, "metric score was not reported: METRIC score: 1: write METRIC score=NUMBER"),
    ("print('METRIC score=1'); print('METRIC score=2')", INPUT, "metric score came with 2 values: 1, 2"),
    ("print('METRIC score=1', flush=True); write('metrics.json', '{\"score\": 2}')", INPUT, "came with 2 values: 1, 2"),
    ("for n in range(9): print(f'METRIC score={n}')", INPUT, "score came with 9 values: 0, 1, 2 and 6 more"),
    ("print('METRIC score=high')", INPUT, "metric score=high: a number"),
    ("write('metrics.json', '{\"score\": \"0.5\"}')", INPUT, 'metric score="0.5": a number'),
    ("write('metrics.json', '[1]')", INPUT, "metrics.json: an object, as in {'score': 0.5}"),
    ("print('METRIC score=nan')", INPUT, "metric score=nan: not finite; a command whose training diverged"),
    ("raise MemoryError", MEMORY, "out of memory: MemoryError"),
    ("raise RuntimeError('CUDA out of memory. Tried to allocate 2 GiB')", MEMORY, "out of memory: RuntimeError: CUDA"),
    ("raise RuntimeError('CUDA error: uncorrectable ECC error')", MACHINE, "exit status 1: RuntimeError: CUDA error"),
    ("os.kill(os.getpid(), 11)", BUG, "killed by SIGSEGV: it printed nothing"),
    ("os.kill(os.getpid(), 9)", MACHINE, "killed by SIGKILL: it printed nothing"),
    ("os.kill(os.getppid(), 9); __import__('signal').pause()", MACHINE, "killed by SIGKILL: it printed nothing"),
    ("write('metrics.jsonl', LOST); os.kill(os.getpid(), 9)", MACHINE, "killed by SIGKILL: it printed nothing"),
    ("write('metrics.jsonl', LOST); raise MemoryError", MEMORY, "out of memory: MemoryError"),
    ("print('METRIC score=1'); correct([0, 0], [1, 0])", INPUT, "correct.npz: index: each test image once"),
    ("print('METRIC score=1'); correct([0, 1], [1, 2])", INPUT, "correct.npz: index and correct are not a list"),
    ("print('METRIC score=1'); correct([{}], [1])", INPUT, "correct.npz cannot be read"),
]  # fmt: skip
BEGIN = """
import os, sys
folder = sys.argv[3]
LOST = '{"step": 7, "loss": NaN}\\n'
def write(name, text):
    open(os.path.join(folder, name), "w").write(text)
def correct(index, correct):
    import numpy as np  # late: most faults need none
    np.savez(os.path.join(folder, "correct.npz"), index=index, correct=correct)
"""


@pytest.mark.parametrize(("body", "kind", "cause"), FAULTS, ids=[body for body, _, _ in FAULTS])
def test_a_fault_of_a_command_is_one_line(tmp_path: Path, body: str, kind: str, cause: str) -> None:
    runs, todo = planned(tmp_path, BEGIN + body, study=ONE_ARM)
    ended = served(runs, todo[0])
    failure = store.trial(runs, todo[0].id).failure()
    assert failure is not None
    assert (failure.kind, "\n" in failure.cause) == (kind, False)
    assert cause in failure.cause
    assert ended.kind == ("again" if kind in (BUG, MACHINE) else "failed")


def test_a_command_that_is_killed_again_and_again_fails_with_advice(tmp_path: Path) -> None:
    """Three kills end a trial, unless each attempt adds a step to the curve."""
    for name, body, last in (
        ("idle", "", "failed"),
        (
            "slow",
            "with open(folder + '/metrics.jsonl', 'a') as f: f.write('{\"step\": %d}\\n' % (1 + f.tell()))",
            "again",
        ),
    ):
        runs, todo = planned(tmp_path / name, f"{BEGIN}{body}\nos.kill(os.getpid(), 9)", study=ONE_ARM)
        ended = [served(runs, todo[0]) for _ in range(3)]
        assert [event.kind for event in ended] == ["again", "again", last]
        if last == "failed":
            beginning = "3 attempts without a new step in metrics.jsonl (write one with each checkpoint): the last was "
            assert ended[-1].cause == f"{beginning}killed by SIGKILL: it printed nothing"


@pytest.mark.parametrize(
    "script", ["print('DIVERGED'); sys.exit(1)", "write('metrics.jsonl', '{\"step\": 7, \"loss\": NaN}\\n')"]
)
def test_a_diverged_training_is_a_result(tmp_path: Path, script: str) -> None:
    """A command says so, or its last loss is not finite and it reports no metric."""
    runs, todo = planned(tmp_path, BEGIN + script, study=ONE_ARM)
    assert served(runs, todo[0]).kind == "diverged"


@pytest.mark.parametrize(("last", "steps"), [('{"step": 2, "loss": 0.5}', [1, 2]), ('{"step": 2, "lo', [1]), ("", [1])])
def test_the_last_line_of_a_curve_needs_no_newline(tmp_path: Path, last: str, steps: list[int]) -> None:
    """It counts once the command has ended, unless it is torn."""
    text = '{"step": 1, "loss": 1}\\n' + last
    runs, todo = planned(tmp_path, f"{BEGIN}write('metrics.jsonl', '{text}'); print('METRIC score=1')", study=ONE_ARM)
    assert served(runs, todo[0]).kind == "finished"
    state = store.trial(runs, todo[0].id).state()
    assert state.attempt is not None
    assert [line.step for line in store.read_metrics(state.attempt)] == steps


ANSWERS = (
    BEGIN
    + """
import random
draws = random.Random(int(sys.argv[2]))
right = [draws.random() < float(sys.argv[1]) for _ in range(50)]
correct(range(50), right)
mean = sum(right) / 50
print(f"METRIC top1={mean:.3f} shift={OFF} test_accuracy={mean + OFF}")
"""
)
METRICS = RECIPE.replace("{score: {better: higher}}", "METRICS").replace("seeds: 3", "seeds: 2")
TOP1 = "{top1: {better: higher, unit: fraction, per_image: true}}"
PLAIN = "{top1: {better: higher, unit: fraction}, shift: {better: lower}}"
NAMED = "{test_accuracy: {better: higher, unit: fraction}}"


@pytest.mark.parametrize(
    ("metrics", "off", "said"),
    [
        (TOP1, 0.0, None),
        (NAMED, 0.0, None),
        (NAMED, -0.1, "test_accuracy is 0."),
        (PLAIN, 0.0, "no metric of the recipe has `per_image: true`; its mean is top1"),
    ],
    ids=["declared", "by name", "another number", "not declared"],
)
def test_right_and_wrong_images_reach_the_verdict_of_their_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metrics: str, off: float, said: str | None
) -> None:
    """They count for the metric that is their mean; why they do not is said at the end of a trial."""
    notes: list[str] = []
    monkeypatch.setattr(Worker, "warn", lambda self, text: notes.append(text))
    script = ANSWERS.replace("OFF", str(off))
    runs, todo = planned(tmp_path, script, recipe=METRICS.replace("METRICS", metrics))
    assert [served(runs, job).kind for job in todo] == ["finished"] * 4
    (plan,) = store.read_plans(runs).readable
    (study,) = load_plans(runs, [plan])
    row = study_table.table(study).rows_by_arm["lr=0.25"]
    assert len(study.correct) == 4
    assert (row.delta_ci95_images is not None) == (said is None)
    assert len(notes) == (0 if said is None else 4)
    assert all(note.startswith("correct.npz is not used: ") and said in note for note in notes)


def test_a_long_log_keeps_its_beginning_and_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("HEAD", 1000), ("TAIL", 2000), ("MOST", 4000)):
        monkeypatch.setattr(output, name, size)
    script = "print('first')\nfor _ in range(20000): print('x' * 99)\nprint('METRIC score=1')"
    runs, todo = planned(tmp_path, script, study=ONE_ARM)
    assert served(runs, todo[0]).metrics == {"score": 1}
    log = (store.trial(runs, todo[0].id).attempts()[-1] / "log").read_text()
    assert len(log) < 4000 + (1 << 16)
    assert log.startswith("first\n")
    assert log.endswith("METRIC score=1\n")
    assert " bytes left out ...]\n" in log


# -- processes ---------------------------------------------------------------------------------------------------------

LEAVES_PROCESSES = """
import os, subprocess, sys, time
subprocess.Popen(["sleep", "600"], start_new_session=True)   # a session of its own
if os.fork() == 0:                                           # a daemon
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
print("METRIC score=1", flush=True)
"""
IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + LEAVES_PROCESSES + "time.sleep(600)"
SAVES_AT_SIGTERM = """
import os, signal, sys, time
state = os.path.join(sys.argv[3], "state")
if os.path.exists(state):
    print("METRIC score=2")
    sys.exit()
def save(*_):
    open(state, "w").write("saved")
    sys.exit(1)
signal.signal(signal.SIGTERM, save)
print("METRIC score=1", flush=True)  # not the last word
open(os.path.join(sys.argv[3], "begun"), "w")
time.sleep(600)
"""


def test_what_a_command_leaves_ends_with_it(tmp_path: Path, mark: str) -> None:
    runs, todo = planned(tmp_path, LEAVES_PROCESSES, study=ONE_ARM)
    assert served(runs, todo[0]).kind == "finished"
    assert not left(mark)


def test_a_command_that_ignores_sigterm_is_killed(tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "GRACE_SECONDS", 0.2)
    runs, todo = planned(tmp_path, IGNORES_SIGTERM, study=ONE_ARM)
    assert served_until(runs, todo[0], "trials/*/attempts/0001/process.json").kind == "stopped"
    assert not left(mark)


def test_a_command_saves_at_sigterm_and_finds_its_folder_again(tmp_path: Path) -> None:
    runs, todo = planned(tmp_path, SAVES_AT_SIGTERM, study=ONE_ARM)
    assert served_until(runs, todo[0], "trials/*/attempts/0001/folder/begun").kind == "stopped"
    assert served(runs, todo[0]).metrics == {"score": 2}
    folders = sorted(path.parent.name for path in runs.glob("trials/*/attempts/*/folder"))
    assert folders == ["0002"]


def test_no_two_processes_have_the_folder(tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of an attempt that lost the trial is ended here, and elsewhere finds no folder at its path."""
    monkeypatch.setattr(training, "ORPHAN_SECONDS", 0.1)
    runs, todo = planned(tmp_path, study=ONE_ARM)
    trial = store.trial(runs, todo[0].id)
    first = store.claim(trial, lease.Watch())
    assert first is not None
    (training.claimed_folder(first)[0] / "state").write_text("5")
    zombie = subprocess.Popen(["sleep", "600"], start_new_session=True)
    held = lease.own_lease().model_copy(update={"pid": zombie.pid, "started": lease.start_time(zombie.pid)})
    store.write_json(first.path / "process.json", held.content())
    first.release()
    threading.Thread(target=zombie.wait).start()  # as init does for a dead worker's
    assert served(runs, todo[0]).kind == "finished"
    assert zombie.wait() == -signal.SIGKILL
    assert not (first.path / "folder").exists()
    assert (trial.attempts()[-1] / "folder" / "state").read_text() == "5"


RUN = """
import sys
from pathlib import Path
from unittest.mock import Mock
from ablations.execution import runner
from ablations.execution.launch import Place
from ablations.jobs import jobs
from results import store
runs = Path(sys.argv[1])
summary = runner.run(jobs(store.read_plans(runs).readable), Place(runs, None), Mock(), 1)
assert len(summary.done) == 6, summary
"""


@pytest.mark.parametrize("strikes", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_study_of_commands_survives_kills(
    strikes: int, tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run and its worker are killed with SIGKILL; no command outlives them; the table equals a calm run's."""
    tables = {}
    for name, kills in (("calm", 0), ("killed", strikes)):
        runs, todo = planned(tmp_path / name)
        for kill in range(kills):
            monkeypatch.setenv("PAUSE", "0.2")
            run = subprocess.Popen([sys.executable, "-c", RUN, str(runs)])
            await_step(runs)
            workers = workers_of(run.pid)
            for pid in workers if kill % 2 else [*workers, run.pid]:
                os.kill(pid, signal.SIGKILL)
            if not kill % 2:
                wait_until(lambda: not left(mark), "the end of all commands")
            else:
                await_step(runs)
                run.kill()
            run.wait()
        monkeypatch.setenv("PAUSE", "0")
        if kills:
            assert subprocess.run([sys.executable, "-c", RUN, str(runs)]).returncode == 0
        else:
            assert {served(runs, job).kind for job in todo} == {"finished"}
        (plan,) = store.read_plans(runs).readable
        rows = study_table.table(load_plans(runs, [plan])[0]).rows
        tables[name] = [(row.arm, row.mean, row.sd, row.n) for row in rows]
        for job in todo:
            attempt = store.trial(runs, job.id).state().attempt
            assert attempt is not None
            assert [line.step for line in store.read_metrics(attempt)] == [1, 2, 3, 4, 5]
    assert tables["killed"] == tables["calm"]
    assert not left(mark)


def await_step(runs: Path) -> None:
    """Wait until a command has made a step more than now."""
    before = steps(runs)
    wait_until(lambda: steps(runs) > before, "a step")


def steps(runs: Path) -> int:
    return sum(path.read_text().count("\n") for path in runs.glob("trials/*/attempts/*/folder/metrics.jsonl"))
