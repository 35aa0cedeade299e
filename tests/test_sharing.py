"""A GPU shared by processes: as many small trials as their measured memory leaves room for. No GPU is needed here."""

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from test_company import Quiet, jobs

from ablations import launch, machine, paces, runner
from ablations.jobs import Job
from ablations.launch import Place
from ablations.paces import Device
from ablations.sharing import BUSY, Sharing, fit
from ablations.worker import Worker
from vitcore import memory
from vitcore.config import Config

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


def test_a_trial_that_is_not_known_has_the_gpu_alone(tmp_path: Path) -> None:
    """So has one that keeps it busy, and what is trained as one; the first may always begin."""
    (small,), (large,), (unknown,) = jobs(1), jobs(1, depth=2), jobs(1, depth=3)
    sharing = known(tmp_path, (small, 3.0, 1e9), (large, 3.0, 2 * BUSY))
    assert all(sharing.admits("0", [], [job]) for job in (small, large, unknown))
    assert sharing.admits("0", [[small], [small]], [small])
    assert not sharing.admits("0", [[small], [small], [small]], [small])  # 12 of 9 GiB
    assert not sharing.admits("0", [[small]], [large])
    assert not sharing.admits("0", [[small]], [unknown])
    assert not sharing.admits("0", [[unknown]], [small])
    assert not sharing.admits("0", [[small, small]], [small])
    assert not sharing.admits("0", [[small]], [small, small])
    assert not sharing.admits("1", [[small]], [small])  # whose memory nobody has told yet


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

    def start(self, slot: runner.Slot) -> None:
        slot.process = object()  # type: ignore[assignment]  # nothing is asked of it but whether it is there

    def send(self, slot: runner.Slot) -> None: ...

    def at_work(self) -> list[int]:
        """How many trials each worker that was started has."""
        self.dispatch()
        return [len(slot.jobs) for slot in self.slots if slot.process is not None]


def test_a_gpu_takes_more_once_the_first_has_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker; then, by its memory, others one after the other; no more than that, and than were asked for."""
    for module in (runner, launch):
        monkeypatch.setattr(module, "gpus", lambda: ["0"])
    monkeypatch.setattr(launch, "cores", lambda: 16)
    some = jobs(8, device="auto")
    places = runner.slots(some, 6)
    assert [place.gpu for place in places] == ["0"] * 6
    pool = Started(some, Place(tmp_path, None, fuse=1), places, Quiet())
    assert pool.at_work() == [0]
    ready = {"event": "ready", "device": GPU, "free": 10 * GIB}
    pool.handle(places[0], ready)
    assert pool.at_work() == [1]
    assert pool.at_work() == [1]
    pool.handle(places[0], {"event": "memory", "took": 2 * GIB, "flops": 1e9})
    for count in (2, 3, 4):
        assert pool.at_work() == [1] * (count - 1) + [0]
        pool.handle(places[count - 1], {**ready, "free": 1})  # what those before have left
        assert pool.at_work()[:count] == [1] * count
    assert pool.at_work() == [1] * 4  # 8 of 9 GiB
    pool.handle(places[1], {"event": "stopped"})
    assert pool.at_work() == [1] * 4
    assert len(pool.waiting) == 4


def test_cores_are_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU each core has its worker at once, whatever is known."""
    for module in (runner, launch):
        monkeypatch.setattr(module, "gpus", list)
    monkeypatch.setattr(launch, "cores", lambda: 3)
    some = jobs(8)
    places = runner.slots(some, None)
    pool = Started(some, Place(tmp_path, None), places, Quiet())
    assert pool.at_work() == [0, 0, 0]
    for place in places:
        pool.handle(place, {"event": "ready"})
    assert pool.at_work() == [1, 1, 1]


def test_a_worker_tells_once_what_a_trial_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its first evaluation, which may take more than a step; nothing where there is no GPU."""
    channel = io.StringIO()
    order: dict[str, Any] = {"plugins": [], "checkpoints": None, "keep_weights": "all", "gpu": False}
    worker = Worker({"runs": tmp_path, "data_dir": None, **order}, channel)
    config = Config(**jobs(1)[0].config)
    for taken in (None, 5 * GIB):
        monkeypatch.setattr(memory, "peak", lambda taken=taken: taken)
        worker.gauged = config
        for accuracy in (None, 0.5, 0.6):
            worker.last_report = math.inf  # no progress is due
            worker.report(1, accuracy)
    (event,) = map(json.loads, channel.getvalue().splitlines())
    assert event == {"event": "memory", "took": 5 * GIB, "flops": pytest.approx(event["flops"])}
    assert 0 < event["flops"] < BUSY
