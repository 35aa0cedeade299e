"""Build a study's plan, which lists the study's arms and trials.

A plan holds all that tables, plots, reports, comparisons and exports need, so that they load neither torch nor YAML.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from ablations.planning import checks, data_summary
from ablations.planning.contrasts import interactions, tuned_arms
from ablations.study import written_names
from ablations.study.arms import Arm
from ablations.study.budget import training_flops
from ablations.study.confounds import enlargement_notes, footnotes, model_notes, refuse_undeclared
from ablations.study.design import Design
from ablations.study.recipe import Recipe
from ablations.study.stages import LINKS, Stage, lineage
from results.claim_text import claimed_arms
from results.store import schemas
from results.store.plan_files import learned_settings, parent_setting
from results.store.schemas import Entry, Plan, PlannedTrial, Settings, Split
from results.store.schemas.metrics import metric_by_name, objective_label
from vitcore.analysis.cost import measure
from vitcore.analysis.evals import EVAL, eval_of, find, metrics_of
from vitcore.config import Config, merge
from vitcore.data.dataset import About
from vitcore.data.lookup import describe
from vitcore.identity import HOW_IT_RUNS, arm_key, trial_ids
from vitcore.options import ConfigError
from vitcore.runtime.host import Cost
from vitcore.training.evaluation import METRICS


def build(design: Design, seeds: Sequence[int]) -> Plan:
    """Return the plan of a design.

    Raises the errors of `checks.check`. Also raises ValueError if an arm or stage cannot be built, or if an undeclared
    difference confounds an arm.
    """
    study, recipe = design.study, design.applicable_recipe
    checks.check(design)
    made = {arm.name: arm for arm in design.arms}
    stages = stage_entries(design, seeds)
    arms = [arm_entry(design, arm, made[arm.baseline], seeds, stages) for arm in design.arms]
    at_own_values = tuned_arms(design)
    departed = departures(design, made[design.main_baseline])
    # The recipe states the spread for its own config only; a factor's other baseline value hardly changes it.
    other_config = learned_settings(design.overrides) or departed.keys() - design.factors.keys() - design.curves.keys()
    spread = None if other_config or study.stages else recipe.spread
    plan = Plan(
        name=design.name,
        study=study.name,
        recipe=recipe.name,
        overrides=design.overrides,
        question=study.question,
        source=study.source,
        found=study.found,
        figure=study.figure,
        budget=study.budget,
        metric=design.metric,
        metrics=declared_metrics(design),
        factors=design.factors,
        crosses=design.crosses,
        curves=design.curves,
        tune=design.tune,
        published_of=study.published_of or study.source,
        description=data_summary.description(design),
        data=data_summary.data(design),
        departures=departed,
        evals=[name for name in checks.required_evals(design) if not is_stage_eval(design, name)],
        margin=design.margin,
        claims=applicable_claims(design),
        caveats=[*recipe.caveats, *enlarged_evals(design)],
        notes=data_summary.notes(design),
        cost=stated_cost(recipe),
        expected=expected_results(design, departed),
        spread=spread,
        baseline=design.main_baseline,
        split=split(describe(design.data)),
        seeds=list(seeds),
        grows=study.grows,
        stages=list(stages.values()),
        arms=arms,
        family=contrasts(at_own_values or arms),
        tuned=at_own_values,
        points_family=contrasts(arms) if at_own_values else 0,
        interactions=interactions(design),
    )
    refuse_undeclared(plan)
    return plan


def declared_metrics(design: Design) -> list[schemas.Metric]:
    """Return the metrics that trials and their evals measure, labeled by what all arms learn."""
    objectives = {arm.config.objective for arm in design.arms}
    objective = objectives.pop() if len(objectives) == 1 else ""
    found = [
        schemas.Metric(name=name, label=objective_label(name, objective), **kind) for name, kind in METRICS.items()
    ]
    for one in checks.required_evals(design):
        found += [metric_by_name(name).model_copy(update={"eval": one}) for name in metrics_of(one)]
    return found


def applicable_claims(design: Design) -> list[str]:
    """Return the study's claims about arms that exist with this recipe."""
    there = {*checks.claimable_names(design)}
    return [claim for claim in written_names.all_claims(design) if {*claimed_arms(claim)} <= there]


def contrasts(entries: Sequence[schemas.Arm | schemas.Tuned]) -> int:
    return sum(entry.name != entry.baseline for entry in entries)


def enlarged_evals(design: Design) -> list[str]:
    """Return a note for each eval that enlarges the stored images."""
    sizes = [number for entry, number in map(find, checks.required_evals(design)) if entry is EVAL["test@SIZE"]]
    return [
        f"In evaluations, {note}." for size in sizes for note in enlargement_notes(design.arms[0].config.data, size)
    ]


def expected_results(design: Design, departed: Settings) -> list[schemas.Expected]:
    """Return what the recipe states for exactly the `learned_settings` of the overrides.

    departed: the `departures` of the baseline. Returns [] if the study has stages, or if its baseline itself departs
    from the recipe.
    """
    asked = learned_settings(design.overrides)
    of_overrides = {"steps" if key == "epochs" else key for key in asked}
    if design.study.stages or departed.keys() - of_overrides:
        return []
    return [one for one in design.applicable_recipe.expected if one.settings == asked]


def stated_cost(recipe: Recipe) -> schemas.StatedCost | None:
    """Return the time and the FLOPs per process of a trial of the recipe, or None if the recipe states no time."""
    if not recipe.cost:
        return None
    own = Config(**recipe.config)
    work = 3.0 * measure(own).flops * float(own.steps * own.batch) / own.gpus
    return schemas.StatedCost(work=work, **recipe.cost)


def split(data: About) -> Split:
    if data.folds:
        return Split(kind="folds", folds=data.folds, images=data.train_size + data.test_size)
    return Split(kind="official", images=data.test_size)


def arm_cost(name: str, config: Config) -> Cost:
    """Return the cost of a model. Raises a ValueError that names the arm or stage if the model cannot be built."""
    try:
        return measure(config)
    except Exception as error:  # a user's plug-in may raise anything
        raise ValueError(f"arm {name} cannot be built: {type(error).__name__}: {error}") from error


def stage_entries(design: Design, seeds: Sequence[int]) -> dict[str, schemas.Stage]:
    """Return stage name -> plan entry for all stages, parents first."""
    found: dict[str, schemas.Stage] = {}
    for stage in (one for arm in design.arms for one in reversed(list(lineage(arm.parent)))):
        if stage.name in found:
            continue
        written = settings(stage)
        found[stage.name] = schemas.Stage(
            name=stage.name,
            stage=stage.stage,
            parent=stage.parent.name if stage.parent else "",
            key=arm_key(stage.config),
            config=written,
            departures=departures(design, stage),
            evals=[name for name in checks.required_evals(design) if is_stage_eval(design, name)],
            **asdict(arm_cost(stage.name, stage.config)),
            trials=trials(stage.config, written, seeds, found.get(stage.parent.name) if stage.parent else None),
        )
    return found


def departures(design: Design, entry: Arm | Stage) -> Settings:
    """Return the explicit settings of an arm or stage that differ from the recipe and affect what it computes.

    Returns {} if the recipe's config is invalid with the data of `entry`.
    """
    own, recipe = entry.config.model_dump(), design.recipe.config
    try:
        plain = Config(**merge(recipe, {"data": own["data"]})).model_dump()  # other data change the default image size
    except ConfigError:
        return {}
    plain["data"] = recipe.get("data", own["data"])
    own |= {entry.parent.link: entry.parent.name} if entry.parent else {}
    written = ["steps" if key == "epochs" else key for key in (*entry.settings, *LINKS)]
    mine, its = ({**config, **config["options"]} for config in (own, plain))
    return {key: mine[key] for key in written if key not in HOW_IT_RUNS and key in mine and mine[key] != its.get(key)}


def is_stage_eval(design: Design, eval_name: str) -> bool:
    """Return whether stages compute this eval. They compute few-shot probes, unless a probe is the metric."""
    return eval_name == "fewshot" and bool(design.study.stages) and eval_of(design.metric) != "fewshot"


def arm_entry(
    design: Design, arm: Arm, baseline: Arm, seeds: Sequence[int], stages: Mapping[str, schemas.Stage]
) -> schemas.Arm:
    written, parent = settings(arm), arm.parent.name if arm.parent else ""
    return schemas.Arm(
        name=arm.name,
        baseline=arm.baseline,
        change=arm.change.name,
        values=arm.values,
        declared=arm.change.declared_settings,
        model_family=design.family_name(arm),
        parent=parent,
        key=arm.key,
        config=written,
        published=published_number(design, arm),
        at_twice_the_steps=later_difference(design, arm, baseline),
        **asdict(arm_cost(arm.name, arm.config)),
        train_flops=training_flops(arm.config) * arm.config.steps,
        notes=footnotes(arm, baseline, design.study.budget),
        notes_about=model_notes(arm, baseline),
        trials=trials(arm.config, written, seeds, stages.get(parent)),
    )


def later_difference(design: Design, arm: Arm, baseline: Arm) -> schemas.LaterDifference | None:
    """Return the difference from the baseline that the recipe states for an arm after twice the steps, or None.

    The recipe states differences in test accuracy at equal steps, with its own config as the baseline. They apply
    neither to arms with co-changes nor to named arms that the study defines.
    """
    known, study = design.applicable_recipe.at_twice_the_steps, design.study
    of_recipe = not arm.change.named or study.arms[arm.change.name] == "axis"
    if known is None or design.metric != "test_accuracy" or study.budget != "steps" or not of_recipe:
        return None
    against_recipe = baseline.key == arm_key(Config(**design.recipe.config))
    return known.difference(arm.name) if against_recipe and not arm.change.co_changes else None


def settings(arm: Arm | Stage) -> Settings:
    """Return the resolved config without the keys that differ by seed.

    They are `seed`, `data_seed` unless it is set, and `init_from` or `teacher` if it names the parent.
    """
    left_out = {"seed"} if "data_seed" in arm.settings else {"seed", "data_seed"}
    left_out |= {arm.parent.link} if arm.parent else set()
    return {key: value for key, value in arm.config.model_dump().items() if key not in left_out}


def trials(config: Config, settings: Settings, seeds: Sequence[int], parent: Entry | None = None) -> list[PlannedTrial]:
    """Return the trials of a config, one per seed. settings: the config as the plan entry records it.

    parent: the plan entry of the parent, which needs a trial for each seed.
    """
    before = parent.ids if parent else None
    ids = trial_ids(config, seeds, settings.get("data_seed"), before, parent_setting(settings))
    return [PlannedTrial(seed=seed, id=trial_id) for seed, trial_id in zip(seeds, ids, strict=True)]


def published_number(design: Design, arm: Arm) -> float | None:
    """Return the arm's published number, or None. Without curves, the study may key it by the values of all factors."""
    numbers = written_names.published(design)
    short = ",".join(f"{key}={arm.values[key]}" for key in design.study.factors)
    return numbers.get(arm.name, numbers.get(short) if not design.curves else None)
