"""The cost of a plan: sources of hours, --max-hours, --probe, what is cheaper; and what its seeds resolve."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import synthetic
from designs import TAUGHT, design
from designs import write as write_yaml
from in_process import Ablate, json_output, refusal
from torch import Tensor

from ablations.jobs import jobs
from ablations.planning import estimate, overview, resolution
from ablations.planning import plan as planning
from ablations.planning.estimate import CORE_HOURS, Device, StepTime
from ablations.planning.saved_plans import plan_digest, save_plan, saved_plan
from ablations.study.design import Design
from ablations.study.naming import packaged_names
from ablations.study.reading import read_recipe, read_study
from ablations.trainables.vit import vit
from ablations.trainables.vit.vit import VIT
from results import store
from results.load import load_studies
from results.statistics import intervals
from results.statistics.power import PlannedTest
from results.store.schemas.metrics import metric_by_name
from results.store.schemas.plans import Arm, Plan, PlannedData
from results.store.schemas.stated import Expected
from vitcore.analysis.cost import measure
from vitcore.config import Config
from vitcore.training.pretrained import Teacher

RECIPE = """
    description: A test.
    config: {data: digits, width: 16, depth: 1, heads: 2, patch: 4, pool: gap, steps: 200, batch: 16, lr: 2e-3}
    seeds: 3
    margin: 0.03
    axes: {patch: [2, 4], lr: [1e-3, 2e-3]}
"""
STATED = """
    cost: {cpu: {how: measured, source: by hand, device: A core, seconds: 7}}
    spread: {how: measured, source: by hand, sd: 0.01, freedom: 30}
    expected: [{how: cited, source: a paper, mean: 0.9}]
"""
STUDY = "{question: 'Which?', baseline: {patch: 4}, factors: {patch: axis}}"
# Ten validations of 144 images of digits and a test of 360. Training on one of 200 * 16 images takes as long as three.
MADE = Plan.model_validate(synthetic.position())
ACCURACY = metric_by_name("test_accuracy")
EVALUATION = (10 * 144 + 360) / (3 * 200 * 16)
CORE, GPU = Device(gpu=False, name="A core"), Device(gpu=True, name="a100")


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., Plan]:
    def make(recipe: str = RECIPE, study: str = STUDY, **overrides: Any) -> Plan:
        made = planning.build(design(tmp_path, study, recipe, **overrides), [0, 1, 2])
        save_plan(tmp_path, made.model_copy(update={"extends": plan_digest(saved_plan(tmp_path, made.name))}))
        return made

    return make


def test_what_a_recipe_states_is_of_its_own_settings(plan: Callable[..., Plan]) -> None:
    two = "{how: cited, source: a, mean: 0.9}, {how: cited, source: b, mean: 0.95, settings: {steps: 400}}"
    for overrides, means in (({}, [0.9]), ({"steps": 400, "device": "cpu"}, [0.95]), ({"steps": 300}, [])):
        assert [one.mean for one in plan(RECIPE + f"    expected: [{two}]", **overrides).expected] == means
    changed = plan(RECIPE + STATED, steps=400)
    assert plan(RECIPE + STATED, device="cpu").spread is not None
    assert (changed.spread, changed.expected, changed.cost.cpu.seconds) == (None, [], 7)


@pytest.mark.parametrize(
    ("baseline", "has_spread", "is_expected"),
    [
        ("patch: 4", True, True),
        ("patch: 4, steps: 200", True, True),
        ("patch: 2", True, False),
        ("patch: 4, steps: 60", False, False),
        ("patch: 4, depth: 2", False, False),
    ],
)
def test_a_baseline_that_departs_from_the_recipe_loses_what_the_recipe_states(
    baseline: str, has_spread: bool, is_expected: bool, plan: Callable[..., Plan]
) -> None:
    made = plan(RECIPE + STATED, STUDY.replace("patch: 4", baseline))
    assert (made.spread is not None, bool(made.expected)) == (has_spread, is_expected)


def test_what_is_cited_or_derived_says_so(plan: Callable[..., Plan], tmp_path: Path) -> None:
    cited = Expected(metric="test_accuracy", mean=0.9101, n=None, how="cited", source="a paper")
    assert overview.expected_text(cited, MADE) == "others reached 91.01% test accuracy, cited: a paper"
    measured = cited.model_copy(update={"how": "measured", "n": 5})
    assert overview.expected_text(measured, MADE) == "expects 91.01% test accuracy (n = 5), measured: a paper"
    made = plan(RECIPE + "    cost: {cpu: {how: derived, source: half of another, device: A core, seconds: 7}}")
    text = overview.time_text(overview.overview(made, tmp_path, [], CORE), made)
    assert text.endswith("(derived: half of another, A core)")


def finish(
    runs: Path, arm: Arm, seed: int, seconds: float, accuracy: float = 0.5, val_accuracy: float = 0.5, **env: Any
) -> None:
    trial = store.trial(runs, arm.trials[seed].id)
    trial.create({"config": arm.config | {"seed": seed}})
    with synthetic.claimed(trial) as attempt:
        attempt.write_env({"schema": 1, "device": "A core", "threads": 1, **env})
        metrics = {"test_accuracy": accuracy, "val_accuracy": val_accuracy}
        attempt.publish({"status": "finished", "metrics": metrics, "train_seconds": seconds})


def sources(plan: Plan, runs: Path, device: Device) -> list[tuple[float, str]]:
    """Return the training seconds of each arm and their source."""
    found = map(estimate.TrialTimes(plan, runs, device).estimate, plan.arms)
    return [(seconds / (1 + EVALUATION), source) for seconds, source in found]


def test_hours_come_from_the_best_source_there_is(plan: Callable[..., Plan], tmp_path: Path) -> None:
    """Worst to best: FLOPs, the recipe, past trials of other arms, a probe, past trials of the arm."""
    made = plan()
    flops = [arm.flops for arm in made.arms]
    work = [3 * one * 200 * 16 for one in flops]
    assert sources(made, tmp_path, CORE) == [(pytest.approx(one / estimate.CORE_FLOPS), "flops") for one in work]
    assert sources(made, tmp_path, GPU) == [(pytest.approx(one / estimate.GPU_FLOPS), "flops") for one in work]
    made = plan(RECIPE + STATED)
    assert sources(made, tmp_path, CORE) == [(pytest.approx(7 * flops[0] / flops[1]), "recipe"), (7.0, "recipe")]
    assert sources(made, tmp_path, GPU)[0][1] == "flops"
    estimate.write_step_times(tmp_path, CORE, {estimate.step_key(VIT, made.arms[1].config): StepTime(seconds=0.01)})
    assert sources(made, tmp_path, CORE)[1] == (2.0, "probe")
    finish(tmp_path, made.arms[1], 0, 3.0)
    finish(tmp_path, made.arms[1], 1, 5.0)
    assert sources(made, tmp_path, CORE)[1] == (4.0, "past")
    assert sources(made, tmp_path, CORE)[0] == (pytest.approx(4 * flops[0] / flops[1]), "others")
    estimate.write_step_times(tmp_path, CORE, {estimate.step_key(VIT, made.arms[0].config): StepTime(seconds=0.02)})
    assert sources(made, tmp_path, CORE)[0] == (4.0, "probe")


def test_bf16_is_slower_on_a_cpu_without_instructions_for_it(
    plan: Callable[..., Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    float32, bf16 = plan(RECIPE + STATED), plan(RECIPE + STATED, precision="bf16")
    for instructions, seconds in ((True, 7.0), (False, pytest.approx(7.0 * vit.BF16_SLOWDOWN))):
        monkeypatch.setattr(vit, "has_bf16", lambda known=instructions: known)
        assert sources(bf16, tmp_path, CORE)[1] == (seconds, "recipe")
        assert sources(float32, tmp_path, CORE)[1] == (7.0, "recipe")
        view = overview.overview(bf16, tmp_path, [], CORE)
        assert ("precision=float32" in overview.render(view, bf16)) is not instructions


def test_past_trials_of_comparable_arms_count(plan: Callable[..., Plan], tmp_path: Path) -> None:
    made = plan(RECIPE + STATED)
    for seed, seconds in enumerate((3.0, 4.0, 11.0)):
        finish(tmp_path, made.arms[1], seed, seconds)
    wide = read_study(write_yaml(tmp_path, "wide", "{question: q, baseline: {width: 32}, factors: {width: [64]}}"))
    recipe = read_recipe(str(tmp_path / "r.yaml"))
    other = planning.build(Design(wide, recipe, {}), [0])
    expected = [(pytest.approx(4 * arm.flops / made.arms[1].flops), "others") for arm in other.arms]
    assert sources(other, tmp_path, CORE) == expected
    text = "past trials of other arms on this device for 2 arms, "
    assert estimate.sources_text({"others": 2}, [other]) == f"{text}in proportion to training FLOPs"
    assert estimate.sources_text({"others": 2}, []) == f"{text}as if all took equally long"
    assert [source for _, source in sources(other, tmp_path, GPU)] == ["flops", "flops"]
    elsewhere = other.model_copy(update={"recipe": "another"})
    assert [source for _, source in sources(elsewhere, tmp_path, CORE)] == ["recipe", "recipe"]
    threads = planning.build(Design(wide, recipe, {"threads": 4}), [0])
    assert [source for _, source in sources(threads, tmp_path, CORE)] == ["recipe", "recipe"]


def test_past_trials_count_on_their_own_device_alone(plan: Callable[..., Plan], tmp_path: Path) -> None:
    made = plan()
    arm = made.arms[0]
    finish(tmp_path, arm, 0, 1.0, device="NVIDIA A100-SXM4-80GB", accelerator="cuda")
    finish(tmp_path, arm, 1, 8.0, device="A core", accelerator="cpu", threads=4)
    finish(tmp_path, arm, 2, 30.0, device="A core", accelerator="cpu")
    a100, any_gpu, h100 = GPU, Device(gpu=True), Device(gpu=True, name="h100")
    for device, seconds in ((a100, [1.0]), (any_gpu, [1.0]), (h100, []), (CORE, [30.0])):
        assert estimate.TrialTimes(made, tmp_path, device).past_seconds(arm, 9) == seconds


def test_arms_whose_steps_take_equally_long_share_a_measurement(plan: Callable[..., Plan]) -> None:
    config = plan().arms[0].config
    assert estimate.step_key(VIT, config | {"lr": 1.0, "steps": 7, "weight_decay": 0.0}) == estimate.step_key(
        VIT, config
    )
    others = [config | change for change in ({"patch": 8}, {"batch": 8}, {"device": "cpu"}, {"threads": 4})]
    assert len({estimate.step_key(VIT, one) for one in [config, *others]}) == 5


def test_trials_shared_by_two_plans_are_counted_once(plan: Callable[..., Plan], tmp_path: Path) -> None:
    made = plan(RECIPE + STATED)
    wanted = {job.id for job in jobs([made])}
    seconds = 3 * sum(one for one, _ in sources(made, tmp_path, CORE)) * (1 + EVALUATION)
    twice = estimate.cost([made, made.model_copy(update={"name": "other"})], tmp_path, CORE, wanted)
    assert twice.hours == pytest.approx(seconds / 3600)
    assert twice.sources == {"recipe": 2}
    assert estimate.cost([made], tmp_path, CORE, set()).hours == 0


def test_spread_is_the_studys_own_else_the_recipes_else_unknown(plan: Callable[..., Plan], tmp_path: Path) -> None:
    """By hand: differences of 1, 2 and 3 points have a deviation of 1 point with 2 degrees of freedom."""
    unknown = resolution.resolution(plan(), tmp_path)
    assert (unknown.spread, unknown.difference, unknown.seeds_for) == (None, None, {})
    made = plan(RECIPE + STATED)
    stated = resolution.resolution(made, tmp_path)
    assert (stated.spread.sd, stated.spread.freedom) == (0.01, 30)
    assert stated.spread.source == "the recipe (measured: by hand)"
    for seed, difference in enumerate((0.01, 0.02, 0.03)):
        finish(tmp_path, made.arms[1], seed, 1.0, 0.5)
        finish(tmp_path, made.arms[0], seed, 1.0, 0.5 + difference)
    own = resolution.resolution(made, tmp_path)
    assert (own.spread.sd, own.spread.freedom) == (pytest.approx(0.01), 2)
    assert own.spread.source == "the differences of this study so far"
    bound = intervals.sd_bound(0.01, 2)
    assert own.difference == pytest.approx(PlannedTest(bound).resolvable_difference(3))
    assert own.seeds_for == {
        "0.01": PlannedTest(bound, 6).seeds_to_resolve(0.01), "0.005": PlannedTest(bound, 6).seeds_to_resolve(0.005)
    }  # fmt: skip


def test_the_spread_of_another_metric_is_not_that_of_the_study(plan: Callable[..., Plan], tmp_path: Path) -> None:
    """A plan with another metric replaces the one on disk only with --prune."""
    made = plan()
    for seed, difference in enumerate((0.01, 0.02, 0.03)):
        finish(tmp_path, made.arms[1], seed, 1.0, 0.5)
        finish(tmp_path, made.arms[0], seed, 1.0, 0.5 + difference)
    assert resolution.resolution(made, tmp_path).spread is not None
    assert resolution.resolution(made.model_copy(update={"metric": "test_loss"}), tmp_path).spread is None


def test_the_spread_of_a_tuned_study_is_of_arms_at_their_own_rates(plan: Callable[..., Plan], tmp_path: Path) -> None:
    study = "{question: 'Which?', baseline: {patch: 4}, factors: {patch: axis}, tune: {lr: [1e-3, 2e-3, 4e-3]}}"
    made = plan(RECIPE + STATED, study)
    assert resolution.resolution(made, tmp_path).spread.freedom == 30  # nothing has finished: the recipe's
    for arm in made.arms:
        middle, ours = "lr=0.002" in arm.name, arm.name != arm.baseline
        for seed, difference in enumerate((0.01, 0.02, 0.03)):
            accuracy = 0.5 + ours * difference if middle else 0.1 * (1 + seed + ours * seed)
            finish(tmp_path, arm, seed, 1.0, accuracy, val_accuracy=0.9 if middle else 0.2)
    own = resolution.resolution(made, tmp_path).spread
    assert (own.sd, own.freedom) == (pytest.approx(0.01), 2)
    assert own.source == "the differences of this study so far"


def test_the_plan_of_a_tuned_study_counts_the_whole_grid(plan: Callable[..., Plan], tmp_path: Path) -> None:
    """The difference is that of power over three points, and the text gives both cases."""
    study = "{question: 'Which?', baseline: {patch: 4}, factors: {patch: axis}, tune: {lr: [1e-3, 2e-3, 4e-3]}}"
    found = resolution.resolution(plan(RECIPE + STATED, study), tmp_path)
    sd = found.spread.bound
    alone, tuned = (PlannedTest(sd, points=points).resolvable_difference(3) for points in (1, 3))
    assert (found.grid_points, found.difference, found.difference_if_one_is_best) == (3, tuned, alone)
    assert (
        found.seeds_for["0.01"]
        == PlannedTest(sd, points=3).seeds_to_resolve(0.01)
        > PlannedTest(sd).seeds_to_resolve(0.01)
    )
    assert found.smallest_margin == PlannedTest(sd, points=3).smallest_margin(3)
    line = resolution.resolution_lines(found, ACCURACY)[1]
    assert line.startswith("if all 3 grid points of an arm are equally good")
    assert line.endswith(f"; {100 * alone:.2f} points if one is clearly best")


def test_a_plan_counts_the_noise_of_test_images_that_all_seeds_share(plan: Callable[..., Plan], tmp_path: Path) -> None:
    """It is that of the differences so far; before there are any, the text says that it is left out."""
    made = plan(RECIPE + STATED)
    made = made.model_copy(update={"split": made.split.model_copy(update={"folds": None, "images": 400})})
    unknown = resolution.resolution(made, tmp_path)
    assert unknown.spread.images is None
    assert any("leaves out the noise of the test images" in line for line in lines_of(unknown))
    store.write_plan(store.study_folder(tmp_path, made.name) / "plan.json", made)
    rng, index = np.random.default_rng(0), np.arange(400)
    for arm in made.arms:
        for trial in arm.trials:
            correct = (rng.random(400) < 0.8).astype(np.uint8)
            record = synthetic.finished(correct.mean(), config=arm.config, seed=trial.seed, correct=(index, correct))
            synthetic.write_trial(store.trial(tmp_path, trial.id), record)
    found = resolution.resolution(made, tmp_path)
    (group,) = resolution.differences(load_studies(tmp_path, [made.name])[0], is_paired=True)
    images = group[0].images_variance
    assert found.spread.images == pytest.approx(images)
    assert found.difference == pytest.approx(PlannedTest(found.spread.bound, images=images).resolvable_difference(3))
    assert any(
        f"test images add a standard error of {100 * images**0.5:.2f} points" in line for line in lines_of(found)
    )


def test_a_plan_that_gives_up_pairing_counts_each_trial_of_the_study_so_far(
    plan: Callable[..., Plan], tmp_path: Path
) -> None:
    """The plan on disk is still paired."""
    made = plan(RECIPE)
    store.write_plan(store.study_folder(tmp_path, made.name) / "plan.json", made)
    accuracies = {arm.name: [0.9 + 0.01 * number, 0.92, 0.95] for number, arm in enumerate(made.arms)}
    for trial_id, record in synthetic.from_accuracies(made, accuracies).items():
        synthetic.write_trial(store.trial(tmp_path, trial_id), record)
    spread = resolution.resolution(made.model_copy(update={"paired": "no"}), tmp_path).spread
    variances = [np.var(values, ddof=1) for values in accuracies.values()]
    assert spread.sd == pytest.approx(np.sqrt(2 * np.mean(variances)))
    assert spread.freedom == 2 * len(made.arms)


def lines_of(found: resolution.Resolution) -> list[str]:
    return resolution.resolution_lines(found, ACCURACY)


def test_plan_says_whether_the_margin_is_within_reach(plan: Callable[..., Plan], tmp_path: Path) -> None:
    near = resolution.resolution(plan(RECIPE.replace("0.03", "0.05") + STATED), tmp_path)
    assert near.margin_reachable
    far = resolution.resolution(plan(RECIPE.replace("0.03", "0.005") + STATED), tmp_path)
    assert not far.margin_reachable
    assert far.margin_seeds > 3
    text = "\n".join(resolution.resolution_lines(far, ACCURACY))
    assert f"with less than 80% power: that takes {far.margin_seeds} seeds" in text
    assert "beyond 5 seeds every image is tested again" in text


def test_plan_says_in_words_that_no_difference_can_be_resolved(plan: Callable[..., Plan], tmp_path: Path) -> None:
    two_seeds = replace(resolution.resolution(plan(RECIPE + STATED), tmp_path), seeds=2, contrasts=1)
    for difference in (None, 1.02):  # an accuracy differs by 100 points at most
        first = resolution.resolution_lines(replace(two_seeds, difference=difference), ACCURACY)[0]
        assert first == "no difference in test accuracy with 2 seeds (80% power, 1 contrast)"


@pytest.fixture
def ablate(ablate: Ablate, tmp_path: Path) -> Ablate:
    (tmp_path / "r.yaml").write_text(dedent(RECIPE))
    (tmp_path / "s.yaml").write_text(STUDY)
    return ablate


def test_cap_refuses_before_anything_starts(ablate: Ablate, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("{gpus: 0}")
    before = sorted(tmp_path.rglob("*"))
    words = ["s.yaml", "--recipe", "r.yaml", "--max-hours", "1e-6"]
    for command in (["plan"], ["run"], ["submit", "--profile", "p.yaml"]):
        errors = refusal(ablate, *command, *words)
        assert "--max-hours 1e-06: training 6 trials takes" in errors
        assert "core-hours, from nothing but training FLOPs for 2 arms" in errors
    assert sorted(tmp_path.rglob("*")) == before
    assert ablate("plan", "s.yaml", "--recipe", "r.yaml", "--max-hours", "100")[0] == 0


def test_hours_are_those_of_the_profile_that_is_named(ablate: Ablate, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("{gpus: 1, gpu_type: a100}")
    words = ["plan", "s.yaml", "--recipe", "r.yaml", "--profile", "p.yaml"]
    found = json_output(ablate, *words)["hours_from"]
    assert (found["device"], found["unit"]) == ("a100", "GPU-hours")
    assert "--probe measures here, not what --profile p.yaml asks for" in refusal(ablate, *words, "--probe")


def test_plan_and_submission_estimate_the_same_hours(ablate: Ablate, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("{gpus: 0}")
    (tmp_path / "r.yaml").write_text(dedent(RECIPE) + "cost: {cpu: {how: cited, source: x, device: y, seconds: 600}}\n")
    words = ["s.yaml", "--recipe", "r.yaml", "--profile", "p.yaml"]
    planned, submitted = ablate("plan", *words)[1], ablate("submit", *words, "--dry-run")[1]
    (hours,) = re.findall(r"time    (\S+ core-hours) on y, from", planned)
    assert f", {hours}\n" in submitted


def test_hours_that_the_recipe_states_are_named_by_its_device(ablate: Ablate, tmp_path: Path) -> None:
    stated = "cost: {gpu: {how: cited, source: x, device: NVIDIA H200, seconds: 7200}}"
    (tmp_path / "r.yaml").write_text(f"{dedent(RECIPE)}{stated}\n")
    for kind, end in (("a100", "H200), not scaled to a100"), ("h200", "H200)")):
        (tmp_path / "p.yaml").write_text(f"{{gpus: 1, gpu_type: {kind}}}")
        planned = ablate("plan", "s.yaml", "--recipe", "r.yaml", "--profile", "p.yaml")[1]
        assert re.search(rf"time    \d+ GPU-hours on NVIDIA H200, from the recipe .*{re.escape(end)}\n", planned)


def test_probe_is_measured_once_and_found_by_a_later_plan(ablate: Ablate, tmp_path: Path) -> None:
    words = ["plan", "s.yaml", "--recipe", "r.yaml", "--json"]
    assert json.loads(ablate(*words)[1])["hours_from"]["sources"] == {"flops": 2}
    assert not (tmp_path / "runs").exists()
    status, output, errors = ablate(*words, "--probe")
    found = json.loads(output)
    assert (status, len(errors.splitlines())) == (0, 2)
    assert found["hours_from"]["sources"] == {"probe": 2}
    (file,) = (tmp_path / "runs/probes").glob("*.json")
    measured = store.read_json(file)
    assert measured["device"] == found["hours_from"]["device"]
    assert [pace["steps"] for pace in measured["paces"].values()] == [50, 50]
    seconds = 3 * 200 * sum(p["seconds"] for p in measured["paces"].values()) * (1 + EVALUATION)
    assert found["hours"] == pytest.approx(seconds / 3600)
    before = file.read_bytes()
    again = ablate(*words, "--probe")
    assert (json.loads(again[1])["hours"], again[2], file.read_bytes()) == (found["hours"], "", before)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["probes"]


def test_a_probe_of_a_distilled_arm_includes_its_teacher(
    ablate: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The teacher is not trained yet. Another teacher is another measurement."""
    sizes, forward = list[tuple[int, int]](), Teacher.forward

    def noted(teacher: Teacher, images: Tensor) -> Tensor:
        sizes.append((len(images), teacher.model.config.width))
        return forward(teacher, images)

    monkeypatch.setattr(Teacher, "forward", noted)
    words = ("plan", "s.yaml", "--recipe", "r.yaml", "--probe")
    (tmp_path / "s.yaml").write_text(TAUGHT)
    assert json_output(ablate, *words)["hours_from"]["sources"] == {"probe": 4}
    assert sizes == 110 * [(16, 24)]
    (tmp_path / "s.yaml").write_text(TAUGHT.replace("width: 24", "width: 32"))
    assert json_output(ablate, *words)["hours_from"]["sources"] == {"probe": 4}
    assert sizes[110:] == 110 * [(16, 32)]


MISTAKES = [
    ("cost: {cpu: {how: told, source: x, device: y, seconds: 1}}", "how=told: 'measured', 'derived'"),
    ("cost: {cpu: {how: cited, source: x, device: y, seconds: 0}}", "seconds=0"),
    ("expected: [{how: cited, mean: 0.9}]", "source' is missing"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES, ids=[text for text, _ in MISTAKES])
def test_figure_without_a_source_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "r.yaml").write_text(dedent(RECIPE) + text + "\n")
    with pytest.raises(ValueError) as error:
        read_recipe(str(tmp_path / "r.yaml"))
    assert message in str(error.value)


@pytest.mark.parametrize("name", packaged_names("recipes"))
def test_every_recipe_states_what_a_trial_takes(name: str) -> None:
    assert read_recipe(name).cost


def test_arms_without_tokens_are_left_out_of_the_range_of_tokens() -> None:
    config = {"val_fraction": 0.1, "data_fraction": 1.0, "image_size": 8}
    arms = [{"name": "a", "config": config, "tokens": 16}, {"name": "resnet", "config": config, "tokens": None}]
    size = {"train": 100, "test": 20, "folds": None, "classes": 2, "image_size": 8, "channels": 1}
    plan = Plan.model_construct(baseline="a", arms=[Arm.model_construct(**arm) for arm in arms])
    said = overview.images_text(plan, PlannedData(name="d", of_recipe=True, **size))
    assert said.endswith("trained at 8, 16 tokens")
    assert "about 90 images to train, 10 to validate, 20 to test" in said


EXPENSIVE = {"data": "digits", "image_size": 32, "patch": 2, "width": 32, "depth": 2, "heads": 2, "steps": 1000}


def suggested(hours: float, unit: str = CORE_HOURS, varied: tuple[str, ...] = (), **settings: Any) -> list[str]:
    config = Config(**{**EXPENSIVE, **settings})
    plan = Plan.model_validate(synthetic.position())
    arm = plan.baseline_arm.model_copy(update={"config": config.model_dump()})
    changes = {"arms": [arm], "factors": dict.fromkeys(varied), "curves": {}, "tune": {}}
    return overview.suggestions(hours, unit, plan.model_copy(update=changes))


@pytest.mark.parametrize(
    ("hours", "unit", "said"), [(23, CORE_HOURS, 0), (25, CORE_HOURS, 1), (239, "GPU-hours", 0), (241, "GPU-hours", 1)]
)
def test_only_an_expensive_plan_names_a_setting(hours: float, unit: str, said: int) -> None:
    lines = suggested(hours, unit)
    assert len(lines) == said
    assert all(line.startswith(f"{hours} {unit} are {hours / 24:.0f} days on one {unit[:-6]}; with ") for line in lines)


def test_the_named_setting_is_the_one_that_saves_most() -> None:
    (line,) = suggested(1000)
    match = re.search(r"with (\w+)=(\d+), about (\d+) core-hours", line)
    whole = measure(Config(**EXPENSIVE)).flops
    halved = {"image_size": 16, "patch": 4}
    shares = {key: measure(Config(**{**EXPENSIVE, key: value})).flops / whole for key, value in halved.items()}
    best = min(shares, key=lambda key: shares[key])
    assert (match[1], int(match[2])) == (best, halved[best])
    assert float(match[3]) == pytest.approx(1000 * shares[best], abs=1)
    assert shares[best] < 0.5  # or the steps would be named


def test_what_the_study_varies_or_the_model_cannot_have_is_not_named() -> None:
    assert suggested(100, varied=("patch", "image_size")) == [
        "100 core-hours are 4 days on one core; with steps=500, about 50 core-hours"
    ]
    assert suggested(100, varied=("patch", "image_size", "steps")) == ["100 core-hours are 4 days on one core"]
    assert "steps=500" in suggested(100, image_size=8, patch=8)[0]
