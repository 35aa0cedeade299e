"""Build a study's plan: all that tables, plots, reports, comparisons and exports need, without torch or YAML."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

from ablations.planning import checks
from ablations.study.arms import Arm, TrialTemplate, arm_name, points
from ablations.study.design import Design
from ablations.study.naming import assignments
from ablations.trainables.trainable import LINKS, Trainable, trial_ids
from results.claim_text import claimed_arms
from results.store.plan_files import learned_settings, parent_setting
from results.store.schemas.base import Settings
from results.store.schemas.metrics import Metric, margin_text
from results.store.schemas.plans import Arm as PlannedArm
from results.store.schemas.plans import Entry, Interaction, LaterDifference, Plan, PlannedData, PlannedTrial, Tuned
from results.store.schemas.plans import Stage as PlannedStage
from results.store.schemas.stated import Expected, StatedCost, StatedSpread


def build(design: Design, seeds: Sequence[int]) -> Plan:
    """Return the plan of a design. Raises ValueError if an arm cannot be built, or has an undeclared difference."""
    study, recipe, trainable = design.study, design.applicable_recipe, design.trainable
    checks.check(design)
    arms = {arm.name: arm for arm in design.arms}
    stages = stage_entries(design, seeds)
    entries = [arm_entry(design, arm, arms[arm.baseline], seeds, stages) for arm in design.arms]
    tuned = tuned_entries(design)
    departed = departures(design, arms[design.main_baseline])
    data = described_data(design, design.reference)
    claimable = set(checks.claimable_names(design))  # a claim may be about arms that this recipe does not have
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
        selection_metric=trainable.selection_metric or design.metric,
        metrics=declared_metrics(design),
        factors=design.factors,
        crosses=design.crosses,
        curves=design.curves,
        tune=design.tune,
        published_of=study.published_of or study.source,
        description=summary(design),
        data=data and data.model_copy(update={"of_recipe": design.uses_recipe_data}),
        departures=departed,
        evals=[name for name in design.required_evals if not is_stage_eval(design, name)],
        margin=design.margin,
        claims=[claim for claim in design.claims if claimable.issuperset(claimed_arms(claim))],
        caveats=recipe.caveats + trainable.eval_caveats(design.required_evals, design.arms[0].config),
        notes=margin_notes(design, data.name if data else design.data),
        cost=stated_cost(design),
        expected=expected_results(design, departed),
        spread=stated_spread(design, departed),
        baseline=design.main_baseline,
        split=trainable.split(design.reference),
        seeds=list(seeds),
        grows=study.grows,
        stages=list(stages.values()),
        arms=entries,
        family=contrasts(tuned or entries),
        tuned=tuned,
        points_family=contrasts(entries) if tuned else 0,
        interactions=interactions(design),
    )
    if design.secondary_metrics:  # a plan of one metric stays as it was
        plan = plan.model_copy(update={"secondary_metrics": design.secondary_metrics})
    if study.race:
        plan = plan.model_copy(update={"race": True})
    if recipe.train:
        plan = plan.model_copy(update={"trainable": recipe.trainable})
    if recipe.is_of_user:
        plan = plan.model_copy(update={"paired": recipe.paired, "probe": recipe.probe, "inert": recipe.inert})
    checks.refuse_undeclared(plan)
    return plan


def described_data(design: Design, settings: Settings) -> PlannedData | None:
    """Return the description of a data set, with the name that tells it from the study's other data sets."""
    data = design.trainable.describe_data(settings)
    if data is None:
        return None
    return data.model_copy(update={"name": design.data_names.get(design.trainable.data_name(settings), data.name)})


def summary(design: Design) -> str:
    """Return a text about the data, the baseline's model and its training, with the study's other data sets."""
    trainable = design.trainable
    description = design.applicable_recipe.description
    text = trainable.summary(design.reference, design.recipe.name, description, bool(design.study.stages))
    for name in design.curves.get(trainable.data_key, []):
        data = described_data(design, {**design.reference, trainable.data_key: name})
        if data and name != design.data:
            size = f"{data.classes:,} classes, {data.train:,} images at {data.image_size} px"
            text += f" Also trained on {data.name}: {size}."
    return text


def declared_metrics(design: Design) -> list[Metric]:
    metrics = design.trainable.metrics([arm.config for arm in design.arms])
    for name in design.required_evals:
        metrics += design.trainable.metrics_of(name)
    return metrics


def contrasts(entries: Sequence[PlannedArm | Tuned]) -> int:
    return sum(entry.name != entry.baseline for entry in entries)


# -- what the recipe states --------------------------------------------------------------------------------------------


def margin_notes(design: Design, data: str) -> list[str]:
    """Return a note, in a list, if other data invalidate the recipe's margin and the study sets none; otherwise []."""
    if design.trainable.data_key in design.curves:
        data = "several data sets"
    margin = design.recipe.margin
    if margin is None or margin == design.applicable_recipe.margin or design.study.margin is not None:
        return []
    text = margin_text(margin, design.primary_metric)
    return [
        f"no arm is called equivalent: the margin of {text} in the recipe "
        f"{design.recipe.name} is for its own data, not for {data}; set a margin in the study"
    ]


def stated_spread(design: Design, departed: Settings) -> StatedSpread | None:
    """Return the spread that the recipe states, for its own config only. A factor's value hardly changes it."""
    is_other_config = departed.keys() - design.factors.keys() - design.curves.keys()
    if is_other_config or learned_settings(design.overrides, design.recipe.train) or design.study.stages:
        return None
    return design.applicable_recipe.spread


def expected_results(design: Design, departed: Settings) -> list[Expected]:
    """Return what the recipe states for exactly these overrides, unless there are stages or other `departures`."""
    overrides = learned_settings(design.overrides, design.recipe.train)
    shorthands = design.trainable.shorthands
    if design.study.stages or departed.keys() - {shorthands.get(key, key) for key in overrides}:
        return []
    return [stated for stated in design.applicable_recipe.expected if stated.settings == overrides]


def stated_cost(design: Design) -> StatedCost | None:
    recipe, trainable = design.applicable_recipe, design.trainable
    if not recipe.cost:
        return None
    config = trainable.resolve(recipe.config)
    return StatedCost(work=trainable.work(config, trainable.describe(config).get("flops")), **recipe.cost)


def later_difference(design: Design, arm: Arm, baseline: Arm) -> LaterDifference | None:
    """Return the difference that the recipe states for an arm after twice the steps, or None if it does not apply."""
    stated, study = design.applicable_recipe.at_twice_the_steps, design.study
    if stated is None or design.metric != stated.metric or study.budget != "steps":
        return None
    is_own_arm = arm.change.named and study.arms[arm.change.name] != "axis"
    if is_own_arm or arm.change.co_changes or baseline.key != design.recipe_key:
        return None
    return stated.difference(arm.name)


# -- entries -----------------------------------------------------------------------------------------------------------


def description(trainable: Trainable, name: str, settings: Settings) -> Settings:
    try:
        return trainable.describe(settings)
    except Exception as error:  # a user's plug-in may raise anything
        raise ValueError(f"arm {name} cannot be built: {type(error).__name__}: {error}") from error


def stage_entries(design: Design, seeds: Sequence[int]) -> dict[str, PlannedStage]:
    entries: dict[str, PlannedStage] = {}
    for stage in itertools.chain.from_iterable(reversed(arm.lineage) for arm in design.arms):
        if stage.name not in entries:
            described = description(design.trainable, stage.name, stage.config)
            described.pop("train_flops", None)
            entries[stage.name] = PlannedStage(
                name=stage.name,
                stage=stage.stage,
                parent=stage.parent_name,
                key=stage.key,
                config=stage.recorded,
                departures=departures(design, stage),
                evals=[name for name in design.required_evals if is_stage_eval(design, name)],
                **described,
                trials=trials(stage.trainable, stage.config, stage.recorded, seeds, entries.get(stage.parent_name)),
            )
    return entries


def arm_entry(
    design: Design, arm: Arm, baseline: Arm, seeds: Sequence[int], stages: Mapping[str, PlannedStage]
) -> PlannedArm:
    notes = arm.footnotes(baseline, design.study.budget)
    entry = PlannedArm(
        name=arm.name,
        baseline=arm.baseline,
        change=arm.change.name,
        values=arm.values,
        declared=arm.declared_settings,
        model_family=design.family_name(arm),
        parent=arm.parent_name,
        key=arm.key,
        config=arm.recorded,
        published=published_number(design, arm),
        at_twice_the_steps=later_difference(design, arm, baseline),
        **description(design.trainable, arm.name, arm.config),
        notes=list(notes),
        notes_about={note: measure for note, measure in notes.items() if measure},
        trials=trials(arm.trainable, arm.config, arm.recorded, seeds, stages.get(arm.parent_name)),
    )
    if design.trainable.data_key in design.curves:  # plans of one data set stay as they were
        of_data = {"data": described_data(design, arm.config), "split": arm.trainable.split(arm.config)}
        return entry.model_copy(update=of_data)
    return entry


def published_number(design: Design, arm: Arm) -> float | None:
    """Return the arm's published number, or None. Without curves, the study may key it by the values of all factors."""
    if arm.name in design.published or design.curves:
        return design.published.get(arm.name)
    return design.published.get(assignments({key: arm.values[key] for key in design.study.factors}))


def departures(design: Design, trials: TrialTemplate) -> Settings:
    """Return the explicit settings of an arm or stage that differ from the recipe and affect what it computes."""
    trainable = design.trainable
    try:
        of_recipe = checks.with_options(trainable.resolve_recipe(design.recipe.config, trials.config))
    except ValueError:
        return {}
    config = checks.with_options(trials.config)
    if trials.parent:
        config[trials.parent.link] = trials.parent.name
    departed: Settings = {}
    for key in (*trials.settings, *LINKS):
        name = trainable.shorthands.get(key, key)
        if name not in trainable.how_it_runs and name in config and config[name] != of_recipe.get(name):
            departed[name] = config[name]
    return departed


def is_stage_eval(design: Design, eval_name: str) -> bool:
    """Return whether stages compute an eval, and arms do not. Arms always compute the evals of the study's metrics."""
    is_of_stages = eval_name in design.trainable.stage_evals and bool(design.study.stages)
    of_metrics = map(design.trainable.eval_of, (design.metric, *design.secondary_metrics))
    return is_of_stages and eval_name not in of_metrics


def trials(
    trainable: Trainable, config: Settings, recorded: Settings, seeds: Sequence[int], parent: Entry | None = None
) -> list[PlannedTrial]:
    """Return the trials of resolved settings, one a seed. recorded, parent: the settings and parent of their entry."""
    parents = parent.ids if parent else None
    fixed = {key: recorded[key] for key in trainable.seed_keys if key in recorded}
    ids = trial_ids(trainable, config, seeds, fixed, parents, parent_setting(recorded))
    return [PlannedTrial(seed=seed, id=trial_id) for seed, trial_id in zip(seeds, ids, strict=True)]


# -- tuned arms and interactions ---------------------------------------------------------------------------------------


def tuned_entries(design: Design) -> list[Tuned]:
    grid = points(design.tune)
    entries = []
    for name, (change, point) in design.tuned_arms.items():
        entries.append(
            Tuned(
                name=name,
                baseline=arm_name(design.baseline_name, point | design.tuned_point),
                change=change.name,
                values=change.values | point,
                points=[arm_name(change.name, point | tuned) for tuned in grid],
                published=design.published.get(arm_name(change.name, point)),
            )
        )
    return entries


def interactions(design: Design) -> list[Interaction]:
    """Return the interactions of every two crossed factors at each point of the curves, without excluded arms."""
    names = (design.tuned_arms or design.remaining_arms).keys()
    interactions_by_name: dict[str, Interaction] = {}
    for both in pairs_of_changes(design):
        a, b = both
        changes = {
            "ab": design.change_name(both),
            "a": design.change_name({a: both[a]}),
            "b": design.change_name({b: both[b]}),
            "baseline": design.baseline_name,
        }
        for point in design.fixed_points:
            arms = {role: arm_name(change, point | design.tuned_point) for role, change in changes.items()}
            if names >= set(arms.values()):
                interactions_by_name[arms["ab"]] = Interaction(name=arms["ab"], **arms)
    return list(interactions_by_name.values())


def pairs_of_changes(design: Design) -> Iterator[Settings]:
    """Yield the values of every two factors of a cross, if both differ from the baseline's."""
    for cross in design.crosses:
        for a, b in itertools.combinations(cross, 2):
            for both in points({a: cross[a], b: cross[b]}):
                if both[a] != design.baseline[a] and both[b] != design.baseline[b]:
                    yield both
