"""Build a study's plan, which lists the study's arms and trials.

A plan holds all that tables, plots, reports, comparisons and exports need, so that they load neither torch nor YAML.
"""

from collections.abc import Iterable, Mapping, Sequence

from ablations.planning import checks
from ablations.planning.contrasts import interactions, tuned_arms
from ablations.study import written_names
from ablations.study.arms import Arm
from ablations.study.design import Design
from ablations.study.stages import Stage, lineage
from ablations.study.undeclared import footnotes, refuse_undeclared
from ablations.trainables.trainable import LINKS, Trainable, arm_key, trial_ids
from results.records import claimed_arms
from results.store import schemas
from results.store.plan_files import learned_settings, parent_setting
from results.store.schemas import Entry, Plan, PlannedData, PlannedTrial, Settings
from results.store.schemas.metrics import margin_text


def build(design: Design, seeds: Sequence[int]) -> Plan:
    """Return the plan of a design.

    Raises the errors of `checks.check`. Also raises ValueError if an arm or stage cannot be built, or if an undeclared
    difference confounds an arm.
    """
    study, recipe, trainable = design.study, design.applicable_recipe, design.trainable
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
        selection_metric=trainable.selection_metric or design.metric,
        factors=design.factors,
        crosses=design.crosses,
        curves=design.curves,
        tune=design.tune,
        published_of=study.published_of or study.source,
        description=trainable.summary(design.reference, design.recipe.name, recipe.description, bool(study.stages)),
        data=planned_data(design),
        departures=departed,
        evals=[name for name in checks.required_evals(design) if not is_stage_eval(design, name)],
        margin=design.margin,
        claims=applicable_claims(design),
        caveats=[
            *recipe.caveats,
            *trainable.eval_caveats(checks.required_evals(design), design.arms[0].config),
        ],
        notes=margin_notes(design),
        cost=stated_cost(design),
        expected=expected_results(design, departed),
        spread=spread,
        baseline=design.main_baseline,
        split=trainable.split(design.reference),
        seeds=list(seeds),
        grows=study.grows,
        stages=list(stages.values()),
        arms=arms,
        family=contrasts(at_own_values or arms),
        tuned=at_own_values,
        points_family=contrasts(arms) if at_own_values else 0,
        interactions=interactions(design),
    )
    if recipe.train:
        plan = plan.model_copy(update={"trainable": recipe.trainable})
    refuse_undeclared(plan)
    return plan


def declared_metrics(design: Design) -> list[schemas.Metric]:
    """Return the metrics that trials and their evals measure."""
    metrics = design.trainable.metrics([arm.config for arm in design.arms])
    for eval_name in checks.required_evals(design):
        metrics += design.trainable.metrics_of(eval_name)
    return metrics


def planned_data(design: Design) -> PlannedData | None:
    found = design.trainable.describe_data(design.reference)
    return found and found.model_copy(update={"of_recipe": design.uses_recipe_data})


def margin_notes(design: Design) -> list[str]:
    """Return a note, in a list, if other data invalidate the recipe's margin and the study sets none; otherwise []."""
    own, data = design.recipe.margin, planned_data(design)
    if own is None or own == design.applicable_recipe.margin or design.study.margin is not None:
        return []
    text = margin_text(own, design.primary_metric)
    return [
        f"no arm is called equivalent: the margin of {text} in the recipe "
        f"{design.recipe.name} is for its own data, not for {data.name if data else design.data}; "
        "set a margin in the study"
    ]


def applicable_claims(design: Design) -> list[str]:
    """Return the study's claims about arms that exist with this recipe."""
    there = {*checks.claimable_names(design)}
    return [claim for claim in written_names.all_claims(design) if {*claimed_arms(claim)} <= there]


def contrasts(entries: Sequence[schemas.Arm | schemas.Tuned]) -> int:
    return sum(entry.name != entry.baseline for entry in entries)


def expected_results(design: Design, departed: Settings) -> list[schemas.Expected]:
    """Return what the recipe states for exactly the `learned_settings` of the overrides.

    departed: the `departures` of the baseline. Returns [] if the study has stages, or if its baseline itself departs
    from the recipe.
    """
    asked = learned_settings(design.overrides)
    shorthands = design.trainable.shorthands
    of_overrides = {shorthands.get(key, key) for key in asked}
    if design.study.stages or departed.keys() - of_overrides:
        return []
    return [one for one in design.applicable_recipe.expected if one.settings == asked]


def stated_cost(design: Design) -> schemas.StatedCost | None:
    """Return the time and the work of a trial of the recipe, or None if the recipe states no time."""
    recipe, trainable = design.applicable_recipe, design.trainable
    if not recipe.cost:
        return None
    own = trainable.resolve(recipe.config)
    work = trainable.work(own, trainable.describe(own).get("flops"))
    return schemas.StatedCost(work=work, **recipe.cost)


def description(trainable: Trainable, name: str, settings: Settings) -> Settings:
    """Return what is known of a trial. Raises a ValueError that names the arm or stage if it cannot be built."""
    try:
        return trainable.describe(settings)
    except Exception as error:  # a user's plug-in may raise anything
        raise ValueError(f"arm {name} cannot be built: {type(error).__name__}: {error}") from error


def stage_entries(design: Design, seeds: Sequence[int]) -> dict[str, schemas.Stage]:
    """Return stage name -> plan entry for all stages, parents first."""
    found: dict[str, schemas.Stage] = {}
    for stage in (one for arm in design.arms for one in reversed(list(lineage(arm.parent)))):
        if stage.name in found:
            continue
        written = settings(stage)
        parent = found.get(stage.parent.name) if stage.parent else None
        described = description(design.trainable, stage.name, stage.config)
        found[stage.name] = schemas.Stage(
            name=stage.name,
            stage=stage.stage,
            parent=stage.parent.name if stage.parent else "",
            key=arm_key(design.trainable, stage.config),
            config=written,
            departures=departures(design, stage),
            evals=[name for name in checks.required_evals(design) if is_stage_eval(design, name)],
            **{key: value for key, value in described.items() if key != "train_flops"},
            trials=trials(design.trainable, stage.config, written, seeds, parent),
        )
    return found


def departures(design: Design, entry: Arm | Stage) -> Settings:
    """Return the explicit settings of an arm or stage that differ from the recipe and affect what it computes.

    Returns {} if the recipe's config is invalid with the data of `entry`.
    """
    trainable, own = design.trainable, entry.config
    try:
        plain = trainable.resolve_recipe(design.recipe.config, own)
    except ValueError:
        return {}
    if entry.parent:
        own = own | {entry.parent.link: entry.parent.name}
    mine, its = ({**config, **config.get("options", {})} for config in (own, plain))
    departed: Settings = {}
    for key in (*entry.settings, *LINKS):
        name = trainable.shorthands.get(key, key)
        if name not in trainable.how_it_runs and name in mine and mine[name] != its.get(name):
            departed[name] = mine[name]
    return departed


def is_stage_eval(design: Design, eval_name: str) -> bool:
    """Return whether stages compute an eval, and arms do not. Arms always compute the eval of the study's metric."""
    has_own = eval_name in design.trainable.stage_evals and bool(design.study.stages)
    return has_own and design.trainable.eval_of(design.metric) != eval_name


def arm_entry(
    design: Design, arm: Arm, baseline: Arm, seeds: Sequence[int], stages: Mapping[str, schemas.Stage]
) -> schemas.Arm:
    written, parent = settings(arm), arm.parent.name if arm.parent else ""
    notes = footnotes(arm, baseline, design.study.budget)
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
        **description(design.trainable, arm.name, arm.config),
        notes=list(notes),
        notes_about={note: measure for note, measure in notes.items() if measure},
        trials=trials(design.trainable, arm.config, written, seeds, stages.get(parent)),
    )


def later_difference(design: Design, arm: Arm, baseline: Arm) -> schemas.LaterDifference | None:
    """Return the difference from the baseline that the recipe states for an arm after twice the steps, or None.

    The recipe states differences in one metric at equal steps, with its own config as the baseline. They apply
    neither to arms with co-changes nor to named arms that the study defines.
    """
    known, study = design.applicable_recipe.at_twice_the_steps, design.study
    of_recipe = not arm.change.named or study.arms[arm.change.name] == "axis"
    if known is None or design.metric != known.metric or study.budget != "steps" or not of_recipe:
        return None
    if baseline.key != design.recipe_key or arm.change.co_changes:
        return None
    return known.difference(arm.name)


def settings(arm: Arm | Stage) -> Settings:
    """Return the resolved settings without unset seeds and without a link to a parent, which differ by seed."""
    left_out = {"seed", *(key for key in arm.trainable.seed_keys if key not in arm.settings)}
    left_out |= {arm.parent.link} if arm.parent else set()
    return {key: value for key, value in arm.config.items() if key not in left_out}


def trials(
    trainable: Trainable, config: Settings, written: Settings, seeds: Iterable[int], parent: Entry | None = None
) -> list[PlannedTrial]:
    """Return the trials of resolved settings, one per seed. written: the settings as the plan entry records them.

    parent: the plan entry of the parent, which needs a trial for each seed.
    """
    before = parent.ids if parent else None
    fixed = {key: written[key] for key in trainable.seed_keys if key in written}
    seeds = list(seeds)
    ids = trial_ids(trainable, config, seeds, fixed, before, parent_setting(written))
    return [PlannedTrial(seed=seed, id=trial_id) for seed, trial_id in zip(seeds, ids, strict=True)]


def published_number(design: Design, arm: Arm) -> float | None:
    """Return the arm's published number, or None. Without curves, the study may key it by the values of all factors."""
    numbers = written_names.published(design)
    short = ",".join(f"{key}={arm.values[key]}" for key in design.study.factors)
    return numbers.get(arm.name, numbers.get(short) if not design.curves else None)
