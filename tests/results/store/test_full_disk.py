"""A full disk: the old checkpoint stays, the trial waits or is interrupted, nothing corrupt is ever read."""

import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import synthetic
from run_trials import Quiet, job_of, outcomes

from ablations.execution import runner
from ablations.execution.launch import Place
from commonfloor.files import Patience
from results import store
from vitcore.config import Config

MEGABYTES = 4


class Disk:
    """A small file system that can be filled to the last byte."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ballast = folder, folder / "ballast"

    def fill(self) -> None:
        with open(self.ballast, "ab", buffering=0) as file:
            for size in (65536, 4096, 1):
                with suppress(OSError):
                    while file.write(bytes(size)):
                        pass

    def free(self) -> None:
        self.ballast.unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Mount a tmpfs of some megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield Disk(folder)
    subprocess.run(["umount", "-l", str(folder)], check=True)


def storm(disk: Disk, fills: int, display: Quiet, over: threading.Event) -> None:
    """Fill the disk each time that the trial has written more, and free it after a write has failed."""
    choose = random.Random(1)
    for _ in range(fills):
        before = written(disk)
        while written(disk) <= before:
            if over.wait(0.02):
                return
        disk.fill()
        while not has_waited(display) and not over.wait(0.02):
            pass
        over.wait(choose.uniform(0.5, 3.0))
        disk.free()


def written(disk: Disk) -> int:
    """Return the bytes of the curves of all attempts."""
    return sum(curve.stat().st_size for curve in disk.folder.glob("runs/trials/*/attempts/*/metrics.jsonl"))


def has_waited(display: Quiet) -> bool:
    return any("waits: no space left on device" in line for line in display.said)


@pytest.mark.slow
@pytest.mark.parametrize("patience", ["60", "0.2"])
def test_full_disks_leave_no_trace(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: str) -> None:
    """Trials that wait or are interrupted end with the weights and curves of a disk that was never full."""
    config = Config(width=16, depth=1, heads=2, patch=2, pool="gap", steps=1200, batch=16, evaluations=40)
    one = job_of(config)
    runner.run([one], Place(tmp_path / "calm", None), Quiet())
    monkeypatch.setenv("ABLATE_FULL_DISK_SECONDS", patience)
    over, display = threading.Event(), Quiet()
    filler = threading.Thread(target=storm, args=(disk, 4, display, over))
    filler.start()
    try:
        for _ in range(60):
            tally = runner.run([one], Place(disk.folder / "runs", None), display)
            assert not tally.failed
            if tally.done:
                break
            assert "No space left on device" in tally.interrupted[one.id]
            time.sleep(0.2)
    finally:
        over.set()
        filler.join()
    assert outcomes(disk.folder / "runs", [one]) == outcomes(tmp_path / "calm", [one])
    assert has_waited(display)
    if patience == "60":
        assert not any("interrupted" in line for line in display.said)


def test_torn_write_is_undone(disk: Disk) -> None:
    """On a full disk a line is written whole or not at all, and the last checkpoint stays."""
    trial = store.trial(disk.folder, "0123456789ab")
    trial.create({"config": {}})
    with synthetic.claimed(trial) as attempt:
        attempt.log({"step": 1, "x" * 5000: 1.0})
        attempt.save_checkpoint(1, b"first")
        disk.fill()
        for write in (
            lambda: attempt.log({"step": 2, "y" * 50_000: 1.0}),
            lambda: attempt.save_checkpoint(2, b"z" * 50_000),
            lambda: attempt.save_weights(b"w" * 50_000),
        ):
            with pytest.raises(OSError, match="No space left"):
                write()
        assert [line.step for line in store.read_metrics(attempt.path)] == [1]
        assert [file.name[:9] for file in trial.checkpoints()] == ["000000001"]
        disk.free()
        attempt.log({"step": 2})
        attempt.save_checkpoint(2, b"second")
    assert [line.step for line in store.read_metrics(attempt.path)] == [1, 2]
    assert not list(disk.folder.rglob(".*safetensors*"))


@pytest.mark.parametrize(("seconds", "number", "tries"), [(60, 28, 3), (-1, 28, 1), (60, 5, 1)])
def test_patience_ends(seconds: float, number: int, tries: int) -> None:
    """Waiting ends when told to stop or after its time; other errors than a full disk (28) are raised at once."""
    made, told = [], list[str]()

    def write() -> None:
        made.append(1)
        raise OSError(number, os.strerror(number))

    with pytest.raises(OSError, match=os.strerror(number)):
        Patience(seconds, lambda: len(made) == 3, told.append, pause=0)(write)
    assert (len(made), told) == (tries, [os.strerror(number)] * (tries - 1))
