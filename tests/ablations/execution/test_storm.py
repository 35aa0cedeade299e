"""The demo under SIGKILLs: `make test-storm`, minutes long."""

import os
import random
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from run_trials import workers_of
from small_study import command, results
from waits import started

KILLS = 20
STUDIES = "position-embedding pooling patch-size data-fraction hybrid-stem"


def start(runs: Path, processes: ExitStack) -> "subprocess.Popen[str]":
    words = command("run", *STUDIES.split(), "--runs", str(runs))
    return processes.enter_context(started(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))


@pytest.mark.slow
def test_demo_under_twenty_kills_gives_the_same_results(tmp_path: Path) -> None:
    """After 20 SIGKILLs of workers and of the run at random times, metrics and weights are bit-identical."""
    calm = Path(os.environ.get("ABLATE_CALM_RUNS") or tmp_path / "calm").absolute()  # a finished demo saves half
    storm = tmp_path / "storm"
    choose = random.Random(0)
    killed = {"worker": 0, "run": 0}
    with ExitStack() as processes:
        assert start(calm, processes).wait() == 0
        run = start(storm, processes)
        while sum(killed.values()) < KILLS:
            time.sleep(choose.uniform(4, 14))
            below = workers_of(run.pid)
            assert run.poll() is None, "the storm must end before the run does"
            if below and choose.random() < 0.75:
                os.kill(choose.choice(below), signal.SIGKILL)
                killed["worker"] += 1
            else:
                run.kill()
                run.wait()
                killed["run"] += 1
                run = start(storm, processes)
        assert run.wait() == 0
    print(f"killed with SIGKILL: {killed}; trials {len(results(storm))}")
    assert results(storm) == results(calm)
