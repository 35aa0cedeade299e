"""Nodes that later jobs avoid, by the attempts on disk."""

import os
from pathlib import Path

import pytest

from ablations.cluster import arrays
from ablations.execution.retry_rules import EndedAttempt, faulty_node
from results import store
from results.store import lease
from slurm.arrays import JobArray, sbatch_options
from slurm.profile import Profile


def attempt(trial: store.Trial, node: str | None, kind: str = "machine") -> Path:
    """Make an attempt that ended on a node; None: outside SLURM."""
    made = store.claim(trial, lease.Watch())
    made.write_env({"code": "0123"} | ({"node": node} if node else {}))
    made.fail("a fault", "", "0123", kind=kind, again=True)
    made.release()
    return made.path


@pytest.fixture
def trials(tmp_path: Path) -> list[store.Trial]:
    return [store.trial(tmp_path, f"{number:012x}") for number in range(3)]


@pytest.mark.parametrize(
    ("ends", "avoided"),
    [
        ([("node1", "machine"), ("node2", "machine"), ("node1", "machine")], ["node1"]),
        ([("node1", "machine"), ("node1", "bug"), ("node2", "machine")], []),
        ([(None, "machine")] * 3, []),
        *(([(name, "machine")] * 3, []) for name in ("node1,node[2-9]", "--wrap=x", "$(touch x)", "a\nb", "", 7)),
    ],
)
def test_node_with_two_faults_is_avoided(
    trials: list[store.Trial], ends: list[tuple[str | None, str]], avoided: list[str]
) -> None:
    """Faults of all trials count together. Only a name that SLURM could have reaches sbatch."""
    for trial, (node, kind) in zip(trials, ends, strict=True):
        attempt(trial, node, kind)
    assert arrays.nodes_to_avoid(trials) == avoided


def test_loss_that_was_computed_wrong_counts(trials: list[store.Trial]) -> None:
    """A result with suspect hardware is a fault of the node, although the trial finished."""
    for trial, node, step in zip(trials, ("node1", "node1", "node2"), (7, 7, None), strict=True):
        folder = attempt(trial, node, kind="bug")
        plain = {"schema": 1, "id": trial.id, "attempt": folder.name, "status": "finished", "metrics": {}}
        result = plain | {"suspect_hardware": step}
        store.write_json(folder / "result.json", result | {"checksum": store.checksum(result)})
    assert arrays.nodes_to_avoid(trials) == ["node1"]


def test_faults_are_forgotten_after_a_day(trials: list[store.Trial]) -> None:
    for trial in trials:
        path = attempt(trial, "node1")
        os.utime(path, (path.stat().st_mtime - arrays.DAY,) * 2)
    assert arrays.nodes_to_avoid(trials) == []


def test_avoided_nodes_are_added_to_the_profiles() -> None:
    many = [f"node{number}" for number in range(100)]
    for profile, avoided, expected in (
        (Profile(extra={"exclude": "node[7-9]"}), ["node1", "node2"], "node[7-9],node1,node2"),
        (Profile(), [], None),
        (Profile(), many, ",".join(many)),
    ):
        array = JobArray(Path("/tmp"), "tag", "module:name", [], profile, Path("/tmp"), avoided=avoided)
        assert sbatch_options(array).get("exclude") == expected


def test_trial_leaves_a_node_after_its_second_fault_there() -> None:
    first, second, here = (EndedAttempt(True, "ECC", 0, node=node) for node in ("node1", "node2", ""))
    assert faulty_node([first, first]) == "node1"
    assert faulty_node([first, second, first]) == "node1"
    for past in ([first], [first, second], [here, here], [first, first, here], []):
        assert faulty_node(past) == ""
