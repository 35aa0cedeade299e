"""A submitted study under kills and preemption: `make test-slurm-storm`, minutes long."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from disturbance import Storm, allow_urgent, resume
from small_study import PROFILE, SUBMIT, Result, logs, published, results, run_here, run_on, trials, write

from slurm.devcluster import Cluster, Settings

pytestmark = pytest.mark.slow

TRIALS, STEPS = 40, 150
DECK = {"worker": 18, "share": 6, "last": 6, "slurmctld": 3, "REQUEUE": 3, "CANCEL": 2}
SECONDS = 2400.0  # far more than it takes where nothing else runs


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory, slurm_installed: None) -> dict[str, Result]:
    """Return the study's results without disturbance."""
    folder = tmp_path_factory.mktemp("calm")
    write(folder, STEPS, seeds=TRIALS // 2)
    return run_here(folder)


@pytest.fixture(params=["five jobs at most", "neither limit nor slurmdbd"])
def stormy(request: pytest.FixtureRequest, folder: Path) -> Iterator[Cluster]:
    limited = request.param == "five jobs at most"
    with Cluster(folder, Settings(max_submit=5 if limited else None, accounting=limited, requeue_delay=8)) as running:
        if limited:
            allow_urgent(running)
        yield running


def test_storm_changes_no_result(tmp_path: Path, stormy: Cluster, calm: dict[str, Result]) -> None:
    """After one submit, 33 SIGKILLs and 5 preemptions, each of 40 results is published once and bit-identical."""
    write(tmp_path, STEPS, PROFILE.replace("time: 5", "time: 1, parallel: 3"), seeds=TRIALS // 2)
    began = time.monotonic()
    run_on(stormy, tmp_path, *SUBMIT)
    runs = tmp_path / "runs"
    storm, most = Storm(stormy, runs, DECK), 0
    queued = ["the submission"]
    while queued and time.monotonic() - began < SECONDS:
        queued = storm.queue()
        most = max(most, len(queued))
        resume(stormy)
        if storm.share_dealt <= len(results(runs)) / (0.8 * TRIALS):  # as quick as the trials are, on any machine
            storm.strike()
        time.sleep(0.3)
    tell(storm, runs, time.monotonic() - began, most)
    assert results(runs) == calm, logs(runs)
    assert published(runs) == [1] * TRIALS
    assert (runs / "report.html").exists()
    assert storm.over
    assert stormy.settings.max_submit is None or most <= stormy.settings.max_submit


def tell(storm: Storm, runs: Path, seconds: float, most: int) -> None:
    attempts = Counter(len(trial.attempts()) for trial in trials(runs))
    print(
        f"\n{len(results(runs))} results in {seconds:.0f} s, one submit; disturbed: {dict(storm.done)},"
        f" left: {+storm.deck}; arrays handed over: {len(list(runs.glob('submissions/*/arrays/*')))},"
        f" most jobs at once: {most}; trials by attempts: {dict(sorted(attempts.items()))}"
    )
