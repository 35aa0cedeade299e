"""Stages are planned once, shared, trained in order and resumed; a failed stage blocks its children."""

import json
import math
import os
import random
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import designs
import pytest
import safetensors.torch
import synthetic
from in_process import Ablate
from outcomes import Quiet, outcomes
from photographs import photographs
from PIL import Image
from serial import serve_all

from ablations.cli.inputs import arguments
from ablations.cluster import reconciliation
from ablations.execution import retry, runner
from ablations.execution.launch import Place
from ablations.execution.pool import Pool, RunSummary
from ablations.planning import growing, overview
from ablations.planning import plan as planning
from ablations.planning.jobs import Job, read, write
from ablations.planning.jobs import jobs as jobs_of
from ablations.planning.prepare import prepare
from ablations.planning.step_times import Device
from ablations.reporting import cleaning, status, status_view
from ablations.study.confounds import refuse_undeclared
from ablations.study.design import Design
from results import store
from results.comparison import compare, summary
from results.figures import study_figure
from results.load import load_studies
from results.store import lease
from results.store.schemas import Plan, Result
from results.store.standing import WEIGHTS_GONE, Kind, Standings, Start, combined_start
from results.tables import layout, study_table
from vitcore.config import Config
from vitcore.data.imagefolder import describe_folder
from vitcore.identity import trial_id

RECIPE = """
description: Small. To start from.
config: {data: digits, width: 16, depth: 1, heads: 2, patch: 4, pool: gap, steps: 4, batch: 16, lr: 2e-3}
seeds: 2
axes: {data_fraction: [0.1, 1.0], finetune.image_size: [8, 16], image_size: [8, 16, 32]}
stages:
  finetune: {optimizer: sgd, lr: 0.01, weight_decay: 0.0, data_fraction: 0.1}
  pretrain: {label_smoothing: 0.1}
"""
STUDY = """
question: What does pre-training bring?
stages: {pretrain: {}}
baseline: {init_from: {stage: pretrain}}
factors: {image_size: axis}
curves: {pretrain.data_fraction: axis}
"""

ONE_STAGE = STUDY.replace("curves: {pretrain.data_fraction: axis}", "")
STUDY_HERE = ("s.yaml", "--recipe", "r.yaml")
OR_NONE = """
question: q
stages: {pretrain: {}}
baseline: {lr: 0.01}
factors: {init_from: [none, {stage: pretrain}]}
"""


def design(folder: Path, study: str = STUDY, **overrides: object) -> Design:
    return designs.design(folder, study, RECIPE, **overrides)


def plan(folder: Path, study: str = STUDY, **overrides: object) -> Plan:
    return planning.build(design(folder, study, **overrides), [0, 1])


def place(folder: Path) -> Place:
    return Place(folder / "runs", None)


def pool(folder: Path, job: Job) -> Pool:
    return Pool([job], place(folder), [], Quiet(), lambda job: None, RunSummary())


def test_pre_training_is_planned_once_and_shared(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert [stage.name for stage in made.stages] == ["pretrain,data_fraction=0.1", "pretrain,data_fraction=1.0"]
    assert [(arm.name, arm.parent) for arm in made.arms] == [
        (f"image_size={size},pretrain.data_fraction={part}", f"pretrain,data_fraction={part}")
        for size in (8, 16)
        for part in (0.1, 1.0)
    ]
    assert len(jobs_of([made])) == 2 * (2 + 4)
    view = overview.overview(made, tmp_path / "runs", [], Device(False))
    assert view.trials == overview.TrialCounts(planned=12, finished=0, shared=0, todo=12)
    again = plan(tmp_path, STUDY.replace("image_size: axis", "lr: [0.01, 0.1]"))
    there = overview.overview(again, tmp_path / "runs", [made], Device(False))
    assert there.trials.shared == 4 + 4  # the pre-trainings, and the arms at the recipe's own rate
    alone = overview.overview(made.model_copy(update={"stages": []}), tmp_path, [], Device(False))
    assert view.hours > alone.hours > 0


def test_a_plan_says_where_arms_and_stages_are_not_as_the_recipe(tmp_path: Path) -> None:
    """A stage may have other data of as many channels."""
    made = plan(tmp_path, ONE_STAGE.replace("pretrain: {}", "pretrain: {steps: 7, data: mnist}"))
    fine = {"data_fraction": 0.1, "optimizer": "sgd", "lr": 0.01, "weight_decay": 0.0, "init_from": "pretrain"}
    assert made.departures == fine
    assert [stage.departures for stage in made.stages] == [{"steps": 7, "data": "mnist", "label_smoothing": 0.1}]


TAUGHT = """
question: Does a larger teacher help?
stages: {large: {width: 24, steps: 6}}
baseline: {teacher: none}
arms:
  hard: {teacher: {stage: large}}
  token: {teacher: {stage: large}, pool: cls, objective.token: true}
"""


def test_stage_that_teaches_has_its_own_model_and_one_trial_a_seed(tmp_path: Path) -> None:
    made = plan(tmp_path, TAUGHT)
    (large,) = made.stages
    own = large.config
    assert (large.name, own["width"], own["steps"], own["pool"]) == ("large", 24, 6, "gap")
    baseline, hard, token = made.arms
    assert [arm.parent for arm in made.arms] == ["", "large", "large"]
    assert (hard.config["optimizer"], hard.config["width"]) == ("adamw", 16)
    assert (baseline.config["teacher"], "teacher" in hard.config) == ("none", False)
    assert token.params - hard.params == 16 + 16 + (16 + 1) * 10 + 16  # two tokens, a row, a head
    for job in (job for job in jobs_of([made]) if job.arm in ("hard", "token")):
        teacher = Config(**{**own, "seed": job.config["seed"]})
        assert (list(job.parents), job.config["teacher"]) == ([trial_id(teacher)], trial_id(teacher))
        assert trial_id(Config(**job.config)) == job.id
    assert hard.notes[-1] == "learns from large: 6 steps of 16 images of digits at 8 px"
    grown = growing.grown(made, planning.build(design(tmp_path, TAUGHT.replace("  hard:", "  harder:")), [0, 1, 2]))
    left = next(arm for arm in grown.arms if arm.name == "hard")
    assert left.trials == next(arm for arm in grown.arms if arm.name == "harder").trials
    assert len(left.trials) == 3


def test_students_learn_from_their_seeds_teacher(tmp_path: Path, ablate: Ablate) -> None:
    """`train` with a student's config gives the same trial; the teacher of another seed is refused."""
    design(tmp_path, TAUGHT)
    code, _, errors = ablate("run", *STUDY_HERE, "--seeds", "1")
    assert code == 0, errors
    jobs = {job.arm: job for job in jobs_of([store.read_plan(Path("runs/studies/s@r/plan.json"))])}
    assert all(store.trial(Path("runs"), job.id).state().status == "finished" for job in jobs.values())
    left_out = ("seed", "options", "model", "position_at", "data_seed")
    settings = [f"{key}={value}" for key, value in jobs["token"].config.items() if key not in left_out]
    code, output, errors = ablate("train", *settings, "objective.token=true", "--json")
    assert code == 0, errors
    assert json.loads(output)["id"] == jobs["token"].id
    code, _, errors = ablate("train", f"teacher={jobs['large'].id}", "seed=1")
    assert (code, "data_seed=1: teacher=" in errors) == (2, True)


def test_jobs_are_ordered_by_seed_with_parents_first(tmp_path: Path) -> None:
    """A trial's id includes its parent's trial with the same seed."""
    jobs = jobs_of([plan(tmp_path)])
    seeds, known = [job.config["seed"] for job in jobs], dict[str, Job]()
    assert seeds == sorted(seeds)
    for job in jobs:
        config = Config(**job.config)
        assert trial_id(config) == job.id
        assert known.keys() >= job.parents.keys()
        if job.parents:
            parent = known[config.init_from]
            assert (parent.config["seed"], parent.config["init_from"]) == (config.seed, "none")
            assert next(iter(job.parents)) == parent.id
        known[job.id] = job
    chosen = jobs_of([plan(tmp_path)], ["image_size=8,pretrain.data_fraction=1.0"])
    assert [job.arm for job in chosen[:2]] == ["pretrain,data_fraction=1.0", "image_size=8,pretrain.data_fraction=1.0"]
    other = jobs_of([plan(tmp_path, **{"pretrain.steps": 5})])
    assert not {job.id for job in other} & known.keys()


def test_what_is_set_of_which_stage(tmp_path: Path) -> None:
    """recipe < the recipe's stage < command line < the study's stage < arm."""
    study = STUDY.replace("n: {}", "n: {lr: 5e-3}").replace("image_size: axis", "position: [1d, 2d]")
    arms = {arm.name: arm for arm in design(tmp_path, study, width=32, steps=7, **{"pretrain.warmup": 0.5}).arms}
    arm = arms["position=2d,pretrain.data_fraction=0.1"]
    own, parent = arm.config, arm.parent.config
    assert (own.optimizer, own.lr, own.label_smoothing, own.warmup, own.steps) == ("sgd", 0.01, 0.0, 0.1, 7)
    assert (parent.optimizer, parent.lr, parent.label_smoothing, parent.warmup) == ("adamw", 5e-3, 0.1, 0.5)
    assert (parent.position, parent.width, parent.steps, parent.data_fraction) == ("2d", 32, 7, 0.1)
    assert arm.parent.name == "pretrain,position=2d,data_fraction=0.1"


@pytest.mark.parametrize("stage", ["{}", "{steps: 9, lr: 1e-3}", "{epochs: 3}"])
def test_plain_settings_are_for_all_stages_whatever_the_recipe_says(tmp_path: Path, stage: str) -> None:
    """`pretrain.steps` and `finetune.steps` override a plain `steps` for one stage."""
    recipe = RECIPE.replace("{label_smoothing: 0.1}", stage)

    def steps(**overrides: object) -> tuple[int, int]:
        arm = designs.design(tmp_path, STUDY, recipe, **overrides).arms[0]
        return arm.parent.config.steps, arm.config.steps

    own, arms = steps()
    assert steps(steps=7) == (7, 7)
    assert steps(**{"pretrain.steps": 5}) == (5, arms)
    assert steps(**{"finetune.steps": 3}) == (own, 3)
    assert steps(**{"pretrain.steps": 5, "steps": 7, "finetune.steps": 3}) == (5, 3)


TWO = STUDY.replace("{pretrain: {}}", "{pretrain: {}, other: {steps: 3}}")
EITHER = """
question: q
stages: {pretrain: {}, other: {}}
baseline: {init_from: {stage: pretrain}}
factors: {init_from: [{stage: pretrain}, {stage: other}]}
"""
MISTAKES: list[tuple[str, dict[str, object], str]] = [
    # settings on the command line of no stage, or of one that the study itself sets
    (TWO, {"data_fraction": 0.5}, "^data_fraction=0.5 is for all stages, .* pretrain: other.data_fraction=0.5 or fine"),
    (TWO, {"epochs": 2}, "^epochs=2 is for all stages, .* other: pretrain.epochs=2 or finetune.epochs=2 is for one"),
    (TWO, {"image_size": 16}, "^image_size is what the study 's' varies"),
    (TWO, {"finetune.image_size": 16}, "^finetune.image_size is what the study 's' varies"),
    (TWO, {"pretrain.seed": 1}, "^pretrain.seed: a stage has the seeds"),
    (TWO, {"finetune.seed": 1}, "^finetune.seed: the seeds of a study are set with --seeds"),
    (TWO, {"pretrain.stepz": 1}, "^unknown key 'pretrain.stepz'; did you mean 'pretrain.steps'"),
    (TWO, {"pretain.steps": 1}, "^pretain.steps=1: the stages of the study 's' are .*did you mean 'pretrain'"),
    # wrong values, named as they were written
    (EITHER, {"pretrain.steps": "x"}, "^pretrain.steps=x: "),
    (EITHER, {"pretrain.optimizer": "sdg"}, "^pretrain.optimizer=sdg: one of .*did you mean 'sgd'"),
    (EITHER, {"pretrain.data": "nope"}, "^pretrain.data=nope: one of digits"),
    (EITHER, {"other.epochs": -1}, "arm init_from=other: other.epochs=-1: "),
    (EITHER, {"finetune.steps": "x"}, "^finetune.steps=x: "),
    (EITHER, {"finetune.steps": "x", "pretrain.lr": "y"}, "^pretrain.lr=y: "),
    # stages that do not exist, and stages whose weights or predictions do not fit
    (STUDY.replace("{stage: pretrain}", "{stage: pretain}"), {}, "did you mean 'pretrain'"),
    (STUDY.replace("stages: {pretrain: {}}", "stages: {seed: {}}"), {}, "stages: seed: a name"),
    (STUDY.replace("data_fraction: axis", "data_part: [1]"), {}, "curves: unknown key 'pretrain.data_part'"),
    (STUDY.replace("data_fraction: axis", "seed: [1]"), {}, "has the seeds of what starts from it"),
    (STUDY.replace("n: {}", "n: {depth: 2}"), {}, "encoder.blocks.1"),
    (STUDY.replace("n: {}", "n: {init_from: {stage: pretrain}}"), {}, "pretrain starts from pretrain"),
    (TAUGHT.replace("{stage: large}, pool", "{stage: big}, pool"), {}, "teacher=big: none, .*stages are large"),
    (TAUGHT.replace("{width: 24", "{image_size: 16"), {}, "sees image_size=16, its student 8"),
    (TAUGHT.replace("{width: 24", "{objective: masked-patch"), {}, "was trained with objective=masked-patch"),
    (TAUGHT.replace("hard: {", "hard: {init_from: {stage: large}, "), {}, "only one of them may be a stage"),
]


@pytest.mark.parametrize(("study", "overrides", "said"), MISTAKES, ids=[said for _, _, said in MISTAKES])
def test_mistake_is_named_before_anything_trains(
    tmp_path: Path, study: str, overrides: dict[str, object], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        plan(tmp_path, study, **overrides)


def test_a_recipe_has_to_say_how_it_fine_tunes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^study 's' fine-tunes, but recipe 'r' does not say how: add to it `stages:"):
        designs.design(tmp_path, STUDY, RECIPE.replace("finetune:", "other:"))


def test_stages_start_from_stages(tmp_path: Path) -> None:
    study = """
    question: q
    stages:
      masked: {objective: masked-patch, patch: 4}
      supervised: {init_from: {stage: masked}}
    baseline: {init_from: {stage: supervised}}
    factors: {lr: [0.01, 0.1], init_from: [none, {stage: supervised}]}
    """
    jobs = jobs_of([plan(tmp_path, study)])
    assert [job.arm for job in jobs[:3]] == ["masked", "supervised", "lr=0.01,init_from=supervised"]
    assert list(jobs[2].parents.values()) == ["supervised", "masked"]


def test_undeclared_difference_of_what_arms_start_from_is_an_error(tmp_path: Path) -> None:
    made = plan(tmp_path)
    made.stages[1].config["steps"] = 5
    moved = {"parent": "pretrain,data_fraction=1.0", "declared": ["image_size", "pretrain.data_fraction"]}
    made.arms[2] = made.arms[2].model_copy(update=moved)  # against its baseline's 0.1
    with pytest.raises(ValueError, match=r"differs from pretrain,data_fraction=0\.1 in steps, 5 against 4"):
        refuse_undeclared(made)
    notes = {arm.name: arm.notes for arm in plan(tmp_path, OR_NONE).arms}
    assert notes["init_from=pretrain"] == [
        "starts from pretrain: 4 steps of 16 images of digits at 8 px; it saw labels of more images of the same task "
        "(data_fraction 1, the arm itself 0.1), which the difference measures too"
    ]


def test_edited_stage_leaves_earlier_arms_where_they_start(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    study = f"{OR_NONE}arms: {{fast: {{init_from: {{stage: pretrain}}, lr: 0.1}}}}"
    write(runs, prepare(design(tmp_path, study), runs, 1))
    before = {one.name: one for one in read(runs, "s@r").arms}  # type: ignore[union-attr]
    edited = study.replace("n: {}", "n: {steps: 5}").replace("fast: ", "faster: ").replace("0.1}", "0.2}")
    grown = prepare(design(tmp_path, edited), runs, 2)
    arms, stages = ({one.name: one for one in some} for some in (grown.arms, grown.stages))
    assert arms["fast"].trials[0] == before["fast"].trials[0]
    assert {len(one.trials) for one in (*grown.arms, *grown.stages)} == {2}
    assert stages[arms["fast"].parent].config["steps"] == 4
    assert arms["fast"].parent.startswith("pretrain#")
    assert arms["faster"].parent == arms["init_from=pretrain"].parent == "pretrain"
    assert stages["pretrain"].config["steps"] == 5
    assert arms["init_from=pretrain"].trials[0] != before["init_from=pretrain"].trials[0]
    for job in jobs_of([grown]):
        assert trial_id(Config(**job.config)) == job.id
    write(runs, grown)
    back = prepare(design(tmp_path, study.replace("fast:", "third:").replace("0.1}", "0.3}")), runs, 2)
    assert {one.parent for one in back.arms if one.name in ("fast", "third")} == {"pretrain"}
    assert {stage.name.partition("#")[0] for stage in back.stages} == {"pretrain"}
    assert len(back.stages) == 2  # that of today is the first one again, and faster's


def test_a_stage_is_identified_by_its_trials_whatever_its_name(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    one = f"{ONE_STAGE}arms: {{fast: {{lr: 0.1}}}}"
    write(runs, prepare(design(tmp_path, one), runs, 1))
    grown = prepare(design(tmp_path, one.replace("fast: {lr: 0.1}", "more: {pretrain.lr: 1e-3}")), runs, 1)
    assert [stage.name for stage in grown.stages] == ["pretrain", "pretrain,lr=0.001"]
    assert {arm.name: arm.parent for arm in grown.arms}["fast"] == "pretrain"
    edited = design(tmp_path, one.replace("{pretrain: {}}", "{pretrain: {lr: 1e-3}}"))
    with pytest.raises(ValueError, match=r"another baseline \(pretrain.lr 0.002 -> 0.001\)"):
        prepare(edited, runs, 1)


@pytest.mark.parametrize("where", ["recipe", "study", "command line"])
def test_data_of_a_stage_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """The name is of `ablate.toml`."""
    pets = photographs(tmp_path / "pets", {f"{part}/{name}": 8 for part in ("train", "test") for name in "ab"}, (8, 8))
    (tmp_path / "ablate.toml").write_text(f"[data]\npets = '{pets}'\n")
    monkeypatch.chdir(tmp_path)
    stage = "pretrain: {data: pets}"
    designs.write(tmp_path, "r", RECIPE.replace("pretrain: {label_smoothing: 0.1}", stage if where == "recipe" else ""))
    designs.write(tmp_path, "s", ONE_STAGE.replace("pretrain: {}", stage) if where == "study" else ONE_STAGE)
    words = ["s.yaml", "pretrain.data=pets"] if where == "command line" else ["s.yaml"]
    (made,) = arguments.designs(arguments.parse_words(words), "r.yaml", None)
    arm = made.arms[0]
    assert (arm.config.data, arm.parent.config.data) == ("digits", f"imagefolder:{pets}")


@pytest.mark.parametrize("keep", ["all", "baseline", "none"])
def test_disk_counts_the_weights_that_stay(tmp_path: Path, keep: cleaning.Keep) -> None:
    made = plan(tmp_path)
    ids = {key for entry in made.entries for key in entry.ids.values()}
    found = overview.peak_disk(made, ids, 12, keep, 1).weights
    stages, arms = (sum(4 * e.params * len(e.trials) for e in part) for part in (made.stages, made.arms))
    baselines = sum(4 * arm.params * 2 for arm in made.arms if arm.name == arm.baseline)
    assert found == stages + {"all": arms, "baseline": baselines, "none": 0}[keep]


def test_masked_patches_are_not_called_by_their_labels(tmp_path: Path) -> None:
    study = "{question: q, baseline: {objective: masked-patch, pool: cls}, factors: {lr: [2e-3, 1e-3]}}"
    made = plan(tmp_path, study)
    write(tmp_path / "runs", made)
    (found,) = load_studies(tmp_path / "runs")
    assert "test accuracy of predicted colours" in layout.render(study_table.table(found), "md")
    assert "test accuracy of predicted colours" in study_figure.picture(found, "svg").decode()
    compared = summary.render(compare.compare([found], [found]), "md")
    assert "test accuracy of predicted colours" in compared
    usual = plan(tmp_path, study.replace("baseline: {objective: masked-patch, pool: cls}", "baseline: {pool: cls}"))
    assert "predicted" not in layout.render(study_table.table(replace(found, plan=usual)), "md")
    both = plan(tmp_path, study.replace("lr: [2e-3, 1e-3]", "objective: [masked-patch, classification]"))
    assert "its metrics are those of objective=classification, the baseline's masked-patch" in both.arms[1].notes


def test_it_runs_from_its_file_to_its_table(tmp_path: Path, ablate: Ablate) -> None:
    """Of all weights, those of the stages alone are kept."""
    design(tmp_path)
    runs = Path("runs")
    code, _, errors = ablate("run", *STUDY_HERE, "--keep-weights", "none")
    assert code == 0, errors
    made = store.read_plan(runs / "studies/s@r/plan.json")
    for job in jobs_of([made]):
        state = store.trial(runs, job.id).state()
        assert (state.status, state.weights.exists()) == ("finished", not job.parents)
    table = json.loads(ablate("table", "s@r", "--json", "--strict")[1])
    assert [row["arm"] for row in table["rows"]] == [arm.name for arm in made.arms]
    assert not [one for one in cleaning.find_waste(runs, [made], "none") if one.path.name == "weights.safetensors"]
    view = status.status(made, runs, status.SlurmState())
    assert (view.planned, view.counts["finished"]) == (12, 12)
    shown = status_view.render([view]).plain
    assert shown.index("  pretrain,data_fraction=0.1") < shown.index("  > image_size=8,pretrain.data_fraction=0.1")


@pytest.mark.slow
def test_killed_in_either_stage_it_ends_the_same(tmp_path: Path) -> None:
    jobs = jobs_of([plan(tmp_path, steps=2500)], ["image_size=16,pretrain.data_fraction=1.0"])[:2]
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
    made = plan(tmp_path)
    write(tmp_path / "runs", made)
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
    view = status.status(made, tmp_path / "runs", status.SlurmState())
    assert (view.counts["failed"], view.counts["blocked"], view.counts["finished"]) == (1, 2, 9)
    assert status.is_settled([view])
    assert f"2 trials: {why}" in status_view.render([view]).plain


def test_child_is_left_where_nobody_trains_its_parent(tmp_path: Path) -> None:
    child = next(job for job in jobs_of([plan(tmp_path)]) if job.parents)
    made = pool(tmp_path, child)
    assert made.next_trial(math.inf) is None
    why = "starts from pretrain,data_fraction=0.1, which has not finished"
    assert made.summary == RunSummary(interrupted={child.id: why})


def forget_weights(runs: Path, key: str) -> None:
    store.trial(runs, key).state().weights.unlink()


def test_parent_whose_weights_are_lost_is_trained_again(tmp_path: Path, ablate: Ablate) -> None:
    """Every command says so, `run` and `retry` do so, and only while a trial is to start from the weights."""
    design(tmp_path, ONE_STAGE)
    runs, some = Path("runs"), (*STUDY_HERE, "--seeds", "1")
    assert ablate("run", *some, "--arm", "image_size=8")[0] == 0
    parent, ended, child = jobs_of([store.read_plan(runs / "studies/s@r/plan.json")])
    before = store.trial(runs, parent.id).state().result
    forget_weights(runs, parent.id)

    def seen(command: str, *more: str) -> Any:
        return json.loads(ablate(command, *STUDY_HERE, *more, "--json")[1])

    why = f"starts from pretrain, {WEIGHTS_GONE}"
    cause = {"cause": why, "line": "", "kind": "lost", "seeds": [0], "ids": [child.id]}
    assert seen("status")["arms"][1]["causes"] == [cause]
    assert f"waits     1 trial: {why}" in ablate("status", *STUDY_HERE)[1]
    assert f"seed 0 missing: {why}" in seen("table")["rows"][1]["notes"]
    assert seen("plan", "--seeds", "1")["trials"] == {"planned": 3, "finished": 1, "shared": 0, "todo": 2}
    code, _, errors = ablate("run", *some, "--max-hours", "0")
    assert (code, "--max-hours 0: 2 trials to do take" in errors) == (2, True)
    alone = pool(tmp_path, child)  # without its parent
    assert alone.next_trial(math.inf) is None
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
    assert ablate("retry", *STUDY_HERE)[1].startswith("none of 3 trials failed")
    assert ablate("run", *some)[0] == 0
    assert store.trial(runs, parent.id).state().status == "finished"


def ended(runs: Path, job: Job, status: str) -> None:
    with synthetic.claimed(store.trial(runs, job.id)) as attempt:
        attempt.save_weights(b"")
        attempt.publish({"status": status, "metrics": {}})


@pytest.mark.parametrize("parent_is", ["lost", "diverged"])
def test_a_trained_trial_that_owes_an_eval_needs_no_parent(tmp_path: Path, parent_is: str) -> None:
    runs = tmp_path / "runs"
    study = STUDY.replace("curves: {pretrain.data_fraction: axis}", "evals: [inspect]")
    made = plan(tmp_path, study)
    write(runs, made)
    parent, owing, sibling, *_ = jobs_of([made])
    assert {*owing.parents} == {*sibling.parents} == {parent.id}
    ended(runs, parent, "diverged" if parent_is == "diverged" else "finished")
    if parent_is == "lost":
        forget_weights(runs, parent.id)
    ended(runs, owing, "finished")
    assert owing.standing(Standings(runs)).kind is Kind.OWES_EVALS
    assert sibling.standing(Standings(runs)).kind is (Kind.LOST if parent_is == "lost" else Kind.BLOCKED)
    assert reconciliation.generations([owing], Standings(runs))[:1] == [[owing]]
    assert retry.reopen_lost_parents(runs, [parent, owing]) == []
    assert pool(tmp_path, owing).next_trial(math.inf).job == owing  # type: ignore[union-attr]
    view = status.status(made, runs, status.SlurmState())
    assert not [cause for arm in view.arms for cause in arm.causes if owing.id in cause.ids]
    assert retry.lost_parents(runs, [parent, sibling]) == (
        {parent.id: "pretrain seed 0"} if parent_is == "lost" else {}
    )


def test_what_another_run_trained_again_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "runs"
    made = plan(tmp_path, ONE_STAGE)
    parent, child, *_ = jobs_of([made])
    ended(runs, parent, "finished")
    forget_weights(runs, parent.id)
    trial, find = store.trial(runs, parent.id), retry.lost_parents

    def meanwhile(*asked: Any) -> dict[str, str]:
        found = find(*asked)
        assert trial.reopen(lease.Watch(), trial.result())
        ended(runs, parent, "finished")
        return found

    monkeypatch.setattr(retry, "lost_parents", meanwhile)
    assert retry.reopen_lost_parents(runs, [parent, child]) == []
    assert trial.state().weights.exists()


PARENTS = {"b": "second", "a": "first"}


@pytest.mark.parametrize(
    ("second", "first", "kind", "why", "opened", "lost"),
    [
        (Kind.READY, Kind.WAITS, Kind.READY, "", (), ()),  # what is behind what is ready does not matter
        (Kind.WAITS, Kind.READY, Kind.WAITS, "starts from second, waits", ("b",), ()),
        (Kind.WAITS, Kind.WAITS, Kind.WAITS, "starts from first, waits", ("b", "a"), ()),
        (Kind.LOST, Kind.READY, Kind.LOST, "starts from second, lost", ("b",), ("b",)),
        (Kind.LOST, Kind.LOST, Kind.LOST, "starts from first, lost", ("b", "a"), ("b", "a")),
        (Kind.WAITS, Kind.LOST, Kind.LOST, "starts from first, lost", ("b", "a"), ("a",)),
        (Kind.BLOCKED, Kind.LOST, Kind.BLOCKED, "starts from second, blocked", ("b",), ()),
        (Kind.LOST, Kind.BLOCKED, Kind.BLOCKED, "starts from first, blocked", ("b", "a"), ("b",)),
    ],
)
def test_what_keeps_a_trial_from_beginning(
    second: Kind, first: Kind, kind: Kind, why: str, opened: tuple[str, ...], lost: tuple[str, ...]
) -> None:
    there = {"b": Start(second, second), "a": Start(first, first)}
    found = combined_start(PARENTS, there.__getitem__)
    assert (found.kind, found.why, found.open, found.lost) == (kind, why, opened, lost)


def test_train_starts_from_a_trial_or_a_file(tmp_path: Path, ablate: Ablate) -> None:
    def train(*words: str) -> tuple[int, str, str]:
        return ablate("train", *words, "width=16", "depth=1", "steps=4", "evaluations=1", "--json")

    parent = json.loads(train("objective=masked-patch")[1])
    weights = Path(f"runs/trials/{parent['id']}/attempts/{parent['attempt']}/weights.safetensors")
    one, other = (json.loads(train(f"init_from={start}")[1]) for start in (parent["id"], weights))
    assert one["id"] != other["id"]
    assert one["weights_sha256"] == other["weights_sha256"]
    Path("torn.safetensors").write_bytes(weights.read_bytes()[:-100])
    tensors = safetensors.torch.load_file(weights)
    safetensors.torch.save_file({name: t for name, t in tensors.items() if name != "stem.bias"}, "other.safetensors")
    for words, said in {
        ("init_from=0123456789ab",): "missing in",
        ("init_from=torn.safetensors",): "cannot be read",
        ("init_from=other.safetensors",): "stem.bias is not there",
        ("init_from=nothing.pt",): "none, the id of a trial",
        ("init_from=no.npz",): "No such file",
        (f"init_from={parent['id']}", "seed=1"): "data_seed=1",
    }.items():
        code, _, errors = train(*words)
        assert (code, len(errors.splitlines()), said in errors) == (2, 1, True), errors


def test_train_first_trains_again_what_lost_its_weights(tmp_path: Path, ablate: Ablate) -> None:
    """A parent whose data have changed cannot be trained again, which is an error."""
    pets = photographs(tmp_path / "pets", {f"{part}/{name}": 8 for part in ("train", "test") for name in "ab"}, (8, 8))
    small = ("width=16", "depth=1", "patch=4", "steps=4", "batch=4", "evaluations=1", "data=imagefolder:pets")

    def train(*words: str) -> dict[str, Any]:
        code, output, errors = ablate("train", *small, *words, "--json")
        assert code == 0, errors
        return {**json.loads(output), "errors": errors}

    runs = Path("runs")
    first = train("lr=0.01")
    second = train("lr=0.02", f"init_from={first['id']}")
    after_second = f"init_from={second['id']}"
    third = train("lr=0.03", after_second)
    for one in (first, second):
        forget_weights(runs, one["id"])
    assert train("lr=0.03", after_second)["attempt"] == third["attempt"]  # it is over: nothing is to do
    published = {key: first[key] for key in first if key != "errors"}
    assert store.trial(runs, first["id"]).state().result == Result.model_validate(published)
    said = "to train again, as the weights that others start from are gone"
    both = f"{said}: trial {second['id']} seed 0, trial {first['id']} seed 0"
    assert both in train("lr=0.04", after_second)["errors"]
    again = store.trial(runs, second["id"]).state().result
    assert (again.weights_sha256, again.attempt != second["attempt"]) == (second["weights_sha256"], True)
    assert store.trial(runs, second["id"]).reopen(lease.Watch(), again)  # as where Ctrl-C came before its end
    train("lr=0.05", after_second)
    forget_weights(runs, second["id"])
    Image.new("RGB", (8, 8)).save(pets / "train" / "a" / "0000.png")
    describe_folder.cache_clear()
    code, _, errors = ablate("train", *small, "lr=0.06", after_second)
    assert (code, errors.count("\n")) == (2, 1)
    assert f"{after_second}: its weights are not in {tmp_path}/runs, and it cannot be trained again" in errors
