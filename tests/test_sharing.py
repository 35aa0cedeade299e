"""A GPU shared by processes: as many small trials as their measured memory leaves room for. No GPU is needed here."""

import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_company import Quiet, jobs

from ablations import attempts, launch, machine, paces, runner, slots
from ablations.jobs import Job
from ablations.launch import Place
from ablations.paces import Device
from ablations.sharing import BUSY, Sharing, fit
from ablations.slots import Slot
from ablations.worker import Worker
from results import store
from vitcore import memory
from vitcore.config import Config
from vitcore.memory import OutOfMemory

GIB = 2**30
GPU = "NVIDIA H200"


@pytest.mark.parametrize(("free", "peak"), [(139, 2), (139, 15), (80, 80), (80, 71), (80, 72), (24, 3.3)])
def test_as_many_as_nine_tenths_of_what_is_free_hold(free: float, peak: float) -> None:
    """floor(0.9 free / peak), of trials that take the same."""
    count = math.floor(0.9 * free / peak)
    assert fit(free, [peak] * count)
    assert not fit(free, [peak] * (count + 1))


@pytest.mark.parametrize(
    ("ranks", "gpus", "cores", "number"),
    [
        (1, 0, 8, 8),
        (2, 0, 8, 4),
        (4, 0, 2, 1),
        (1, 1, 16, 16),
        (1, 4, 18, 16),
        (1, 4, 2, 4),
        (2, 4, 16, 2),
        (4, 2, 16, 0),
    ],
)
def test_no_more_trials_at_once_than_cores_or_gpus(ranks: int, gpus: int, cores: int, number: int) -> None:
    """Each process starts its kernels from a core; one of several GPUs has them alone."""
    assert machine.at_once(ranks, gpus, cores) == number


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        ("0,1", ["0", "1"]),
        ("3, 5", ["3", "5"]),
        ("GPU-1a2b,MIG-3c4d", ["GPU-1a2b", "MIG-3c4d"]),
        ("0,-1,2", ["0"]),
        ("0,,2", ["0"]),
        ("-1", []),
        ("", []),
        ("NoDevFiles", []),
    ],
)
def test_gpus_are_what_cuda_takes_for_them(monkeypatch: pytest.MonkeyPatch, visible: str, found: list[str]) -> None:
    """As CUDA's programming guide has it: those after the first name that is no GPU's are not there."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert machine.gpus() == found


def test_gpus_of_a_container_count_from_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA numbers what it finds, whichever device files a container maps."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(machine, "DEVICES", tmp_path)
    assert machine.gpus() == []
    for name in ("nvidia3", "nvidia12", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert machine.gpus() == ["0", "1"]


def known(runs: Path, *needs: tuple[Job, float, float]) -> Sharing:
    """Of a GPU with 10 GiB free: what trials take, in GiB, and FLOPs of their steps."""
    sharing = Sharing(runs)
    sharing.meet("0", GPU, 10 * GIB)
    for job, took, flops in needs:
        sharing.learn(job, int(took * GIB), flops)
    return sharing


def test_what_keeps_a_gpu_busy_has_it_alone(tmp_path: Path) -> None:
    """So has what is trained as one; the first may always begin."""
    (small,), (large,), (unknown,) = jobs(1), jobs(1, depth=2), jobs(1, depth=3)
    sharing = known(tmp_path, (small, 3.0, 1e9), (large, 3.0, 2 * BUSY))
    assert all(sharing.admits("0", [], [job]) for job in (small, large, unknown))
    assert sharing.admits("0", [[small], [small]], [small])
    assert not sharing.admits("0", [[small], [small], [small]], [small])  # 12 of 9 GiB
    assert not sharing.admits("0", [[small]], [large])
    assert not sharing.admits("0", [[large]], [unknown])
    assert not sharing.admits("0", [[small, small]], [small])
    assert not sharing.admits("0", [[small]], [small, small])
    assert not sharing.admits("1", [[small]], [small])  # whose memory nobody has told yet


def test_one_trial_that_is_not_known_is_taken_for_half_the_gpu(tmp_path: Path) -> None:
    """Or for twice the largest beside it; a second one waits until the first has told."""
    (small,), (large,), (unknown,), (other,) = (jobs(1, depth=depth) for depth in (1, 2, 3, 4))
    sharing = known(tmp_path, (small, 1.0, 1e9), (large, 3.5, 1e9))
    assert sharing.admits("0", [[small]] * 4, [unknown])  # 4 + 5 of 9 GiB
    assert not sharing.admits("0", [[small]] * 5, [unknown])
    assert not sharing.admits("0", [[large]], [unknown])  # 3.5 + 7
    assert sharing.admits("0", [[unknown], [small]], [small])
    assert not sharing.admits("0", [[unknown]], [large])
    assert not sharing.admits("0", [[unknown]], [other])


def test_processes_without_work_take_memory_too(tmp_path: Path) -> None:
    """Half a GiB each, beside the trials that are at work."""
    (job,) = jobs(1)
    sharing = known(tmp_path, (job, 3.0, 1e9))
    assert sharing.admits("0", [[job], [job]], [job], idle=0)
    assert sharing.admits("0", [[job]], [job], idle=6)
    assert not sharing.admits("0", [[job]], [job], idle=7)
    assert sharing.admits("0", [], [job], idle=100)


def test_what_was_measured_is_known_to_the_next_run(tmp_path: Path) -> None:
    """By pace, so that another seed or rate needs no trial of its own; the most that was seen counts."""
    (job,), (rate,) = jobs(1), jobs(1, lr=7e-3)
    sharing = known(tmp_path, (job, 3.0, 1e9))
    sharing.learn(rate, 2 * GIB, 1e9)
    found = paces.measured(tmp_path, GPU, paces.MEMORY)
    assert [need["bytes"] for need in found.values()] == [3 * GIB]
    assert known(tmp_path).admits("0", [[job]], [rate])
    other = Sharing(tmp_path)
    other.meet("0", "another GPU", 10 * GIB)
    assert not other.admits("0", [[job]], [rate])
    assert paces.read(tmp_path, Device(gpu=True, name=GPU)) == {}


class Started(runner.Pool):
    """A pool whose workers are on record alone."""

    def start(self, slot: Slot) -> None:
        slot.process = object()  # type: ignore[assignment]  # nothing is asked of it but whether it is there

    def send(self, slot: Slot) -> None: ...

    def at_work(self) -> list[int]:
        """How many trials each worker that was started has."""
        self.dispatch()
        return [len(slot.jobs) for slot in self.slots if slot.process is not None]

    def on(self, gpu: str) -> list[Job]:
        """What is at work there."""
        return [job for slot in self.slots if slot.gpu == gpu for job in slot.jobs]

    def begin(self) -> None:
        """All workers that are wanted, ready and with work."""
        begun = self.slots
        while begun:
            self.dispatch()
            begun = [slot for slot in self.slots if slot.process is not None and not slot.ready]
            for slot in begun:
                self.handle(slot, {"event": "ready", "device": GPU, "free": 10 * GIB})
        self.dispatch()

    def end(self, job: Job) -> None:
        """One that is at work has finished."""
        slot = next(slot for slot in self.slots if job in slot.jobs)
        self.handle(slot, {"event": "finished"})


def pool(
    folder: Path, patch: pytest.MonkeyPatch, some: Sequence[Job], workers: int, gpus: Sequence[str] = "0", fuse: int = 1
) -> Started:
    """Of so many workers on GPUs of 10 GiB."""
    for module in (slots, launch):
        patch.setattr(module, "gpus", lambda: list(gpus))
    patch.setattr(launch, "cores", lambda: 16)
    made = Started(some, Place(folder, None, fuse=fuse), slots.slots(some, workers), Quiet())
    made.on_over = lambda job: None
    return made


def arms(seeds: int, *depths: int, **settings: Any) -> list[Job]:
    """Seed by seed, as a study's trials wait."""
    by_arm = [jobs(seeds, depth=depth, device="auto", **settings) for depth in depths]
    return [job for seed in zip(*by_arm, strict=True) for job in seed]


def test_a_gpu_takes_more_once_the_first_has_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker; then, by its memory, others at once; no more than that, and than were asked for."""
    some = arms(8, 1)
    made = pool(tmp_path, monkeypatch, some, 6)
    assert [place.gpu for place in made.slots] == ["0"] * 6
    assert made.at_work() == [0]
    ready = {"event": "ready", "device": GPU, "free": 10 * GIB}
    made.handle(made.slots[0], ready)
    assert made.at_work() == [1]
    assert made.at_work() == [1]
    made.handle(made.slots[0], {"event": "memory", "took": 2 * GIB, "flops": 1e9})
    assert made.at_work() == [1, 0, 0, 0]  # 8 of 9 GiB
    for place in (3, 1, 2):
        made.handle(made.slots[place], {**ready, "free": 1})  # what those before have left
        made.dispatch()
        assert len(made.slots[place].jobs) == 1
    assert made.at_work() == [1] * 4
    made.handle(made.slots[1], {"event": "stopped"})
    assert made.at_work() == [1] * 4
    assert len(made.turns.waiting) == 4


def test_no_more_workers_are_started_than_trials_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever GPU has room for the last of them."""
    some = arms(5, 1)
    known(tmp_path, (some[0], 1.0, 1e9))
    made = pool(tmp_path, monkeypatch, some, 5, gpus="012")
    assert made.at_work() == [0, 0, 0]
    for slot in made.slots[:3]:
        made.handle(slot, {"event": "ready", "device": GPU, "free": 10 * GIB})
    assert made.at_work() == [1, 1, 1, 0, 0]


def test_arms_that_are_not_known_are_learnt_beside_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, in the order they wait; none of it waits for the GPU to be empty."""
    some = arms(3, 1, 2, 3)
    made = pool(tmp_path, monkeypatch, some, 6)
    made.begin()
    assert made.on("0") == some[:1]
    made.turns.sharing.learn(some[0], GIB // 2, 1e9)
    made.begin()
    assert made.on("0") == [some[0], some[1], some[3], some[6]]  # the second arm is new, the first is known
    made.turns.sharing.learn(some[1], GIB // 2, 1e9)
    made.begin()
    assert made.on("0") == [some[place] for place in (0, 1, 3, 6, 2, 4)]


def test_a_trial_that_does_not_fit_is_overtaken_and_has_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as there are places; then one GPU, with the fewest at work, is left to it, and the other goes on."""
    (large,), small = jobs(1, depth=2, device="auto"), jobs(20, device="auto")
    known(tmp_path, (large, 8.0, 1e9), (small[0], 4.0, 1e9))
    some = [*small[:2], large, *small[2:]]
    made = pool(tmp_path, monkeypatch, some, 4, gpus="01")
    made.begin()
    assert (made.on("0"), made.on("1")) == ([small[0], small[2]], [small[1], small[3]])
    for number in range(2):
        made.end(small[number])
        made.dispatch()
    assert (made.on("0"), made.on("1")) == ([small[4], small[2]], [small[5], small[3]])
    made.end(small[2])
    made.end(small[3])
    made.dispatch()
    assert (made.on("0"), made.on("1")) == ([small[4]], [small[5], small[6]])
    made.end(small[5])
    made.dispatch()
    assert (made.on("0"), made.on("1")) == ([small[4]], [small[7], small[6]])
    made.end(small[4])
    made.dispatch()
    assert made.on("0") == [large]


def test_what_is_overtaken_may_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU is left to a trial which another run has finished meanwhile."""
    (large,), small = jobs(1, depth=2, device="auto"), jobs(4, device="auto")
    known(tmp_path, (large, 8.0, 1e9), (small[0], 4.0, 1e9))
    made = pool(tmp_path, monkeypatch, [small[0], large, *small[1:]], 2)
    over = runner.outcome

    def outcome(runs: Path, job: Job, *more: Any) -> tuple[str, str]:
        return ("over", "finished") if job is large else over(runs, job, *more)

    monkeypatch.setattr(runner, "outcome", outcome)
    made.begin()
    assert made.on("0") == small[:2]
    assert made.tally.done == [large.id]
    assert list(made.turns.waiting) == small[2:]


def test_what_may_be_trained_as_one_waits_for_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing is known of its memory, and of whether that pays: then it goes beside others."""
    (single,), kin = jobs(1, depth=2, device="auto"), jobs(4, device="auto")
    known(tmp_path, (single, 1.0, 1e9))
    made = pool(tmp_path, monkeypatch, [single, *kin], 5, fuse=2)
    made.begin()
    assert made.on("0") == [single]
    made.turns.apart.add("of another arm")
    made.begin()
    assert made.on("0") == [single, kin[0]]


def test_out_of_memory_beside_others_is_tried_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits where it waited, has a GPU to itself, and is told so: what fails then has failed. Its like is larger."""
    some = arms(5, 1)
    known(tmp_path, (some[0], 2.0, 1e9))
    made = pool(tmp_path, monkeypatch, some, 4)
    made.begin()
    assert made.on("0") == some[:4]
    assert all(made.order(slot)["shared"] for slot in made.slots)
    made.handle(made.slots[1], {"event": "crowded", "cause": "out of memory at micro-batch 1"})
    assert list(made.turns.waiting) == [some[1], some[4]]
    made.dispatch()
    assert made.on("0") == [some[0], some[2], some[3]]  # of 4 GiB each
    for job in (some[0], some[2]):
        made.end(job)
    made.dispatch()
    assert made.on("0") == [some[4], some[3]]
    for job in (some[3], some[4]):
        made.end(job)
    made.dispatch()
    assert made.on("0") == [some[1]]
    assert not any(made.order(slot)["shared"] for slot in made.slots if slot.jobs)
    made.turns.waiting.append(some[0])
    made.dispatch()
    assert made.on("0") == [some[1]]


def test_a_gpu_or_core_of_its_own_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs out of memory there has failed at once."""
    for gpus in ("01", ""):
        made = pool(tmp_path, monkeypatch, arms(2, 1), 2, gpus=gpus)
        made.begin()
        assert [made.order(slot)["shared"] for slot in made.slots] == [False, False]


def worker(folder: Path, channel: io.StringIO) -> Worker:
    order: dict[str, Any] = {"plugins": [], "checkpoints": None, "keep_weights": "all", "gpu": False}
    return Worker({"runs": folder, "data_dir": None, **order}, channel)


def events(channel: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in channel.getvalue().splitlines()]


@pytest.mark.parametrize("shared", [True, False])
def test_what_neighbours_took_is_held_against_no_trial(
    shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No attempt of it has failed, and the next goes on from what it saved; alone it has."""

    def too_much(*_: Any, **__: Any) -> Any:
        raise OutOfMemory("out of memory at micro-batch 1")

    monkeypatch.setattr("ablations.worker.train", too_much)
    (job,), channel = jobs(1), io.StringIO()
    made = worker(tmp_path, channel)
    made.shared = shared
    made.serve(json.loads(json.dumps(asdict(job))))
    last = events(channel)[-1]
    assert (last["event"], last["cause"]) == ("crowded" if shared else "failed", "out of memory at micro-batch 1")
    (attempt,) = store.trial(tmp_path, job.id).attempts()
    ended = attempts.how(attempt, made.code)
    assert (ended is None) == shared
    assert (attempt / "failure.json").exists() != shared
    assert runner.outcome(tmp_path, job, made.code)[0] == ("todo" if shared else "failed")


def test_an_eval_is_not_failed_by_neighbours_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is still owed, and how often it was begun is forgotten; alone it has failed."""

    def too_much(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("ablations.evaluating.evaluate", too_much)
    (job,), channel = jobs(1), io.StringIO()
    owing = job.also(["fewshot"])
    for shared in [True] * 4 + [False]:
        made = worker(tmp_path, channel)
        made.shared = shared
        made.serve(json.loads(json.dumps(asdict(owing))))
        assert events(channel)[-1]["event"] == ("crowded" if shared else "failed")
        assert runner.outcome(tmp_path, owing, made.code)[0] == ("todo" if shared else "failed")


def test_cores_are_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU each core has its worker at once, whatever is known."""
    for module in (slots, launch):
        monkeypatch.setattr(module, "gpus", list)
    monkeypatch.setattr(launch, "cores", lambda: 3)
    some = jobs(8)
    places = slots.slots(some, None)
    made = Started(some, Place(tmp_path, None), places, Quiet())
    assert made.at_work() == [0, 0, 0]
    for place in places:
        made.handle(place, {"event": "ready"})
    assert made.at_work() == [1, 1, 1]


def test_a_worker_tells_what_a_trial_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its first evaluation, which may take more than a step, and where it takes more later; nothing without a
    GPU."""
    channel = io.StringIO()
    made = worker(tmp_path, channel)
    made.gauged = Config(**jobs(1)[0].config)
    for taken, accuracy in [(None, 0.5), (5 * GIB, None), (5 * GIB, 0.5), (5 * GIB, 0.6), (6 * GIB, 0.6)]:
        monkeypatch.setattr(memory, "peak", lambda taken=taken: taken)
        made.last_report = math.inf  # no progress is due
        made.report(1, accuracy)
    told = events(channel)
    assert [(event["event"], event["took"]) for event in told] == [("memory", 5 * GIB), ("memory", 6 * GIB)]
    assert all(0 < event["flops"] < BUSY for event in told)


@pytest.mark.parametrize("trained", [True, False])
def test_evals_that_are_owed_are_told_of_too(trained: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the trial is over; where nothing was trained they say nothing of what a trial takes."""
    taken = 2 * GIB

    def larger(*_: Any) -> None:
        nonlocal taken
        taken = 7 * GIB

    (job,), channel = jobs(1), io.StringIO()
    made = worker(tmp_path, channel)
    monkeypatch.setattr(memory, "peak", lambda: taken)
    monkeypatch.setattr("ablations.worker.device_of", lambda config: "cuda")
    monkeypatch.setattr("ablations.evaluating.evaluate", larger)
    if not trained:
        made.serve(json.loads(json.dumps(asdict(job))))
        channel.truncate(channel.seek(0))
    made.serve(json.loads(json.dumps(asdict(job.also(["fewshot"])))))
    told = [event.get("took", event["event"]) for event in events(channel)]
    assert [each for each in told if each not in ("progress", "started")] == (
        [2 * GIB, 7 * GIB, "finished"] if trained else ["finished"]
    )


def test_what_stays_on_the_gpu_tells_trials_apart(tmp_path: Path) -> None:
    """A tenth of the images takes less than all, and evals may take more than a step: each is measured."""
    (job,), (tenth,) = jobs(1), jobs(1, data_fraction=0.1)
    sharing = known(tmp_path, (tenth, 1.0, 1e9))
    assert sharing.knows(tenth)
    assert not sharing.knows(job)
    assert not sharing.knows(jobs(1, data_fraction=0.1, val_fraction=0.2)[0])
    assert not sharing.knows(replace(tenth, id="another", evals=("test@16",)))
    assert paces.key(job.config) == paces.key(tenth.config)
