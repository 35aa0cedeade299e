"""The effect of a profile's keys on the jobs of a submission, on a real SLURM."""

from pathlib import Path

import pytest
from small_study import PROFILE, SUBMIT, Ablate, logs, published, results, write
from waits import await_report, close, queued, reopen

from slurm.devcluster import Cluster, until

WRAPPER = """#!/bin/sh
echo "$SLURM_CPU_BIND_TYPE $*" >> {calls}
shift
exec "$@"
"""


@pytest.fixture
def closed(cluster: Cluster) -> Cluster:
    """Return the cluster, which accepts jobs and starts none."""
    close(cluster)
    return cluster


def keys(more: str) -> str:
    return PROFILE.replace("}", f", {more}}}")


def test_jobs_show_their_study_and_their_users_comment(tmp_path: Path, ablate: Ablate, closed: Cluster) -> None:
    """The name begins with the study, and the comment ends with the profile's; `status` finds the jobs."""
    write(tmp_path, profile=keys(f"comment: main --output={tmp_path}/x"), seeds=1)
    ablate(*SUBMIT)
    lines = queued(closed, "%j|%k")
    assert len(lines) == 2
    for line in lines:
        name, _, comment = line.partition("|")
        assert name.startswith("s@r:ablate:")
        assert comment == f"{name.removeprefix('s@r:')} main --output={tmp_path}/x"
    assert "queued" in ablate("status", "s", "--recipe", "r.yaml").stdout
    assert "2 already queued, 0 submitted" in ablate(*SUBMIT).stdout


def test_begin_and_dependency_hold_for_what_submit_hands_over(tmp_path: Path, ablate: Ablate, closed: Cluster) -> None:
    """The trials wait for both; the last job waits only for the trials."""
    first = closed.sbatch("--hold", "--wrap=true")
    write(tmp_path, profile=keys(f"begin: now+2hours, dependency: 'afterok:{first}'"), seeds=1)
    ablate(*SUBMIT)
    waiting = sorted(line for line in queued(closed, "%F|%E|%V|%S") if not line.startswith(f"{first}|"))
    (array, on, submitted, start), (_, last_on, _, last_start) = (line.split("|") for line in waiting)
    assert on.startswith(f"afterok:{first}")
    assert start > submitted
    assert last_on.startswith(f"afterany:{array}")
    assert last_start in ("N/A", submitted)


def test_trials_run_in_the_container_with_the_options_of_srun(tmp_path: Path, ablate: Ablate) -> None:
    """The container's command starts each share with srun's options; the last job, which calls sbatch, has none."""
    wrapper, calls = tmp_path / "my wrapper", tmp_path / "calls"
    wrapper.write_text(WRAPPER.format(calls=calls))
    wrapper.chmod(0o755)
    container = f"container: \"'{wrapper}' $HOME\", srun: {{cpu-bind: none}}"
    write(tmp_path, steps=20, profile=keys(container).replace("0.2", "5"), seeds=1)
    ablate(*SUBMIT)
    runs = tmp_path / "runs"
    await_report(runs)
    assert len(results(runs)) == 2
    (call,) = calls.read_text().splitlines()
    assert call.startswith("none $HOME ")
    assert "slurm.submission.job" in call


def test_parallel_holds_for_all_arrays_of_a_submission(tmp_path: Path, ablate: Ablate, closed: Cluster) -> None:
    """With `parallel: 1` a second array, of more seeds, waits for the first, so that one task runs at a time."""
    write(tmp_path, steps=20, profile=keys("parallel: 1").replace("0.2", "0.001"), seeds=2)
    ablate(*SUBMIT, "--seeds", "1")
    ablate(*SUBMIT)
    arrays = {line.split("|")[0].split("_")[0]: line.split("|")[1] for line in queued(closed, "%i|%E") if "_" in line}
    first, *others = sorted(arrays, key=int)
    shares = [array for array in others if len(arrays[array]) > 0]
    assert arrays[first] == "(null)"
    assert all(f"afterany:{first}" in arrays[array] for array in shares)
    reopen(closed)
    runs, most = tmp_path / "runs", 0

    def done() -> bool:
        nonlocal most
        running = queued(closed, "%o", "--array", "--states=RUNNING")
        most = max(most, sum(function(Path(script)) == "share" for script in running))
        return len(results(runs)) == 4

    until(done, f"4 results (logs: {logs(runs)})", 240)
    assert most == 1
    assert published(runs) == [1] * 4


def function(script: Path) -> str:
    """Return which function of the submission a batch script runs."""
    return "share" if "srun" in script.read_text() else "last"
