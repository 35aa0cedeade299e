"""Studies and recipes become arms and trials; a mistake in their files is one line."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path

import pytest
import synthetic
from designs import RECIPE, STUDY, design, names
from in_process import Ablate
from photographs import manifests

from ablations.jobs import jobs as jobs_of
from ablations.planning import checks
from ablations.planning import plan as planning
from ablations.planning.prepare import grown as extend
from ablations.planning.prepare import prepare
from ablations.planning.saved_plans import save_plan
from ablations.study.design import Design
from ablations.study.naming import packaged_names
from ablations.study.reading import read_recipe, read_study
from vitcore.analysis.cost import measure
from vitcore.config import Config
from vitcore.model.position import POSITION, NoPosition

PATCHES = "{question: q, baseline: {patch: 4}, factors: {patch: axis}}"
NAMES = {
    "in the study's order": (
        "{question: q, baseline: {position: 1d, pool: gap}, factors: {position: [none, 1d, 2d], pool: [cls, gap]}}",
        ["position=none", "position=1d,pool=gap", "position=2d", "pool=cls"],
    ),
    "with a baseline that is not listed": (
        "{question: q, baseline: {position: 1d}, factors: {position: [none]}}",
        ["position=1d", "position=none"],
    ),
    "with the recipe's values in a list": (
        "{question: q, baseline: {patch: 4}, factors: {patch: [1, axis]}}",
        ["patch=1", "patch=2", "patch=4", "patch=8"],
    ),
}


@pytest.mark.parametrize(("study", "arms"), NAMES.values(), ids=NAMES)
def test_arms_are_named_by_how_they_differ(tmp_path: Path, study: str, arms: list[str]) -> None:
    made = design(tmp_path, study)
    assert names(made) == arms
    assert {arm.baseline for arm in made.arms} == {made.main_baseline} == {made.baseline_name}


def test_curve_multiplies_the_factors_and_has_a_baseline_at_each_point(tmp_path: Path) -> None:
    study = "{question: q, baseline: {pool: cls}, factors: {pool: [cls, gap]}, curves: {lr: axis}}"
    made = design(tmp_path, study)
    assert [(arm.name, arm.baseline) for arm in made.arms] == [
        ("pool=cls,lr=0.001", "pool=cls,lr=0.001"),
        ("pool=cls,lr=0.002", "pool=cls,lr=0.002"),
        ("pool=gap,lr=0.001", "pool=cls,lr=0.001"),
        ("pool=gap,lr=0.002", "pool=cls,lr=0.002"),
    ]
    assert made.main_baseline == "pool=cls,lr=0.002"
    assert [arm.config["lr"] for arm in made.arms] == [0.001, 0.002, 0.001, 0.002]


def test_named_arms_are_joint_changes(tmp_path: Path) -> None:
    recipe = RECIPE + "    arms: {wide: {width: 32, lr: 1e-3}}\n"
    study = STUDY + "    arms: {wide: axis, wide-slow: {recipe_arm: wide, lr: 5e-4, batch: 16}, ours: {position: 2d}}\n"
    wide, slow, ours = design(tmp_path, study, recipe).arms[-3:]
    assert (wide.config["width"], wide.config["lr"]) == (32, 0.001)
    assert (slow.config["width"], slow.config["lr"], slow.config["batch"]) == (32, 0.0005, 16)
    assert slow.change.declared_settings == ["width", "lr", "batch"]
    assert (ours.name, ours.config["position"], ours.config["width"]) == ("ours", "2d", 16)


def test_all_sweeps_every_entry_of_a_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POSITION, "mine", type("Mine", (NoPosition,), {"numerics": 1}))
    made = design(tmp_path, "{question: q, baseline: {position: 1d}, factors: {position: all}}")
    assert names(made) == [f"position={name}" for name in POSITION]
    assert names(made)[-1] == "position=mine"


def test_claims_and_numbers_may_name_places_on_an_axis(tmp_path: Path) -> None:
    study = """
        question: q
        baseline: {pool: cls}
        factors: {pool: [cls, gap], patch: axis}
        crosses: [{pool: [cls, gap], patch: axis}]
        curves: {lr: axis}
        arms: {slow: {warmup: 0.5}}
        published: {"pool=cls,patch=axis[1],lr=axis[0]": 0.5, "slow,lr=axis[-1]": 0.7, "patch=axis[7],lr=axis[0]": 0.1}
        claims:
          - pool=gap,patch=axis[1],lr=axis[0] < pool=cls,patch=axis[0],lr=axis[-1]
          - patch=axis[2] ~ pool=gap
          - patch=axis[3] ~ pool=gap
          - patch=2 < patch=1
    """
    plan = planning.build(design(tmp_path, study), [0])
    assert {arm.name: arm.published for arm in plan.arms if arm.published} == {
        "pool=cls,patch=4,lr=0.001": 0.5, "slow,lr=0.002": 0.7
    }  # fmt: skip
    assert plan.claims == ["pool=gap,lr=0.001 < patch=2,lr=0.002", "patch=8 ~ pool=gap"]


def test_precedence_is_recipe_baseline_command_line_arm(tmp_path: Path) -> None:
    study = "{question: q, baseline: {position: 1d, batch: 16}, factors: {position: [1d]}, arms: {a: {steps: 9}}}"
    made = design(tmp_path, study, steps=7)
    base, named = made.arms
    assert (base.config["batch"], base.config["steps"], named.config["steps"], base.config["width"]) == (16, 7, 9, 16)


def test_a_plan_says_where_its_baseline_is_not_as_the_recipe(tmp_path: Path) -> None:
    study = "{question: q, baseline: {position: rope2d, position.base: 50, pool: gap}, factors: {pool: [cls, gap]}}"
    made = planning.build(design(tmp_path, study, steps=8), [0])
    assert made.departures == {"position": "rope2d", "steps": 8, "position.base": 50}
    assert planning.build(design(tmp_path), [0]).departures == {}


def test_jobs_are_seed_major_and_shared_trials_are_one(tmp_path: Path) -> None:
    one = planning.build(design(tmp_path), [0, 1])
    two = planning.build(design(tmp_path, PATCHES), [0, 1])
    jobs = jobs_of([one, two.model_copy(update={"name": "other"})])
    assert [(job.arm, job.config["seed"]) for job in jobs] == [
        ("position=none", 0), ("position=1d", 0), ("position=none", 1), ("position=1d", 1),
        ("patch=2", 0), ("patch=8", 0), ("patch=2", 1), ("patch=8", 1),
    ]  # fmt: skip


def test_a_job_knows_what_its_model_costs(tmp_path: Path) -> None:
    made = planning.build(design(tmp_path), [0])
    assert all(job.description == asdict(measure(Config(**job.config))) for job in jobs_of([made]))
    assert not any("tokens" in job.description for job in jobs_of([synthetic.without(made, "tokens")]))


def test_plans_only_grow(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    save_plan(runs, prepare(design(tmp_path), runs, 3))
    wider = STUDY.replace("[none, 1d]", "[1d, 2d]")
    grown = prepare(design(tmp_path, wider), runs, 2)
    assert [arm.name for arm in grown.arms] == ["position=1d", "position=2d", "position=none"]
    assert all(len(arm.trials) == 3 for arm in grown.arms)
    assert grown.family == 2
    pruned = prepare(design(tmp_path, wider), runs, 2, prune=True)
    assert [len(arm.trials) for arm in pruned.arms] == [2, 2]
    with pytest.raises(ValueError, match=r"planned with another baseline \(steps 4 -> 8\).*--prune"):
        prepare(design(tmp_path, recipe=RECIPE.replace("steps: 4", "steps: 8")), runs, 2)
    with pytest.raises(ValueError, match="planned with baseline position=1d, now it is position=none"):
        prepare(design(tmp_path, STUDY.replace("position: 1d", "position: none")), runs, 2)


def test_an_arm_that_stays_is_measured_again(tmp_path: Path) -> None:
    old = planning.build(design(tmp_path), [0])
    first = {arm.name: arm.params for arm in old.arms}
    old = synthetic.with_arms(old, lambda arm: {"params": 1})
    grown = extend(old, planning.build(design(tmp_path, STUDY.replace("[none, 1d]", "[1d, 2d]")), [0]))
    kept = next(arm for arm in grown.arms if arm.name == "position=none")
    assert kept.params == first["position=none"]


def test_a_plan_has_what_the_recipe_states_of_its_arms_at_twice_the_steps(tmp_path: Path) -> None:
    known = f"""{RECIPE}
    at_twice_the_steps: {{how: measured, source: by hand, n: 5, differences: {{patch=2: -0.01, pool=cls: 0.02}}}}
    """
    study = "{question: q, baseline: {patch: 4}, factors: {patch: axis, pool: [cls, gap]}}"

    def stated(recipe: str, study: str = study, **overrides: object) -> dict[str, float]:
        plan = planning.build(design(tmp_path, study, recipe, **overrides), [0])
        there = {arm.name: arm.at_twice_the_steps for arm in plan.arms}
        assert all(one.origin == "measured: by hand, n = 5" for one in there.values() if one)
        return {name: one.difference for name, one in there.items() if one}

    assert stated(known) == stated(known, device="cpu") == {"patch=2": -0.01, "pool=cls": 0.02}
    assert stated(RECIPE) == stated(known, steps=8) == {}
    assert stated(known, study.replace("{patch: 4}", "{patch: 4, position: 2d}")) == {}
    assert stated(known, study[:-1] + ", budget: epochs}") == {}
    without, stated_too = (planning.build(design(tmp_path, study, recipe), [0, 1]) for recipe in (RECIPE, known))
    assert [arm.trials for arm in without.arms] == [arm.trials for arm in stated_too.arms]


MISTAKES = [
    ("{question: q, baseline: {}, factors: {lr: all}}", "lr: all: only position, pool, stem, head, "),
    (STUDY.replace("factors", "factor"), "unknown key 'factor'; did you mean 'factors'?"),
    (STUDY.replace("none, 1d", "none, none"), "position lists none twice"),
    (STUDY.replace("none, 1d", "nine, 1d"), "position=nine: one of none, 1d, 2d, relative"),
    (STUDY.replace("[none, 1d]", "none"), "factors.position=none: a list or 'axis' or 'all'"),
    (STUDY + "    claims: ['position=1d > position=none']\n", "is neither 'arm < arm' nor 'arm ~ arm'"),
    (
        STUDY + "    published: {positon=1d: 0.5}\n",
        "published=positon=1d: did you mean 'position=1d'? Known are position=none, position=1d",
    ),
    (STUDY + "    budget: seconds\n", "budget=seconds: 'steps', 'epochs' or 'flops'"),
    (STUDY + "    margin: 1\n", "margin=1: below 1, as a share of the images (0.03 is 3 points)"),
    (STUDY + "    published: {position=1d: 64.2}\n", "published position=1d=64.2: at most 1"),
    (STUDY.replace("[none, 1d]", "axis"), "recipe 'r' has no axis position (it has: patch, lr, data_fraction)"),
    (STUDY + "    arms: {same: {position: none}}\n", "arms position=none and same are the same trial"),
    (STUDY + "    arms: {' ': {lr: 1.0}}\n", "s.yaml: arms: ' ': an arm needs a name"),
    (STUDY + "    arms: {a: {lr: 1.0}, a: {lr: 2.0}}\n", "duplicate key 'a'"),
    ("- a list", "is not a mapping"),
    (STUDY.replace("{position: 1d}", "{pol: cls}"), "s.yaml: baseline: unknown key 'pol'; did you mean 'pool'?"),
    (STUDY.replace("{position: 1d}", "{position: 1d, lr: x}"), "study 's', baseline: lr=x: a finite number"),
    (STUDY + "    curves: {learning_rate: [1.0]}\n", "s.yaml: curves: unknown key 'learning_rate'; did you mean 'lr'?"),
    (STUDY + "    with: {position=1d: {seed: 3}}\n", "s.yaml: position=1d: seed: the seeds of a study are set with"),
    (STUDY + "    stages: {pre: {seed: 3}}\n", "s.yaml: pre: seed: the seeds of a study are set with"),
    (STUDY.replace("{position: 1d}", "{position: 1d, heads: 3}"), "heads=3 does not divide width=16"),
]


@pytest.mark.parametrize(("study", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_mistake_in_a_study_is_one_clear_line(tmp_path: Path, study: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        planning.build(design(tmp_path, study), [0])
    assert message in str(error.value)


def test_a_study_whose_extra_is_not_installed_is_no_mistake_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ModuleNotFoundError, match="timm"):
        planning.build(Design(read_study("compute"), read_recipe("digits"), {}), [0])


def test_published_numbers_are_of_one_place_each() -> None:
    for study in map(read_study, packaged_names("studies")):
        assert not study.published or study.published_of or ";" not in study.source, study.name
        assert study.published or not study.published_of, study.name


@pytest.fixture(scope="module", autouse=True)
def packs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABLATE_DATA", str(manifests(tmp_path_factory.mktemp("packs"))))
        yield


@cache
def packaged_design(study: str, recipe: str) -> Design:
    return Design(read_study(study), read_recipe(recipe), {})


LARGE = "imagenet"  # the other recipes are in the slow suite
OTHERS = [name for name in packaged_names("recipes") if name != LARGE]


@pytest.mark.parametrize("recipe", [LARGE, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
@pytest.mark.parametrize("study", packaged_names("studies"))
def test_every_packaged_study_plans_on_every_recipe(study: str, recipe: str) -> None:
    """test_confounds.py builds whole plans on digits."""
    made = packaged_design(study, recipe)
    checks.check_names(made)
    assert made.main_baseline in names(made)
    assert made.study.question.endswith("?")
    assert made.study.source


@pytest.mark.slow
@pytest.mark.parametrize("study", packaged_names("studies"))
def test_every_packaged_study_plans_whole_on_imagenet(study: str) -> None:
    made = packaged_design(study, "imagenet")
    assert [arm.name for arm in planning.build(made, [0]).arms] == names(made)


@pytest.mark.parametrize("recipe", packaged_names("recipes"))
def test_baselines_are_the_recipes_own(recipe: str) -> None:
    own = Config(**read_recipe(recipe).config)
    assert packaged_design("patch-size", recipe).main_baseline == f"patch={own.patch}"
    plain = {arm.name: Config(**arm.config) for arm in packaged_design("plain-vit", recipe).arms}
    improved, without = plain["position=sincos2d,pool=gap,head=mlp"], plain["no-randaugment-mixup"]
    weak = without.augment.removesuffix("none")
    assert improved.augment == f"{weak}-randaugment".removeprefix("-")
    assert without.augment == plain["original"].augment
    assert (improved.mixup, without.mixup, plain["original"].mixup) == (0.2, 0.0, 0.0)
    if "randaugment" in own.augment:
        assert improved.augment == own.augment


@pytest.mark.parametrize("recipe", packaged_names("recipes"))
def test_the_middle_of_the_learning_rates_is_the_recipes_own(recipe: str) -> None:
    """Figure 9 of arXiv 2010.11929 has equal results of both poolings at this rate."""
    found = read_recipe(recipe)
    assert found.axes["lr"][2] == found.config["lr"]
    assert len(found.axes["lr"]) == 5


def test_published_numbers_follow_the_widths_of_a_recipe() -> None:
    """The numbers are Table 6 of arXiv 2010.11929: ViT-B/32 to L/16, alone and on a ResNet50."""
    table_6 = [(0.8073, 0.8490), (0.8437, 0.8568), (0.8415, 0.8558), (0.8630, 0.8660)]
    for study in ("compute", "hybrid-stem-sizes"):
        made = packaged_design(study, "digits")
        found = {
            (arm.config["width"], arm.config["stem"]): planning.published_number(made, arm)
            for arm in made.arms
            if arm.config.get("stem", "conv") != "conv" and arm.change.name[0] in "sw"
        }
        assert [(found[w, "patch"], found[w, "resnet-small"]) for w in made.recipe.axes["width"]] == table_6


@pytest.mark.parametrize("recipe", packaged_names("recipes"))
def test_every_recipe_has_enough_sizes_for_a_fit(recipe: str) -> None:
    """The power law error = a C^-b needs at least 4 sizes per family."""
    made = packaged_design("compute", recipe)
    sizes = Counter(made.family_name(arm) for arm in made.arms)
    assert sizes.keys() == {"ViT", "hybrid", "ResNet"}
    assert min(sizes.values()) >= 4


@pytest.mark.parametrize("recipe", packaged_names("recipes"))
def test_the_lines_of_the_star_change_one_size_alone(recipe: str) -> None:
    made = packaged_design("shape-star", recipe)
    sizes: dict[str, tuple[float, ...]] = {}
    for arm in made.arms:
        width = arm.config["width"]
        sizes[arm.name] = (width, arm.config["depth"], width * arm.config["mlp_ratio"])
    center = sizes.pop(made.main_baseline)
    assert {sum(one != other for one, other in zip(size, center, strict=True)) for size in sizes.values()} == {1}


@pytest.mark.parametrize("study", ["compute", "dataset-scale", "hybrid-stem", "hybrid-stem-sizes"])
def test_hybrids_of_photographs_are_the_papers(study: str) -> None:
    """The root of `resnet` quarters the side; `resnet-small` keeps the side of small images."""
    for recipe, stem in (("imagenet", "resnet"), ("imagenet100", "resnet"), ("digits", "resnet-small")):
        made = packaged_design(study, recipe)
        assert {arm.config.get("stem", "patch") for arm in made.arms} - {"patch", "conv"} == {stem}
        assert {arm.change.name for arm in made.arms if arm.config.get("stem") == stem} >= {f"stem={stem}"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("every") / "runs"


@pytest.mark.slow
@pytest.mark.parametrize("study", packaged_names("studies"))
def test_every_packaged_study_runs_on_digits(study: str, runs: Path, ablate: Ablate) -> None:
    short = ["steps=100"]
    if "steps" in read_study(study).curves:
        recipe = runs.parent / "short.yaml"
        digits = Path("ablations/recipes/digits.yaml").read_text()
        recipe.write_text(digits.replace("steps: [500, 1000, 2000]", "steps: [120, 240, 480]"))
        short = ["--recipe", str(recipe)]
    where = [study, *short, "evaluations=1", "--runs", str(runs)]
    assert ablate("run", *where, "--seeds", "2")[0] == 0
    status, output, _ = ablate("table", *where, "--json", "--strict")
    assert (status, {row["n"] + row["diverged"] for row in json.loads(output)["rows"]}) == (0, {2})
    status, output, errors = ablate("plot", *where)
    assert (status, errors) == (0, "")
    assert Path(output.strip()).stat().st_size > 10_000
