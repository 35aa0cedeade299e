"""Tests of plug-ins, studies, recipes and code of users before anything is trained: `ablate check`, and probes."""

import io
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ablations.cli.answer import FAILED, fail_if, show_json
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import make_place
from ablations.cli.inputs.preparation import ensure_trainable, recipe_argument
from ablations.cli.work import finish, train_here
from ablations.execution import probe as probing
from ablations.execution import reopen
from ablations.execution.launch import Place
from ablations.jobs import jobs
from ablations.planning.checks import check as check_design
from ablations.planning.checks import check_margin
from ablations.planning.plan import build, description
from ablations.planning.saved_plans import save_plan
from ablations.study import strict_yaml
from ablations.study.arms import Values
from ablations.study.design import Design
from ablations.study.naming import RECIPE, YAML, assignments, packaged_names
from ablations.study.reading import kind_of, read_recipe, read_study
from ablations.study.recipe import Recipe
from ablations.trainables.trainable import find
from commonfloor.messages import joined_names
from results.store.schemas.base import Settings
from results.store.schemas.plans import Plan
from results.tables.formats import Cell, Grid, markdown

UNDECLARED = "arms were not probed: to see that the seed and all settings count, add `probe: {steps: 20}` to the recipe"


def check(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|NAME", help="Plug-ins (.py), studies or recipes (.yaml or their names), or 'all'."
        ),
    ],
    recipe: parameters.RecipeName = None,
    runs: parameters.Runs = None,
    data_dir: parameters.DataDir = None,
    workers: parameters.Workers = None,
    plugin: parameters.Plugins = None,
    no_probe: parameters.NoProbe = False,
    as_json: parameters.AsJson = False,
) -> None:
    """Test a plug-in, a study or a recipe.

    Runs the contract tests on the parts of a plug-in. Lists the arms and confounds of a study. Builds the model of a
    recipe. If a recipe with `probe` trains code of your own, each arm of a study on it is run for a moment, to show
    that the seed and every setting have an effect. `all` stands for every packaged part, study and recipe. The exit
    status is 1 if a check fails, and 2 if something cannot be checked or has no effect.

    Examples:

        ablate check fourier.py
        ablate check mine.yaml --recipe cifar10
        ablate check script.yaml lr.yaml
        ablate check all
    """
    place = make_place(runs, data_dir, plugin)
    named = [word for word in words if word in packaged_names("recipes") or yaml_kind(word) == "recipe"]
    if recipe is None and len(named) == 1:
        recipe = named[0]
    chosen = read_recipe(recipe or RECIPE)
    printed = io.StringIO()
    with redirect_stdout(printed) if as_json else nullcontext():
        passed = all([check_word(word, chosen) for word in words])
        if passed and not no_probe:
            for word in filter(is_study, words):
                probe_study(word, chosen, place, workers)
    if as_json:
        show_json([{"passed": passed, "lines": printed.getvalue().splitlines()}])
    fail_if(not passed)


def is_study(word: str) -> bool:
    return word in packaged_names("studies") or yaml_kind(word) == "study"


def yaml_kind(word: str) -> str:
    """Return "study" or "recipe" for a YAML file that is clearly one, or "". Raises ValueError if it is unreadable."""
    return kind_of(strict_yaml.read(Path(word))) if word.endswith(YAML) else ""


def check_word(word: str, recipe: Recipe) -> bool:
    """Check what `word` names, print one line per check, and return whether all checks pass."""
    if word == "all":
        return check_everything(recipe)
    if word.endswith(".py"):
        from ablations.trainables.vit.commands import part_checks  # imported here because it loads torch

        return part_checks.check_plugin(Path(word))
    if is_study(word):
        check_study(word, recipe)
    elif word in packaged_names("recipes") or word.endswith(YAML):
        check_recipe(word)
    else:
        raise ValueError(
            f"{word}: not a plug-in (.py), a study or recipe (.yaml, or a name of `ablate list`), or 'all'"
        )
    return True


def check_everything(recipe: Recipe) -> bool:
    """Check all packaged parts, studies and recipes; return whether all pass. An error does not end the checks."""
    from ablations.trainables.vit.commands import part_checks  # imported here because it loads torch

    passed = part_checks.check_packaged_parts()
    recipes = packaged_names("recipes")
    for name in (*packaged_names("studies"), *recipes):
        try:
            data = read_recipe(name).config["data"] if name in recipes else None
            if data and part_checks.is_missing_pack(data):
                print(f"{name}\n  skipped data={data}: no such pack here")
            else:
                check_word(name, recipe)
        except ValueError as error:
            print(f"{name}\n  FAILED  {' '.join(str(error).split())}")
            passed = False
    return passed


def check_study(file: str, recipe: Recipe) -> None:
    design = Design(read_study(file, recipe), recipe, {})
    check_design(design)
    arms = {arm.name: arm for arm in design.arms}
    for arm in design.arms:
        description(design.trainable, arm.name, arm.config)  # builds the model
    print(f"{file} on recipe {recipe.name}")
    for arm in design.arms:
        role = "baseline"
        if arm.name != arm.baseline:
            notes = arm.footnotes(arms[arm.baseline], design.study.budget)
            role = "; ".join(notes) or "nothing else differs"
        print(f"  ok      {arm.name}: {role}")


def check_recipe(file: str) -> None:
    recipe = read_recipe(file)
    trainable = find(recipe.trainable)
    check_margin(recipe.margin, file)

    def resolved(where: str, *layers: Values) -> Settings:
        try:
            settings = trainable.resolve(trainable.merge(recipe.config, *layers))
            trainable.check_trial(settings, None)
        except ValueError as error:
            raise ValueError(f"{file}: {where}: {error}") from None
        return settings

    config = resolved("config")
    # Options of variants are left out, which a study may choose.
    axes = [key for key in recipe.axes if not {*key.split(".")[:-1]} & {*trainable.keys}]
    for key in axes:
        stage, _, name = key.rpartition(".")
        for value in recipe.axes[key]:
            resolved(f"axes: {key}", trainable.merge(recipe.stages.get(stage, {}), {name: value}))
    size = trainable.describe(config)
    print(file)
    if "params" in size:
        print(f"  ok      {size['params']:,} parameters, {size['flops']:,} FLOPs an image, {config['steps']:,} steps")
    else:
        print(f"  ok      settings {assignments(config, ', ')}")
    for warning in trainable.warnings(config):
        print(f"  warning {warning}")
    for name, settings in recipe.arms.items():
        ratio = flops_text(trainable.describe(resolved(f"arm {name}", settings)), size)
        print(f"  ok      arm {name}: {ratio}")
    if axes:
        print(f"  ok      the values of axes {', '.join(axes)}")
    for name, settings in recipe.stages.items():
        config = resolved(f"stage {name}", settings)
        text = "is valid"
        if "params" in size:
            text = f"{config['steps']:,} steps of {config['batch']} images of {config['data']}"
        print(f"  ok      stage {name}: {text}")


def flops_text(described: Settings, reference: Settings) -> str:
    """Return how the FLOPs of an arm compare with the recipe's, such as "2.1 times the FLOPs"."""
    if "flops" not in reference:
        return "is valid"
    ratio = f"{described['flops'] / reference['flops']:.2g}"
    return "the same FLOPs" if ratio == "1" else f"{ratio} times the FLOPs"


# -- probes ------------------------------------------------------------------------------------------------------------


def probe_study(file: str, recipe: Recipe, place: Place, workers: int | None) -> None:
    """Probe all arms of a study on a recipe of the user's code, and print what the probes show."""
    design = Design(read_study(file, recipe), recipe, {})
    if not design.trainable.is_probed:
        return
    if not recipe.probe:
        return print(UNDECLARED)
    plan = build(design, [probing.SEED])
    probe = probing.Probe(plan, plan.arms_by_name)
    run_probes([probe], place, workers)
    findings = probe.read(place.runs)
    assert findings is not None  # as no probe failed
    print(f"\n{probe_table(findings)}")
    findings.refuse_dead()


def probe_plans(plans: Sequence[Plan], arms: Sequence[str], place: Place, workers: int | None) -> None:
    """Run the probes that are missing before trials of the plans."""
    probes = needed_probes(plans, arms, place)
    run_probes(probes, place, workers)
    refuse_dead(probes, place.runs)


def check_earlier_probes(plans: Sequence[Plan], arms: Sequence[str], place: Place, options: str) -> None:
    probes = needed_probes(plans, arms, place)
    for probe in probes:
        if probe.read(place.runs) is None:
            plan = probe.plan
            study = shlex.quote(plan.asked.study if plan.asked else plan.study)
            advice = f"`ablate check {recipe_argument(plan)} {study}{options}` runs each for a moment"
            print(f"ablate: {plan.name}: its arms are not probed: {advice}", file=sys.stderr)
    refuse_dead(probes, place.runs)


def needed_probes(plans: Sequence[Plan], arms: Sequence[str], place: Place) -> list[probing.Probe]:
    """Return the probes of the arms that have trials to train. Warns of new plans of users' code without probes."""
    if any(find(plan.trainable).is_probed and not plan.extends and not plan.probe for plan in plans):
        print(f"ablate: {UNDECLARED}", file=sys.stderr)
    probes = []
    for plan in plans:
        if plan.probe:
            todo = reopen.trials_to_run(place.runs, jobs([plan], arms), place.code)
            if todo:
                probes.append(probing.Probe(plan, {job.arm for job in todo}))
    return probes


def refuse_dead(probes: Iterable[probing.Probe], runs: Path) -> None:
    for probe in probes:
        findings = probe.read(runs)
        if findings is not None:
            findings.refuse_dead()


def save_plans(plans: Iterable[Plan], runs: Path) -> list[Plan]:
    """Write plans with notes on what probes of their baselines found, and return them."""
    noted = []
    for plan in plans:
        if plan.probe:
            findings = probing.Probe(plan, []).read(runs)
            if findings is not None:
                plan = probing.with_note(plan, findings.note)
        save_plan(runs, plan)
        noted.append(plan)
    return noted


def run_probes(probes: Sequence[probing.Probe], place: Place, workers: int | None) -> None:
    for name in (probing.FIRST, probing.AGAIN):
        runs = probing.folder(place.runs, name)
        planned = list({job.id: job for probe in probes for job in probe.jobs_in(name)}.values())
        probing.remove_unfinished(runs, planned)
        todo = reopen.trials_to_run(runs, planned, place.code)
        if not todo:
            continue
        of_probes = replace(place, runs=runs, checkpoints=None, keep_weights="none", retries_exceptions=False)
        ensure_trainable(todo, of_probes)
        summary = train_here(todo, of_probes, workers)
        if summary.failed and not summary.stopped:
            refuse_failed({job.arm: summary.failed[job.id] for job in todo if job.id in summary.failed}, probes)
        finish(summary, len(todo), "")


def refuse_failed(failed: Mapping[str, str], probes: Iterable[probing.Probe]) -> None:
    """Name the probes that failed on standard error, and exit. failed: name -> cause."""
    first, *others = failed
    also = ""
    if others:
        also = f" (and {joined_names(others)})"
    lengths = joined_names(dict.fromkeys(assignments(probe.plan.probe, ", ") for probe in probes))
    advice = f"`probe` ({lengths}) may be too short: it must last until the metrics are reported"
    print(f"ablate: {first}{also} failed: {failed[first]}; {advice}", file=sys.stderr)
    raise typer.Exit(FAILED)


def probe_table(findings: probing.Findings) -> str:
    plan = findings.probe.plan
    metric = plan.primary_metric

    def row(name: str, numbers: probing.Numbers, verdict: str) -> list[Cell]:
        number = numbers.get(metric.name)
        text = metric.value_text(number)
        if number is not None:
            text += metric.unit
        return [Cell(name), Cell(text), Cell(verdict)]

    again = "the same numbers"
    if findings.unstable:
        again = f"differs in {joined_names(findings.unstable)}: not deterministic"
    rows = [
        row(f"{plan.baseline}, once more", findings.again, again),
        row(f"{plan.baseline}, seed {probing.OTHER_SEED}", findings.other_seed, findings.seed_verdict),
    ]
    rows += [row(arm.name, findings.first[arm.name], findings.verdict(arm)) for arm in findings.probe.arms]
    title = f"probe with {assignments(plan.probe, ', ')}"
    return markdown(Grid(title, [], ["arm", metric.title, "against the baseline"], [False, True, False], rows))
