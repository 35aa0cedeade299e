"""Parents are trained before their children and resumed; a failed parent blocks its children."""

import math
import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import synthetic
from designs import ONE_STAGE, STAGED_STUDY, STUDY_HERE, TAUGHT, staged_design, staged_plan
from in_process import Ablate, json_output, refusal
from photographs import photographs
from PIL import Image
from run_trials import Quiet, outcomes, serve_all

from ablations.cli import watching as cleaning
from ablations.execution import reopen, runner
from ablations.execution.launch import Place
from ablations.execution.pool import Pool, RunSummary
from ablations.jobs import Job
from ablations.jobs import jobs as jobs_of
from ablations.planning.saved_plans import save_plan
from ablations.status import slurm_answers
from ablations.status import view as status_view
from ablations.status.study_status import is_settled, study_status
from results import store
from results.load import load_studies
from results.store import lease
from results.store.schemas.trials import Result
from results.store.standing import WEIGHTS_GONE, Kind, Standings, Start
from results.tables import study_table
from vitcore.data.lookup import describe_files


def place(folder: Path) -> Place:
    return Place(folder / "runs", None)


def pool(folder: Path, job: Job) -> Pool:
    return Pool([job], place(folder), [], Quiet(), lambda job: None, RunSummary())


def test_students_learn_from_their_seeds_teacher(tmp_path: Path, ablate: Ablate) -> None:
    """`train` with a student's config gives the same trial; the teacher of another seed is refused."""
    staged_design(tmp_path, TAUGHT)
    code, _, errors = ablate("run", *STUDY_HERE, "--seeds", "1")
    assert code == 0, errors
    jobs = {job.arm: job for job in jobs_of([store.read_plan(Path("runs/studies/s@r/plan.json"))])}
    assert all(store.trial(Path("runs"), job.id).state().status == "finished" for job in jobs.values())
    left_out = ("seed", "options", "model", "position_at", "data_seed")
    settings = [f"{key}={value}" for key, value in jobs["token"].config.items() if key not in left_out]
    assert json_output(ablate, "train", *settings, "objective.token=true")["id"] == jobs["token"].id
    assert "data_seed=1: teacher=" in refusal(ablate, "train", f"teacher={jobs['large'].id}", "seed=1")


def test_it_runs_from_its_file_to_its_table(tmp_path: Path, ablate: Ablate) -> None:
    """Of all weights, those of the stages alone are kept."""
    staged_design(tmp_path)
    runs = Path("runs")
    code, _, errors = ablate("run", *STUDY_HERE, "--keep-weights", "none")
    assert code == 0, errors
    made = store.read_plan(runs / "studies/s@r/plan.json")
    for job in jobs_of([made]):
        state = store.trial(runs, job.id).state()
        assert (state.status, state.weights.exists()) == ("finished", not job.parents)
    table = json_output(ablate, "table", "s@r", "--strict")
    assert [row["arm"] for row in table["rows"]] == [arm.name for arm in made.arms]
    assert not [one for one in cleaning.find_waste(runs, [made], "none") if one.path.name == "weights.safetensors"]
    view = study_status(made, runs, slurm_answers.SlurmAnswers())
    assert (view.planned, view.counts["finished"]) == (12, 12)
    shown = status_view.render([view]).plain
    assert shown.index("  pretrain,data_fraction=0.1") < shown.index("  > image_size=8,pretrain.data_fraction=0.1")


@pytest.mark.slow
def test_killed_in_either_stage_it_ends_the_same(tmp_path: Path) -> None:
    jobs = jobs_of([staged_plan(tmp_path, steps=2500)], ["image_size=16,pretrain.data_fraction=1.0"])[:2]
    assert [len(job.parents) for job in jobs] == [0, 1]
    runner.run(jobs, Place(tmp_path / "calm", None), Quiet(), workers=1)
    over, killed = threading.Event(), set[str]()

    def kill() -> None:
        """Kill the worker of each trial once, at a random time after its first checkpoint."""
        choose = random.Random(0)
        while not over.wait(choose.uniform(0, 0.1)):
            for file in (tmp_path / "storm/trials").glob("*/attempts/*/checkpoints/*.safetensors"):
                trial = store.Trial(file.parents[3])
                holder = lease.read(trial.attempts()[-1])
                if trial.id not in killed and lease.holder_state(holder) == "lives":
                    os.kill(holder.pid, signal.SIGKILL)
                    killed.add(trial.id)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        tally = runner.run(jobs, Place(tmp_path / "storm", None), Quiet(), workers=1)
    finally:
        over.set()
        killer.join()
    assert not tally.failed
    assert killed == {job.id for job in jobs}
    assert outcomes(tmp_path / "storm", jobs) == outcomes(tmp_path / "calm", jobs)


def test_failed_parent_blocks_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = staged_plan(tmp_path)
    save_plan(tmp_path / "runs", made)
    jobs = jobs_of([made])
    with synthetic.claimed(store.trial(tmp_path / "runs", jobs[0].id)) as attempt:
        attempt.fail("RuntimeError: no such thing", "Traceback", place(tmp_path).code)
    monkeypatch.setattr(runner, "drive", serve_all)
    tally = runner.run(jobs, place(tmp_path), Quiet())
    children = {job.id for job in jobs if jobs[0].id in job.parents}
    assert tally.failed.keys() == {jobs[0].id}
    why = "starts from pretrain,data_fraction=0.1, which failed: RuntimeError: no such thing"
    assert tally.blocked == dict.fromkeys(children, why)
    assert len(tally.done) == 9
    assert not any(store.trial(tmp_path / "runs", key).attempts() for key in children)
    (study,) = load_studies(tmp_path / "runs")
    row = study_table.table(study).rows[0]
    assert (row.n, row.missing, row.failed) == (1, 1, 0)
    assert f"seed 0 missing: {why}" in row.notes
    view = study_status(made, tmp_path / "runs", slurm_answers.SlurmAnswers())
    assert (view.counts["failed"], view.counts["blocked"], view.counts["finished"]) == (1, 2, 9)
    assert is_settled([view])
    assert f"2 trials: {why}" in status_view.render([view]).plain


def test_child_is_left_where_nobody_trains_its_parent(tmp_path: Path) -> None:
    child = next(job for job in jobs_of([staged_plan(tmp_path)]) if job.parents)
    made = pool(tmp_path, child)
    assert next(made.ready_trials(math.inf), None) is None
    why = "starts from pretrain,data_fraction=0.1, which has not finished"
    assert made.summary == RunSummary(interrupted={child.id: why})


def forget_weights(runs: Path, key: str) -> None:
    store.trial(runs, key).state().weights.unlink()


def test_parent_whose_weights_are_lost_is_trained_again(tmp_path: Path, ablate: Ablate) -> None:
    """Every command says so, `run` and `retry` do so, and only while a trial is to start from the weights."""
    staged_design(tmp_path, ONE_STAGE)
    runs, some = Path("runs"), (*STUDY_HERE, "--seeds", "1")
    assert ablate("run", *some, "--arm", "image_size=8")[0] == 0
    parent, ended, child = jobs_of([store.read_plan(runs / "studies/s@r/plan.json")])
    before = store.trial(runs, parent.id).state().result
    forget_weights(runs, parent.id)

    def seen(command: str, *more: str) -> Any:
        return json_output(ablate, command, *STUDY_HERE, *more)

    why = f"starts from pretrain, {WEIGHTS_GONE}"
    cause = {"cause": why, "line": "", "kind": "lost", "seeds": [0], "ids": [child.id]}
    assert seen("status")["arms"][1]["causes"] == [cause]
    assert f"waits     1 trial: {why}" in ablate("status", *STUDY_HERE)[1]
    assert f"seed 0 missing: {why}" in seen("table")["rows"][1]["notes"]
    assert seen("plan", "--seeds", "1")["trials"] == {"planned": 3, "finished": 1, "shared": 0, "todo": 2}
    assert "--max-hours 0: training 2 trials takes" in refusal(ablate, "run", *some, "--max-hours", "0")
    alone = pool(tmp_path, child)  # without its parent
    assert next(alone.ready_trials(math.inf), None) is None
    assert alone.summary.interrupted == {child.id: why}
    said = "to train again, as the weights that others start from are gone: pretrain seed 0"
    assert ablate("retry", *STUDY_HERE)[1].strip() == said
    assert store.trial(runs, parent.id).state().status == "interrupted"
    code, _, errors = ablate("run", *some)
    assert code == 0, errors
    after = store.trial(runs, parent.id).state()
    assert (after.status, after.weights.exists()) == ("finished", True)
    assert after.result.weights_sha256 == before.weights_sha256
    assert len(store.trial(runs, ended.id).attempts()) == 1
    forget_weights(runs, parent.id)  # nothing starts from there any more: nothing is to do
    assert ablate("retry", *STUDY_HERE)[1].startswith("0 of 3 trials failed")
    assert ablate("run", *some)[0] == 0
    assert store.trial(runs, parent.id).state().status == "finished"


def ended(runs: Path, job: Job, status: str) -> None:
    with synthetic.claimed(store.trial(runs, job.id)) as attempt:
        attempt.save_weights(b"")
        attempt.publish({"status": status, "metrics": {}})


@pytest.mark.parametrize("parent_is", ["lost", "diverged"])
def test_a_trained_trial_that_owes_an_eval_needs_no_parent(tmp_path: Path, parent_is: str) -> None:
    runs = tmp_path / "runs"
    study = STAGED_STUDY.replace("curves: {pretrain.data_fraction: axis}", "evals: [inspect]")
    made = staged_plan(tmp_path, study)
    save_plan(runs, made)
    parent, owing, sibling, *_ = jobs_of([made])
    assert {*owing.parents} == {*sibling.parents} == {parent.id}
    ended(runs, parent, "diverged" if parent_is == "diverged" else "finished")
    if parent_is == "lost":
        forget_weights(runs, parent.id)
    ended(runs, owing, "finished")
    assert owing.standing(Standings(runs)).kind is Kind.OWES_EVALS
    assert sibling.standing(Standings(runs)).kind is (Kind.LOST if parent_is == "lost" else Kind.BLOCKED)
    assert reopen.reopen_lost_parents(runs, [parent, owing]) == []
    assert next(pool(tmp_path, owing).ready_trials(math.inf)).job == owing
    view = study_status(made, runs, slurm_answers.SlurmAnswers())
    assert not [cause for arm in view.arms for cause in arm.causes if owing.id in cause.ids]
    assert reopen.lost_parents(runs, [parent, sibling]) == (
        {parent.id: "pretrain seed 0"} if parent_is == "lost" else {}
    )


def test_parent_that_another_run_trained_again_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "runs"
    made = staged_plan(tmp_path, ONE_STAGE)
    parent, child, *_ = jobs_of([made])
    ended(runs, parent, "finished")
    forget_weights(runs, parent.id)
    trial, find = store.trial(runs, parent.id), reopen.lost_parents

    def meanwhile(*asked: Any) -> dict[str, str]:
        found = find(*asked)
        assert trial.reopen(lease.Watch(), trial.result())
        ended(runs, parent, "finished")
        return found

    monkeypatch.setattr(reopen, "lost_parents", meanwhile)
    assert reopen.reopen_lost_parents(runs, [parent, child]) == []
    assert trial.state().weights.exists()


PARENTS = {"b": "second", "a": "first"}


@pytest.mark.parametrize(
    ("second", "first", "kind", "why", "opened", "lost"),
    [
        (Kind.READY, Kind.WAITS, Kind.READY, "", (), ()),  # a ready parent needs no parent of its own
        (Kind.WAITS, Kind.READY, Kind.WAITS, "starts from second, waits", ("b",), ()),
        (Kind.WAITS, Kind.WAITS, Kind.WAITS, "starts from first, waits", ("b", "a"), ()),
        (Kind.LOST, Kind.READY, Kind.LOST, "starts from second, lost", ("b",), ("b",)),
        (Kind.LOST, Kind.LOST, Kind.LOST, "starts from first, lost", ("b", "a"), ("b", "a")),
        (Kind.WAITS, Kind.LOST, Kind.LOST, "starts from first, lost", ("b", "a"), ("a",)),
        (Kind.BLOCKED, Kind.LOST, Kind.BLOCKED, "starts from second, blocked", ("b",), ()),
        (Kind.LOST, Kind.BLOCKED, Kind.BLOCKED, "starts from first, blocked", ("b", "a"), ("b",)),
    ],
)
def test_nearest_parent_that_is_not_ready_decides_what_a_trial_waits_for(
    second: Kind, first: Kind, kind: Kind, why: str, opened: tuple[str, ...], lost: tuple[str, ...]
) -> None:
    standings = Standings(Path("runs"))
    standings.parents = {"b": Start(second, second), "a": Start(first, first)}
    found = standings.read_start(PARENTS)
    assert (found.kind, found.why, found.open, found.lost) == (kind, why, opened, lost)


def test_train_starts_from_a_trial_or_a_file(tmp_path: Path, ablate: Ablate) -> None:
    train = ("train", "width=16", "depth=1", "steps=4", "evaluations=1")
    parent = json_output(ablate, *train, "objective=masked-patch")
    weights = Path(f"runs/trials/{parent['id']}/attempts/{parent['attempt']}/weights.safetensors")
    one, other = (json_output(ablate, *train, f"init_from={start}") for start in (parent["id"], weights))
    assert one["id"] != other["id"]
    assert one["weights_sha256"] == other["weights_sha256"]
    Path("torn.safetensors").write_bytes(weights.read_bytes()[:-100])
    tensors = safetensors.torch.load_file(weights)
    safetensors.torch.save_file({name: t for name, t in tensors.items() if name != "stem.bias"}, "other.safetensors")
    for words, said in {
        ("init_from=0123456789ab",): "missing in",
        ("init_from=torn.safetensors",): "cannot be read",
        ("init_from=other.safetensors",): "it lacks stem.bias",
        ("init_from=nothing.pt",): "none, the id of a trial",
        ("init_from=no.npz",): "No such file",
        (f"init_from={parent['id']}", "seed=1"): "data_seed=1",
    }.items():
        assert said in refusal(ablate, *train, *words)


def test_train_first_trains_parents_without_weights_again(tmp_path: Path, ablate: Ablate) -> None:
    """A parent whose data have changed cannot be trained again, which is an error."""
    pets = photographs(tmp_path / "pets", {f"{part}/{name}": 8 for part in ("train", "test") for name in "ab"}, (8, 8))
    small = ("width=16", "depth=1", "patch=4", "steps=4", "batch=4", "evaluations=1", "data=imagefolder:pets")

    def train(*words: str) -> Any:
        return json_output(ablate, "train", *small, *words)

    runs = Path("runs")
    first = train("lr=0.01")
    second = train("lr=0.02", f"init_from={first['id']}")
    after_second = f"init_from={second['id']}"
    third = train("lr=0.03", after_second)
    for one in (first, second):
        forget_weights(runs, one["id"])
    assert train("lr=0.03", after_second)["attempt"] == third["attempt"]  # it is over: nothing is to do
    assert store.trial(runs, first["id"]).state().result == Result.model_validate(first)
    said = "to train again, as the weights that others start from are gone"
    both = f"{said}: trial {second['id']} seed 0, trial {first['id']} seed 0"
    assert both in ablate("train", *small, "lr=0.04", after_second)[2]
    again = store.trial(runs, second["id"]).state().result
    assert (again.weights_sha256, again.attempt != second["attempt"]) == (second["weights_sha256"], True)
    assert store.trial(runs, second["id"]).reopen(lease.Watch(), again)  # as if Ctrl-C had ended the second training
    train("lr=0.05", after_second)
    forget_weights(runs, second["id"])
    Image.new("RGB", (8, 8)).save(pets / "train" / "a" / "0000.png")
    describe_files.cache_clear()
    errors = refusal(ablate, "train", *small, "lr=0.06", after_second)
    assert f"{after_second}: its weights are not in {tmp_path}/runs, and it cannot be trained again" in errors
