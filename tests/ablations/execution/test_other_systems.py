"""Systems without /proc, /sys and calls that only Linux has, such as macOS."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import synthetic

from ablations import machine
from results.store import Trial, claim, lease
from vitcore.runtime import compile_cache, host

LINUX = ("/proc", "/sys")


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(read: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *rest: Any, **named: Any) -> Any:
            if str(path).startswith(LINUX):
                raise FileNotFoundError(2, "No such file or directory", str(path))
            return read(path, *rest, **named)

        return call

    monkeypatch.setattr(Path, "read_text", hidden(Path.read_text))
    monkeypatch.setattr(os, "readlink", hidden(os.readlink))
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)


def test_cores_memory_and_processor_are_known() -> None:
    assert machine.cores() == host.host_cores() == os.cpu_count()
    assert min(host.host_limits()) > 2**28
    assert host.processor()
    assert len(compile_cache.instruction_set.__wrapped__()) == 8
    assert machine.oom_kills() == 0


def test_a_lease_is_judged_by_its_changes(tmp_path: Path) -> None:
    trial = Trial(tmp_path / ("0" * 12))
    trial.create({"config": {}})
    with synthetic.claimed(trial):
        assert lease.is_held(trial.attempts()[0]) is None
        assert claim(trial, lease.Watch()) is None
    assert lease.is_held(trial.attempts()[0]) is False
