"""Stages are planned once and shared; what arms and stages set is declared and checked."""

from dataclasses import replace
from pathlib import Path

import designs
import pytest
from designs import ONE_STAGE, STAGED_RECIPE, STAGED_STUDY, TAUGHT, staged_design, staged_plan
from photographs import photographs

from ablations.cli import watching as cleaning
from ablations.cli.inputs import preparation
from ablations.cli.inputs.words import parse_words
from ablations.jobs import Job
from ablations.jobs import jobs as jobs_of
from ablations.planning import overview
from ablations.planning import plan as planning
from ablations.planning.checks import refuse_undeclared
from ablations.planning.estimate import Device
from ablations.planning.prepare import grown as extend
from ablations.planning.prepare import prepare
from ablations.planning.saved_plans import save_plan, saved_plan
from results.comparison import compare, summary
from results.figures import study_figure
from results.load import load_studies
from results.tables import layout, study_table
from vitcore.config import Config
from vitcore.identity import trial_id

OR_NONE = """
question: q
stages: {pretrain: {}}
baseline: {lr: 0.01}
factors: {init_from: [none, {stage: pretrain}]}
"""


def test_pre_training_is_planned_once_and_shared(tmp_path: Path) -> None:
    made = staged_plan(tmp_path)
    assert [stage.name for stage in made.stages] == ["pretrain,data_fraction=0.1", "pretrain,data_fraction=1.0"]
    assert [(arm.name, arm.parent) for arm in made.arms] == [
        (f"image_size={size},pretrain.data_fraction={part}", f"pretrain,data_fraction={part}")
        for size in (8, 16)
        for part in (0.1, 1.0)
    ]
    assert len(jobs_of([made])) == 2 * (2 + 4)
    view = overview.overview(made, tmp_path / "runs", [], Device(False))
    assert view.trials == overview.TrialCounts(planned=12, finished=0, shared=0, todo=12)
    again = staged_plan(tmp_path, STAGED_STUDY.replace("image_size: axis", "lr: [0.01, 0.1]"))
    there = overview.overview(again, tmp_path / "runs", [made], Device(False))
    assert there.trials.shared == 4 + 4  # the pre-trainings, and the arms at the recipe's own rate
    alone = overview.overview(made.model_copy(update={"stages": []}), tmp_path, [], Device(False))
    assert view.hours > alone.hours > 0


def test_a_plan_says_where_arms_and_stages_are_not_as_the_recipe(tmp_path: Path) -> None:
    """A stage may have other data of as many channels."""
    made = staged_plan(tmp_path, ONE_STAGE.replace("pretrain: {}", "pretrain: {steps: 7, data: mnist}"))
    fine = {"data_fraction": 0.1, "optimizer": "sgd", "lr": 0.01, "weight_decay": 0.0, "init_from": "pretrain"}
    assert made.departures == fine
    assert [stage.departures for stage in made.stages] == [{"steps": 7, "data": "mnist", "label_smoothing": 0.1}]


def test_stage_that_teaches_has_its_own_model_and_one_trial_a_seed(tmp_path: Path) -> None:
    made = staged_plan(tmp_path, TAUGHT)
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
    grown = extend(made, planning.build(staged_design(tmp_path, TAUGHT.replace("  hard:", "  harder:")), [0, 1, 2]))
    left = next(arm for arm in grown.arms if arm.name == "hard")
    assert left.trials == next(arm for arm in grown.arms if arm.name == "harder").trials
    assert len(left.trials) == 3


def test_jobs_are_ordered_by_seed_with_parents_first(tmp_path: Path) -> None:
    """A trial's id includes its parent's trial with the same seed."""
    jobs = jobs_of([staged_plan(tmp_path)])
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
    chosen = jobs_of([staged_plan(tmp_path)], ["image_size=8,pretrain.data_fraction=1.0"])
    assert [job.arm for job in chosen[:2]] == ["pretrain,data_fraction=1.0", "image_size=8,pretrain.data_fraction=1.0"]
    other = jobs_of([staged_plan(tmp_path, **{"pretrain.steps": 5})])
    assert not {job.id for job in other} & known.keys()


def test_layers_of_a_stage_override_each_other_in_order(tmp_path: Path) -> None:
    """recipe < the recipe's stage < command line < the study's stage < arm."""
    study = STAGED_STUDY.replace("n: {}", "n: {lr: 5e-3}").replace("image_size: axis", "position: [1d, 2d]")
    arms = {arm.name: arm for arm in staged_design(tmp_path, study, width=32, steps=7, **{"pretrain.warmup": 0.5}).arms}
    arm = arms["position=2d,pretrain.data_fraction=0.1"]
    own, parent = Config(**arm.config), Config(**arm.parent.config)
    assert (own.optimizer, own.lr, own.label_smoothing, own.warmup, own.steps) == ("sgd", 0.01, 0.0, 0.1, 7)
    assert (parent.optimizer, parent.lr, parent.label_smoothing, parent.warmup) == ("adamw", 5e-3, 0.1, 0.5)
    assert (parent.position, parent.width, parent.steps, parent.data_fraction) == ("2d", 32, 7, 0.1)
    assert arm.parent.name == "pretrain,position=2d,data_fraction=0.1"


@pytest.mark.parametrize("stage", ["{}", "{steps: 9, lr: 1e-3}", "{epochs: 3}"])
def test_plain_settings_are_for_all_stages_whatever_the_recipe_says(tmp_path: Path, stage: str) -> None:
    """`pretrain.steps` and `finetune.steps` override a plain `steps` for one stage."""
    recipe = STAGED_RECIPE.replace("{label_smoothing: 0.1}", stage)

    def steps(**overrides: object) -> tuple[int, int]:
        arm = designs.design(tmp_path, STAGED_STUDY, recipe, **overrides).arms[0]
        return arm.parent.config["steps"], arm.config["steps"]

    own, arms = steps()
    assert steps(steps=7) == (7, 7)
    assert steps(**{"pretrain.steps": 5}) == (5, arms)
    assert steps(**{"finetune.steps": 3}) == (own, 3)
    assert steps(**{"pretrain.steps": 5, "steps": 7, "finetune.steps": 3}) == (5, 3)


TWO = STAGED_STUDY.replace("{pretrain: {}}", "{pretrain: {}, other: {steps: 3}}")
EITHER = """
question: q
stages: {pretrain: {}, other: {}}
baseline: {init_from: {stage: pretrain}}
factors: {init_from: [{stage: pretrain}, {stage: other}]}
"""
MISTAKES: list[tuple[str, dict[str, object], str]] = [
    # settings on the command line of no stage, or of one that the study itself sets
    (
        TWO,
        {"data_fraction": 0.5},
        "^data_fraction=0.5 applies to all stages, .* pretrain: .*other.data_fraction=0.5",
    ),
    (TWO, {"epochs": 2}, "^epochs=2 applies to all stages, .* for other: .* pretrain.epochs=2 or finetune.epochs=2"),
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
    (STAGED_STUDY.replace("{stage: pretrain}", "{stage: pretain}"), {}, "did you mean 'pretrain'"),
    (STAGED_STUDY.replace("stages: {pretrain: {}}", "stages: {seed: {}}"), {}, "stages: seed: a name"),
    (STAGED_STUDY.replace("data_fraction: axis", "data_part: [1]"), {}, "curves: unknown key 'pretrain.data_part'"),
    (STAGED_STUDY.replace("data_fraction: axis", "seed: [1]"), {}, "has the seeds of what starts from it"),
    (STAGED_STUDY.replace("n: {}", "n: {depth: 2}"), {}, ": depth=1: stage pretrain has 2$"),
    (
        STAGED_STUDY.replace("n: {}", "n: {objective: dino, label_smoothing: 0}"),
        {"ema": 0.9},
        "stage pretrain: ema=0.9: must be 0 with",
    ),
    (STAGED_STUDY.replace("n: {}", "n: {init_from: {stage: pretrain}}"), {}, "pretrain starts from pretrain"),
    (TAUGHT.replace("{stage: large}, pool", "{stage: big}, pool"), {}, "teacher=big: none, .*stages are large"),
    (TAUGHT.replace("{width: 24", "{image_size: 16"), {}, "sees image_size=16, its student 8"),
    (TAUGHT.replace("{width: 24", "{objective: masked-patch"), {}, "was trained with objective=masked-patch"),
    (TAUGHT.replace("hard: {", "hard: {init_from: {stage: large}, "), {}, "only one of them may be a stage"),
]


@pytest.mark.parametrize(("study", "overrides", "said"), MISTAKES, ids=[said for _, _, said in MISTAKES])
def test_mistake_is_named_before_training(tmp_path: Path, study: str, overrides: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        staged_plan(tmp_path, study, **overrides)


def test_a_recipe_has_to_say_how_it_fine_tunes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^study 's' fine-tunes, but recipe 'r' does not say how: add to it `stages:"):
        designs.design(tmp_path, STAGED_STUDY, STAGED_RECIPE.replace("finetune:", "other:"))


def test_stages_start_from_stages(tmp_path: Path) -> None:
    study = """
    question: q
    stages:
      masked: {objective: masked-patch, patch: 4}
      supervised: {init_from: {stage: masked}}
    baseline: {init_from: {stage: supervised}}
    factors: {lr: [0.01, 0.1], init_from: [none, {stage: supervised}]}
    """
    jobs = jobs_of([staged_plan(tmp_path, study)])
    assert [job.arm for job in jobs[:3]] == ["masked", "supervised", "lr=0.01,init_from=supervised"]
    assert list(jobs[2].parents.values()) == ["supervised", "masked"]


def test_undeclared_difference_of_what_arms_start_from_is_an_error(tmp_path: Path) -> None:
    made = staged_plan(tmp_path)
    made.stages[1].config["steps"] = 5
    moved = {"parent": "pretrain,data_fraction=1.0", "declared": ["image_size", "pretrain.data_fraction"]}
    made.arms[2] = made.arms[2].model_copy(update=moved)
    with pytest.raises(ValueError, match=r"differs from pretrain,data_fraction=0\.1 in steps, 5 against 4"):
        refuse_undeclared(made)
    notes = {arm.name: arm.notes for arm in staged_plan(tmp_path, OR_NONE).arms}
    assert notes["init_from=pretrain"] == [
        "starts from pretrain: 4 steps of 16 images of digits at 8 px; it saw labels of more images of the same task "
        "(data_fraction 1, the arm itself 0.1), which the difference measures too"
    ]


def test_edited_stage_leaves_earlier_arms_where_they_start(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    study = f"{OR_NONE}arms: {{fast: {{init_from: {{stage: pretrain}}, lr: 0.1}}}}"
    save_plan(runs, prepare(staged_design(tmp_path, study), runs, 1))
    before = {one.name: one for one in saved_plan(runs, "s@r").arms}
    edited = study.replace("n: {}", "n: {steps: 5}").replace("fast: ", "faster: ").replace("0.1}", "0.2}")
    grown = prepare(staged_design(tmp_path, edited), runs, 2)
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
    save_plan(runs, grown)
    back = prepare(staged_design(tmp_path, study.replace("fast:", "third:").replace("0.1}", "0.3}")), runs, 2)
    assert {one.parent for one in back.arms if one.name in ("fast", "third")} == {"pretrain"}
    assert {stage.name.partition("#")[0] for stage in back.stages} == {"pretrain"}
    assert len(back.stages) == 2  # pretrain is the first stage again; the arm faster keeps the edited one


def test_a_stage_is_identified_by_its_trials_whatever_its_name(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    one = f"{ONE_STAGE}arms: {{fast: {{lr: 0.1}}}}"
    save_plan(runs, prepare(staged_design(tmp_path, one), runs, 1))
    grown = prepare(staged_design(tmp_path, one.replace("fast: {lr: 0.1}", "more: {pretrain.lr: 1e-3}")), runs, 1)
    assert [stage.name for stage in grown.stages] == ["pretrain", "pretrain,lr=0.001"]
    assert {arm.name: arm.parent for arm in grown.arms}["fast"] == "pretrain"
    edited = staged_design(tmp_path, one.replace("{pretrain: {}}", "{pretrain: {lr: 1e-3}}"))
    with pytest.raises(ValueError, match=r"another baseline \(pretrain.lr 0.002 -> 0.001\)"):
        prepare(edited, runs, 1)


@pytest.mark.parametrize("where", ["recipe", "study", "command line"])
def test_data_of_a_stage_may_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """The name is of `ablate.toml`."""
    pets = photographs(tmp_path / "pets", {f"{part}/{name}": 8 for part in ("train", "test") for name in "ab"}, (8, 8))
    (tmp_path / "ablate.toml").write_text(f"[data]\npets = '{pets}'\n")
    monkeypatch.chdir(tmp_path)
    stage = "pretrain: {data: pets}"
    designs.write(
        tmp_path, "r", STAGED_RECIPE.replace("pretrain: {label_smoothing: 0.1}", stage if where == "recipe" else "")
    )
    designs.write(tmp_path, "s", ONE_STAGE.replace("pretrain: {}", stage) if where == "study" else ONE_STAGE)
    words = ["s.yaml", "pretrain.data=pets"] if where == "command line" else ["s.yaml"]
    (made,) = preparation.designs(parse_words(words, "r.yaml"), None)
    arm = made.arms[0]
    assert (arm.config["data"], arm.parent.config["data"]) == ("digits", f"imagefolder:{pets}")


@pytest.mark.parametrize("keep", ["all", "baseline", "none"])
def test_disk_counts_the_weights_that_stay(tmp_path: Path, keep: cleaning.Keep) -> None:
    made = staged_plan(tmp_path)
    ids = {key for entry in made.entries for key in entry.ids.values()}
    found = overview.peak_disk(made, ids, 12, keep, 1).weights
    stages, arms = (sum(4 * e.params * len(e.trials) for e in part) for part in (made.stages, made.arms))
    baselines = sum(4 * arm.params * 2 for arm in made.arms if arm.name == arm.baseline)
    assert found == stages + {"all": arms, "baseline": baselines, "none": 0}[keep]


def test_accuracy_of_masked_patches_is_named_as_such(tmp_path: Path) -> None:
    study = "{question: q, baseline: {objective: masked-patch, pool: cls}, factors: {lr: [2e-3, 1e-3]}}"
    made = staged_plan(tmp_path, study)
    save_plan(tmp_path / "runs", made)
    (found,) = load_studies(tmp_path / "runs")
    assert "test accuracy of predicted colors" in layout.render(study_table.table(found), "md")
    assert "test accuracy of predicted colors" in study_figure.picture(found, "svg").decode()
    compared = summary.render(compare.compare([found], [found]), "md")
    assert "test accuracy of predicted colors" in compared
    usual = staged_plan(
        tmp_path, study.replace("baseline: {objective: masked-patch, pool: cls}", "baseline: {pool: cls}")
    )
    assert "predicted" not in layout.render(study_table.table(replace(found, plan=usual)), "md")
    both = staged_plan(tmp_path, study.replace("lr: [2e-3, 1e-3]", "objective: [masked-patch, classification]"))
    assert "its metrics are those of objective=classification, the baseline's masked-patch" in both.arms[1].notes
