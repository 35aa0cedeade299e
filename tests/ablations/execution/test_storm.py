"""The demo under SIGKILLs: `make test-storm`, minutes long."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from results import store

KILLS = 20
STUDIES = ["position-embedding", "pooling", "patch-size", "data-fraction", "hybrid-stem"]


def start(runs: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "ablations.cli", "run", *STUDIES, "--runs", str(runs)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def workers(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split()]


def tables(runs: Path) -> object:
    command = [sys.executable, "-m", "ablations.cli", "table", *STUDIES, "--json", "--runs", str(runs)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def weights(runs: Path) -> dict[str, str]:
    states = {path.name: store.Trial(path).state() for path in (runs / "trials").iterdir()}
    return {name: state.result.weights_sha256 for name, state in states.items() if state.result}


@pytest.mark.slow
def test_demo_under_twenty_kills_gives_the_same_tables(tmp_path: Path) -> None:
    """After 20 SIGKILLs of workers and of the run at random times, tables and weights are bit-identical."""
    calm = Path(os.environ.get("ABLATE_CALM_RUNS") or tmp_path / "calm").absolute()  # a finished demo saves half
    assert start(calm).wait() == 0
    choose = random.Random(0)
    storm = tmp_path / "storm"
    run = start(storm)
    killed = {"worker": 0, "run": 0}
    while sum(killed.values()) < KILLS:
        time.sleep(choose.uniform(4, 14))
        below = workers(run.pid)
        assert run.poll() is None, "the storm must end before the run does"
        if below and choose.random() < 0.75:
            os.kill(choose.choice(below), signal.SIGKILL)
            killed["worker"] += 1
        else:
            run.kill()
            run.wait()
            killed["run"] += 1
            run = start(storm)
    assert run.wait() == 0
    print(f"killed with SIGKILL: {killed}; trials {len(weights(storm))}")
    assert tables(storm) == tables(calm)
    assert weights(storm) == weights(calm)
