"""Trials of several ranks: their failures, their share of the GPUs, and reading them on any machine."""

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import synthetic
import trainings
from in_process import Ablate, refusal
from run_trials import job_of

from ablations import faults
from ablations.cluster.arrays import nodes_to_avoid
from ablations.execution import slots
from ablations.faults import BUG, INPUT, MACHINE
from ablations.planning import estimate
from ablations.planning.estimate import Device
from ablations.trainables.vit import rank_processes as ranks
from ablations.trainables.vit.rank import report_failure
from ablations.trainables.vit.rank_processes import read_failures
from commonfloor.options import ConfigError
from results import store
from results.store.schemas.plans import Plan
from vitcore.training.distributed import TCPStore

tiny = partial(trainings.tiny, depth=2, pool="cls", steps=30, batch=33, evaluations=10, device="cpu")


GONE = RuntimeError("[gloo] Connection closed by peer")


@pytest.mark.parametrize(
    ("errors", "first", "kind"),
    [
        ([(2, GONE), (1, RuntimeError("a bug"))], "rank 1: RuntimeError: a bug", BUG),
        ([(3, ConfigError("data=mine: no")), (1, RuntimeError("a bug"))], "rank 3: ConfigError: data=mine: no", INPUT),
        ([(2, GONE), (1, RuntimeError("NCCL error"))], f"rank 2: RuntimeError: {GONE}", MACHINE),
    ],
)
def test_the_rank_that_failed_first_is_reported(
    errors: list[tuple[int, Exception]], first: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that only lost its connection is not named, even if it reports first."""
    monkeypatch.setattr(ranks, "REPORT_SECONDS", 0.0)
    words = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for rank, error in errors:
        report_failure(words, rank, error)
    assert [word.rank for word in read_failures(words)] == [rank for rank, _ in errors]
    crew = object.__new__(ranks.RankProcesses)
    crew.watched, crew.processes = words, {}
    lost = crew.first_failure()
    assert str(lost) == first
    assert faults.classify(lost).kind == kind


def test_fault_of_another_node_is_that_nodes(tmp_path: Path) -> None:
    trial = store.trial(tmp_path, "0123456789ab")
    for _ in range(2):
        with synthetic.claimed(trial) as attempt:
            attempt.write_env({"node": "node1"})
            attempt.fail("RankLost: rank 1: CUDA error", "", "code", kind=MACHINE, node="node2", again=True)
    assert nodes_to_avoid([trial]) == ["node2"]


HANGING = """
import sys, time
from pathlib import Path
from ablations.trainables.vit import rank_processes as ranks
from vitcore import Config
ranks.GRACE_SECONDS = 0.5
config = Config(device="cpu", width=16, depth=1, heads=2, gpus=2)
def report(lost):
    Path(sys.argv[2]).write_text(f"{lost.fault.kind} {lost.fault.fatal} {lost}")
with ranks.join_ranks(config, [sys.argv[1]], None, report):
    time.sleep(600)
"""


BROKEN = """
import sys
def train(*_, **__): raise RuntimeError('no such thing')
sys.modules['__main__'].train = train
"""


@pytest.mark.slow
def test_failure_is_reported_while_the_exchange_hangs(tmp_path: Path) -> None:
    """Rank 0, which waits for a rank that failed, reports the reason before it is killed."""
    plugin, said = tmp_path / "broken.py", tmp_path / "said"
    plugin.write_text(BROKEN)
    done = subprocess.run([sys.executable, "-c", HANGING, str(plugin), str(said)], timeout=300)
    assert done.returncode == -signal.SIGKILL
    assert said.read_text() == "bug True rank 1: RuntimeError: no such thing"


@pytest.mark.slow
def test_finished_study_of_many_gpus_is_read_and_run_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ablate: Ablate
) -> None:
    """Without a GPU, `plan`, `status` and `table` work, and `run` only if every trial is finished."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "s.yaml").write_text("{question: q, baseline: {position: 1d}, factors: {position: [none, 1d]}}")
    small = ["width=16", "depth=1", "heads=2", "steps=4", "batch=16", "evaluations=1"]
    words = [str(tmp_path / "s.yaml"), "--runs", str(tmp_path / "runs"), *small, "gpus=8"]
    assert ablate("plan", *words)[0] == 0
    assert "gpus=8: no GPU here" in refusal(ablate, "run", *words, "--seeds", "1")
    assert ablate("run", *words[:-1], "--seeds", "1")[0] == 0  # the same trials, of one process
    code, output, _ = ablate("run", *words, "--seeds", "1")
    assert (code, "position=none" in output) == (0, True)
    for command in ("plan", "status", "table"):
        assert ablate(command, *words)[0] == 0
    assert ablate("run", *words, "--seeds", "2")[0] == 2


@pytest.mark.slow
def test_train_takes_the_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ablate: Ablate) -> None:
    """env.json has the number of processes, the id does not; more GPUs than present are refused."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    words = ("train", "width=16", "depth=1", "heads=2", "steps=4", "batch=16", "--runs", str(tmp_path / "runs"))
    said = refusal(ablate, *words, "gpus=2", "device=auto")
    assert "gpus=2: no GPU here; device=cpu runs 2 processes without a GPU" in said
    assert not (tmp_path / "runs").exists()
    assert ablate(*words, "gpus=2", "device=cpu")[0] == 0
    (path,) = (tmp_path / "runs/trials").iterdir()
    assert store.read_json(path / "attempts/0001/env.json")["ranks"] == 2
    assert ablate(*words)[0] == 0
    assert len(list((tmp_path / "runs/trials").iterdir())) == 1


@pytest.mark.parametrize(
    ("ranks", "devices"), [(1, ["0", "1", "2", "3"]), (2, ["0,1", "2,3"]), (3, ["0,1,2"]), (4, ["0,1,2,3"])]
)
def test_workers_share_the_gpus(ranks: int, devices: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    jobs = [job_of(tiny(seed=seed, gpus=ranks, device="auto")) for seed in range(9)]
    assert [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in slots.make_slots(jobs, None)] == devices
    with pytest.raises(ValueError, match=r"^gpus=5: only 4 GPUs here; "):
        slots.make_slots([job_of(tiny(gpus=5, device="auto"))], None)


def test_trials_of_as_many_gpus_run_together() -> None:
    jobs = [job_of(tiny(seed=seed, gpus=gpus)) for seed, gpus in enumerate((1, 4, 1, 2, 4))]
    assert [[one.config["seed"] for one in group] for group in slots.group_for_pools(jobs)] == [[1, 4], [3], [0, 2]]


def test_hours_are_of_all_gpus(tmp_path: Path) -> None:
    short = {"steps": 100, "batch": 16}
    plan = synthetic.with_arms(Plan.model_validate(synthetic.position()), lambda arm: {"config": arm.config | short})
    wider = synthetic.with_arms(plan, lambda arm: {"config": arm.config | {"gpus": 2}})
    device, ids = Device(gpu=True), {key for arm in plan.arms for key in arm.ids.values()}
    one, two = (estimate.cost([some], tmp_path, device, ids).hours for some in (plan, wider))
    assert two == pytest.approx(one)
    alone, together = (estimate.seconds([some], tmp_path, device) for some in (plan, wider))
    start = estimate.START_SECONDS
    assert {key: 2 * (together[key] - start) for key in ids} == pytest.approx({key: alone[key] - start for key in ids})
