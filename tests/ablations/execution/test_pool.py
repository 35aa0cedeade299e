"""The pool of workers: their number, their GPUs and their trials. No GPU is needed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import closed_form
import pytest
from run_trials import Quiet, curve_job, job_of
from waits import PATIENCE, left

from ablations import machine
from ablations.execution import slots
from ablations.execution.launch import Place, WorkerProcess
from ablations.execution.messages import Ended, Event, Exited, Heard, Note, Ready, Said, Started
from ablations.execution.pool import CRASHED_STARTS, DEATHS, LONGEST_LOOK, Pool, RunSummary, Slot
from ablations.jobs import Job
from ablations.trainables.trainable import TrainingContext
from ablations.trainables.vit.training import warn_of
from results.store.standing import Kind, Standing, Standings, Start
from vitcore.config import Config


@pytest.mark.parametrize(
    ("ranks", "gpus", "cores", "number"),
    [(1, 0, 8, 8), (2, 0, 8, 4), (4, 0, 2, 1), (1, 1, 16, 1), (1, 4, 2, 4), (2, 4, 16, 2), (4, 2, 16, 0)],
)
def test_one_trial_a_gpu_or_a_core_by_default(ranks: int, gpus: int, cores: int, number: int) -> None:
    """A trial on several GPUs takes as many GPUs, or as many cores without GPUs."""
    assert machine.default_workers(ranks, gpus, cores) == number


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        ("3, 5", ["3", "5"]),
        ("GPU-1a2b,MIG-3c4d", ["GPU-1a2b", "MIG-3c4d"]),
        ("0,-1,2", ["0"]),
        ("0,,2", ["0"]),
        ("", []),
        ("NoDevFiles", []),
    ],
)
def test_gpus_are_what_cuda_takes_for_them(monkeypatch: pytest.MonkeyPatch, visible: str, found: list[str]) -> None:
    """CUDA ignores all names after the first invalid one (CUDA programming guide)."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert machine.gpus() == found


def test_gpus_of_a_container_count_from_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA numbers the GPUs that it finds, whichever device files a container maps."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(machine, "DEVICES", tmp_path)
    assert machine.gpus() == []
    for name in ("nvidia3", "nvidia12", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert machine.gpus() == ["0", "1"]


def test_the_end_of_a_process_is_named_also_for_signals_without_a_name() -> None:
    texts = {0: "status 0", 3: "status 3", -9: "signal SIGKILL", -34: "signal SIGRTMIN", -40: "signal 40"}
    assert {code: machine.ended_by(code) for code in texts} == texts


FORKS = "import os, time\nif not os.fork(): time.sleep(600), os._exit(0)\nos.kill(os.getpid(), 9)"


def test_death_of_a_worker_is_noticed_although_its_child_lives(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that a function forked has all pipes of the worker."""
    monkeypatch.setenv("PYTHONPATH", closed_form.HELPERS)
    job = curve_job(act=FORKS)
    events: SimpleQueue[tuple[WorkerProcess, Heard]] = SimpleQueue()
    worker = WorkerProcess(Place(tmp_path, None, trainable=job.trainable), {}, events)
    worker.send(job)
    heard = [events.get(timeout=PATIENCE)[1]]
    while heard[-1] not in (Started(), Exited(1)):
        heard.append(events.get(timeout=PATIENCE)[1])
    while not isinstance(heard[-1], Exited):
        heard.append(events.get(timeout=60)[1])
    assert heard[-1] == Exited(-9)
    assert left(mark)
    worker.close()


def jobs(count: int) -> list[Job]:
    settings = {"width": 16, "heads": 2, "depth": 1, "patch": 4, "pool": "gap", "steps": 6, "batch": 16}
    return [job_of(Config(**settings, seed=seed)) for seed in range(count)]


@pytest.mark.parametrize(
    ("gpus", "asked", "trials_per_gpu", "of_workers"),
    [
        ("0,1", None, 1, "01"),
        ("0,1", None, 2, "0101"),
        ("0,1", 5, 1, "01010"),
        ("0,1", 1, 2, "0"),
        ("0", 12, 1, "0" * 9),
    ],
)
def test_workers_are_spread_over_the_gpus(
    monkeypatch: pytest.MonkeyPatch, gpus: str, asked: int | None, trials_per_gpu: int, of_workers: str
) -> None:
    monkeypatch.setenv(slots.VISIBLE, gpus)
    found = slots.make_slots(jobs(9), asked, trials_per_gpu)
    assert "".join(slot.environment[slots.VISIBLE] for slot in found) == of_workers


def pool(folder: Path, some: Sequence[Job], workers: int) -> Pool:
    """Return a pool with objects in place of worker processes."""
    places, worker = [Slot(number, {}) for number in range(workers)], {"send": lambda job: None, "close": lambda: None}
    made = Pool(some, Place(folder, None), places, Quiet(), lambda job: None, RunSummary())
    made.start = lambda slot: SimpleNamespace(**worker)
    return made


def at_work(made: Pool) -> list[Job | None]:
    """Let time pass; return the trial of each worker that was started."""
    made.tick()
    return [slot.trial and slot.trial.job for slot in made.slots if slot.worker is not None]


def hear(made: Pool, number: int, event: Heard) -> None:
    made.handle(made.slots[number].worker, event)


def test_no_more_workers_are_started_than_trials_wait(tmp_path: Path) -> None:
    first, second = some = jobs(2)
    made = pool(tmp_path, some, 4)
    assert at_work(made) == [None, None]
    hear(made, 1, Ready())
    assert at_work(made) == [None, first]
    hear(made, 0, Ready())
    assert at_work(made) == [second, first]
    hear(made, 1, Ended("stopped"))
    assert at_work(made) == [second, first], "a stopped trial waits again"


def test_killed_starts_are_not_counted_as_crashes(tmp_path: Path) -> None:
    """A slot survives fewer than 20 SIGKILLs and fewer than three crashes in a row, whatever their order."""
    made = pool(tmp_path, jobs(2), 1)
    for code in (-9, -9, -9, 1, -9, 0):
        made.tick()
        hear(made, 0, Exited(code))
    made.tick()
    with pytest.raises(ValueError, match=r"^workers do not start: status 1$"):
        hear(made, 0, Exited(1))


def test_slot_whose_workers_do_not_start_is_given_up_alone(tmp_path: Path) -> None:
    """The message has the last line that a worker wrote; the other slot trains."""
    made = pool(tmp_path, jobs(2), 2)
    for _ in range(CRASHED_STARTS):
        made.tick()
        hear(made, 1, Said("OSError: no such library"))
        hear(made, 1, Exited(1))
    made.tick()
    assert [slot.number for slot in made.slots] == [0]
    assert made.display.said == ["worker 2 does not start: OSError: no such library; 1 go on without it"]


def test_trial_whose_workers_die_before_it_begins_is_given_up(tmp_path: Path) -> None:
    """Deaths count anew once an attempt has begun, as the disk records that attempt."""
    (job,) = some = jobs(1)
    made = pool(tmp_path, some, 1)
    for events in [[Ready()], [Ready(), Started()], *[[Ready()]] * (DEATHS - 1)]:
        assert made.has_work
        made.tick()
        for event in events:
            hear(made, 0, event)
            made.tick()
        hear(made, 0, Exited(7))
    assert made.summary.interrupted == {job.id: "its workers died 5 times before it began, the last of status 7"}
    assert not made.has_work


def test_run_that_was_stopped_kills_no_worker(tmp_path: Path) -> None:
    """Time in which this process itself was suspended does not count as a worker's silence."""
    made = pool(tmp_path, jobs(1), 1)
    made.tick()
    made.looked -= 10_000
    made.tick()
    assert made.slots[0].silent < 2 * LONGEST_LOOK


def test_workers_leave_before_the_last_trial_is_published(tmp_path: Path) -> None:
    """A study is published after its last trial; workers that have nothing left to train exit in the meantime."""
    some, order = jobs(2), list[Any]()
    made = pool(tmp_path, some, 1)
    made.on_over = order.append
    made.tick()
    made.slots[0].worker.close = lambda: order.append("closed")
    hear(made, 0, Ready())
    for _ in some:
        made.tick()
        hear(made, 0, Ended("finished"))
    assert order == [some[0], "closed", some[1]]


@pytest.fixture
def stands(monkeypatch: pytest.MonkeyPatch) -> dict[str, Standing]:
    """Standings by trial id, which replace the disk's."""
    told: dict[str, Standing] = {}
    honest = Job.standing
    monkeypatch.setattr(Job, "standing", lambda job, known: told.get(job.id) or honest(job, known))
    return told


def test_what_another_run_finished_or_trains_goes_to_no_worker(tmp_path: Path, stands: dict[str, Standing]) -> None:
    """The pool waits while another run trains a trial, though its parent diverged; then it interrupts the trial."""
    over, held, free = some = jobs(3)
    start = Start(Kind.BLOCKED, "starts from stage a, which diverged", open=("0" * 12,))
    running = replace(held.standing(Standings(tmp_path)), kind=Kind.RUNNING, start=start)
    stands[over.id] = replace(over.standing(Standings(tmp_path)), kind=Kind.FINISHED)
    stands[held.id] = running
    made = pool(tmp_path, some, 1)
    made.tick()
    hear(made, 0, Ready())
    assert at_work(made) == [free]
    assert made.summary == RunSummary(done=[over.id])
    assert [*made.trials] == [free.id, held.id]
    stands[held.id] = replace(running, kind=Kind.LOST)
    made.trials[held.id].due = 0.0
    assert next(made.ready_trials(0.0), None) is None
    assert made.summary.interrupted == {held.id: start.why}


def test_why_steps_are_not_as_by_default_is_told_once(tmp_path: Path) -> None:
    """The run shows each reason once, and none for a setting of the config."""
    events: list[Event] = []
    context = TrainingContext(warn=lambda text: events.append(Note(text)))
    for facts in (
        {"cuda_graph": "the whole step", "compile_seconds": 31.0},
        {"cuda_graph": "none: cuda_graph=off"},
        {"cuda_graph": "none: RuntimeError: operation not permitted"},
        {"cuda_graph": "none: RuntimeError: operation not permitted", "compile": False, "compile_failed": "no gcc"},
    ):
        warn_of(facts, context)
    made = pool(tmp_path, jobs(1), 1)
    made.tick()
    for event in events:
        hear(made, 0, event)
    said = made.display.said
    assert len(said) == 2
    assert "not one CUDA graph: RuntimeError: operation not permitted" in " ".join(said)
    assert "trained uncompiled: no gcc" in " ".join(said)
