"""What a system without /proc, /sys and Linux's own calls, such as macOS, is asked for instead."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import synthetic

from ablations.execution import machine
from results.store import Trial, lease, record
from vitcore.runtime import compile_cache, memory, memory_limits, processor

LINUX = ("/proc", "/sys")


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No /proc, no /sys, no CPU affinity."""
    read, link = Path.read_text, os.readlink

    def read_text(path: Path, *rest: Any, **named: Any) -> str:
        if str(path).startswith(LINUX):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return read(path, *rest, **named)

    def readlink(path: Any, *rest: Any, **named: Any) -> Any:
        if str(path).startswith(LINUX):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return link(path, *rest, **named)

    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr(os, "readlink", readlink)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)


def test_cores_memory_and_processor_are_known() -> None:
    """All cores, the machine's memory, and a name; no process is killed by a control group."""
    assert machine.cores() == memory.host_cores() == os.cpu_count()
    assert min(memory_limits.host_limits()) > 2**28
    assert processor.processor()
    assert len(compile_cache.processor.__wrapped__()) == 8
    assert machine.oom_kills() == 0


def test_results_are_read_in_one_process() -> None:
    """Forking is safe on Linux alone."""
    assert record.at_once(100_000) == 1


def test_a_lease_is_judged_by_its_changes(tmp_path: Path) -> None:
    """Nobody can tell whether its process lives, so it is neither dead nor alive at once."""
    trial = Trial(tmp_path / ("0" * 12))
    trial.create({"config": {}})
    with synthetic.claimed(trial):
        assert lease.held(trial.attempts()[0]) is None
        assert trial.claim(lease.Watch()) is None
    assert lease.held(trial.attempts()[0]) is False
