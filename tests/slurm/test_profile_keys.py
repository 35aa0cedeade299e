"""The effect of a profile's keys on the jobs of a submission, on a real SLURM, and the error for wrong keys."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from devcluster import Cluster, wait_until
from in_process import called
from small_study import STATUS, SUBMIT, Ablate, results, with_keys, write
from waits import await_empty_queue, await_report, logs, published, queued, reopen

from ablations.cluster import submit as submitting

WRAPPER = """#!/bin/sh
echo "$SLURM_CPU_BIND_TYPE $*" >> {calls}
shift
exec "$@"
"""
GOOD = {"partition": "main", "gpus": 0, "cpus": 1, "memory": "2G", "time": 5}
WRONG: list[tuple[dict[str, Any], str, str]] = [  # changed keys, the beginning of the message, and a later part
    ({"partition": "nope"}, "SLURM says 'invalid partition specified: nope", "partition=nope time=5); partitions: "),
    ({"account": "nobody"}, "SLURM says 'Invalid account", "account=nobody"),
    (
        {"gpus": 1, "gpu_type": "h100"},
        "gpu_type=h100: no node",
        "2 nodes in main with 8 CPUs, 16000M, 4 GPUs",
    ),
    ({"gpus": 99}, "gpus=99: no node", "4 GPUs of type fake"),
    ({"cpus": 999}, "cpus=999: no node", "8 CPUs"),
    ({"memory": "900G"}, "memory=900G: no node", "16000M"),
    ({"time": "3-00:00:00"}, "time=3-00:00:00: no node", "at most 1-00:00:00"),
    ({"constraint": "infiniband"}, "SLURM says", "constraint=infiniband"),
    ({"extra": {"nodelist": "node99"}}, "SLURM says", "nodelist=node99"),
    ({"extra": {"reservation": "tomorrow"}}, "SLURM says", "reservation=tomorrow"),
    ({"cpu": 1}, "unknown key 'cpu'", "did you mean 'cpus'?"),
]
Command = Callable[..., tuple[int, str, str]]


def test_jobs_show_their_study_and_their_users_comment(tmp_path: Path, ablate: Ablate, closed: Cluster) -> None:
    """The name begins with the study, and the comment ends with the profile's; `status` finds the jobs."""
    write(tmp_path, profile=with_keys(f"comment: main --output={tmp_path}/x"), seeds=1)
    ablate(*SUBMIT)
    lines = queued(closed, "%j|%k")
    assert len(lines) == 3
    for line in lines:
        name, _, comment = line.partition("|")
        assert name.startswith("s@r:ablate:")
        assert comment == f"{name.removeprefix('s@r:')} main --output={tmp_path}/x"
    assert "queued" in ablate(*STATUS).stdout
    assert "already queued, 0 submitted" in ablate(*SUBMIT).stdout


def test_begin_and_dependency_hold_for_what_submit_hands_over(tmp_path: Path, ablate: Ablate, closed: Cluster) -> None:
    """The trials wait for both; the last job waits only for the trials."""
    first = closed.sbatch("--hold", "--wrap=true")
    write(tmp_path, profile=with_keys(f"begin: now+2hours, dependency: 'afterok:{first}'"), seeds=1)
    ablate(*SUBMIT)
    waiting = sorted(line for line in queued(closed, "%F|%E|%V|%S") if not line.startswith(f"{first}|"))
    (array, on, submitted, start), (_, last_on, _, last_start), _ = (line.split("|") for line in waiting)
    assert on.startswith(f"afterok:{first}")
    assert start > submitted
    assert last_on.startswith(f"afterany:{array}")
    assert last_start in ("N/A", submitted)


def test_trials_run_in_the_container_with_the_options_of_srun(tmp_path: Path, ablate: Ablate) -> None:
    """The container's command starts each task with srun's options; the last job, which calls sbatch, has none."""
    wrapper, calls = tmp_path / "my wrapper", tmp_path / "calls"
    wrapper.write_text(WRAPPER.format(calls=calls))
    wrapper.chmod(0o755)
    container = f"container: \"'{wrapper}' $HOME\", srun: {{cpu-bind: none}}"
    write(tmp_path, steps=20, profile=with_keys(container).replace("0.2", "5"), seeds=1)
    ablate(*SUBMIT)
    runs = tmp_path / "runs"
    await_report(runs)
    assert len(results(runs)) == 2
    (call,) = calls.read_text().splitlines()
    assert call.startswith("none $HOME ")
    assert "slurm.task" in call


def test_parallel_holds_for_all_arrays_of_a_submission(tmp_path: Path, ablate: Ablate, closed: Cluster) -> None:
    """With `parallel: 1`, more seeds are left to the one task that waits."""
    write(tmp_path, steps=20, profile=with_keys("parallel: 1").replace("0.2", "0.001"), seeds=2)
    ablate(*SUBMIT, "--seeds", "1")
    ablate(*SUBMIT)
    reopen(closed)
    runs, most = tmp_path / "runs", 0

    def done() -> bool:
        nonlocal most
        scripts = queued(closed, "%o", "--array", "--states=RUNNING")
        most = max(most, sum("srun" in Path(script).read_text() for script in scripts))  # last jobs run without srun
        return len(results(runs)) == 4

    wait_until(done, f"4 results (logs: {logs(runs)})", 240)
    assert most == 1
    assert published(runs) == [1] * 4


# -- wrong keys --------------------------------------------------------------------------------------------------------


@pytest.fixture
def submit(tmp_path: Path, here: Cluster, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Call `ablate` with a profile: GOOD with changes; by default `submit`."""
    monkeypatch.chdir(tmp_path)

    def call(changes: dict[str, Any], *words: str) -> tuple[int, str, str]:
        write(tmp_path, steps=20, seeds=1, profile=json.dumps(GOOD | changes))
        return called(monkeypatch, *(words or SUBMIT))

    return call


def test_what_sbatch_refuses_in_the_end_leaves_no_submission(tmp_path: Path, cluster: Cluster, submit: Command) -> None:
    """`--test-only` names no key, and the nodes' state could be the reason, so sbatch decides."""
    status, output, errors = submit({"extra": {"exclude": "node[1-2]"}})
    assert (status, output, errors.count("\n")) == (2, "", 2)
    assert "Batch job submission failed: Requested node configuration is not available" in errors
    assert not list((tmp_path / "runs/submissions").glob("[0-9]*"))
    assert not queued(cluster)


@pytest.fixture
def drained(cluster: Cluster) -> Iterator[None]:
    """Drain all nodes, as before maintenance: sbatch queues jobs, and `--test-only` refuses them."""
    cluster.run("scontrol", "update", "NodeName=ALL", "State=DRAIN", "Reason=maintenance")
    yield
    cluster.clear()
    cluster.run("scontrol", "update", "NodeName=ALL", "State=RESUME")
    cluster.wait()


@pytest.mark.parametrize("nodes", ["ready", "drained"])
def test_wrong_settings_are_named_and_nothing_is_submitted(
    nodes: str, request: pytest.FixtureRequest, tmp_path: Path, cluster: Cluster, submit: Command
) -> None:
    """With drained nodes, this holds for settings that no node satisfies, and for those that SLURM names."""
    ready = nodes == "ready" or request.getfixturevalue(nodes)
    for change, start, rest in WRONG if ready else WRONG[:8]:
        status, output, errors = submit(change)
        assert (status, output, errors.count("\n")) == (2, "", 1), errors
        named = errors.removeprefix("ablate: ").removeprefix("p.yaml: ")
        assert named.startswith(start if ready else start.partition(":")[0])
        assert not ready or rest in errors
    assert not (tmp_path / "runs").exists()
    assert not queued(cluster)


def test_profile_of_drained_nodes_is_submitted_with_a_warning(
    tmp_path: Path, cluster: Cluster, submit: Command, drained: None
) -> None:
    status, output, errors = submit({})
    assert (status, errors.count("\n")) == (0, 1), errors
    assert "1 submitted" in output
    assert "'Requested node configuration is not available'; nodes: 2 drained" in errors
    assert not any(f"{key}=" in errors for key in GOOD)


def test_check_of_drained_nodes_warns_and_says_what_the_job_waits_for(
    tmp_path: Path, cluster: Cluster, submit: Command, drained: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves neither a job nor a folder."""
    monkeypatch.setattr(submitting.check, "__defaults__", (5.0,))
    status, output, errors = submit({}, "profile", "check", "p.yaml")
    assert (status, output, errors.count("\n")) == (2, "", 2)
    assert "'Requested node configuration is not available'; nodes: 2 drained" in errors
    assert "the job has not ended within 5 s (PENDING" in errors
    await_empty_queue(cluster)
    assert not list((tmp_path / "runs/submissions").iterdir())


def test_check_prints_what_the_node_found(tmp_path: Path, cluster: Cluster, submit: Command) -> None:
    """Without an answer it names the node, the state of the job and the last line of its log."""
    status, output, errors = submit({}, "profile", "check", "p.yaml")
    assert (status, errors) == (0, "")
    assert "ok      sbatch from the node\n" in output
    status, output, errors = submit({"setup": ["echo no such module; exit 3"]}, "profile", "check", "p.yaml")
    assert (status, output) == (2, "")
    assert "the job ended before all was checked; FAILED on node" in errors
    assert errors.endswith(": no such module\n")
    assert not list((tmp_path / "runs/submissions").iterdir())
