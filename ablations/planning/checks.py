"""Checks of a design before it is planned, and of undeclared differences between the arms of a plan."""

from collections.abc import Collection, Iterable, Sequence

from ablations.study.arms import Stage, arm_name
from ablations.study.design import Design
from ablations.study.study import Axis, Study
from ablations.trainables.trainable import Trainable, find
from commonfloor.messages import joined_names, known_names
from results.claim_text import claimed_arms
from results.figures.kinds import FIGURE_KINDS
from results.store.schemas.base import Settings
from results.store.schemas.metrics import EXACT
from results.store.schemas.plans import Entry, Plan
from results.study_results import NOT_NUMBERS
from results.tables.scaling_table import BEST, LAWS

USUAL_METRICS = {"accuracy": "test_accuracy", "acc": "test_accuracy", "top1": "test_accuracy", "loss": "test_loss"}


def check(design: Design) -> None:
    """Raise ValueError if a design has an error that can be found before training, and the errors of `Design.arms`."""
    check_names(design)
    check_data(design)
    check_shares(design)
    check_race(design)
    stages: dict[str, Stage] = {}
    for arm in design.arms:
        stages |= {stage.name: stage for stage in arm.lineage}
        for name in design.required_evals:
            try:
                design.trainable.check_eval(name, arm.config)
            except ValueError as error:
                why = str(error).removeprefix(f"eval {name}: ")
                raise ValueError(f"eval {name} of arm {arm.name}: {why}") from None
    for trials in (*design.arms, *stages.values()):
        try:
            design.trainable.check_trial(trials.config, trials.parent.config if trials.parent else None)
        except ValueError as error:
            why = str(error)
            if trials.parent:
                why = why.replace(f"{trials.parent.link}={trials.parent.id}", f"stage {trials.parent.stage}")
            raise ValueError(f"study '{design.study.name}', {trials.name}: {why}") from None


def check_race(design: Design) -> None:
    """Raise ValueError if a race chooses values, averages over arms or fits laws, which needs all of their seeds."""
    study = design.study
    of_several = {"tune": study.tune, "data": design.trainable.data_key in design.curves}
    of_several[f"figure={study.figure}"] = study.figure in (LAWS, BEST)
    used = [key for key, is_used in of_several.items() if is_used]
    if study.race and used:
        raise ValueError(f"study '{study.name}', race: not with {joined_names(used)}, which need all seeds")


def check_names(design: Design) -> None:
    """Raise ValueError if the study names an unknown metric, figure or arm, or a model family without arms."""
    study = design.study
    arms = [arm.name for arm in design.arms]
    check_metrics(design)
    check_name(study, "figure", study.figure, FIGURE_KINDS)
    of_grids = [arm_name(change.name, point) for change, point in design.tuned_arms.values()]
    check_arms(design, "published", design.published, [*arms, *of_grids])
    for claim in design.claims:
        check_arms(design, "claims", claimed_arms(claim), claimable_names(design))
    for name in sorted(study.families.keys() - {design.family_name(arm) for arm in design.arms}):
        raise design.mistake(f"families: no arm is of {name}")


def check_metrics(design: Design) -> None:
    """Raise ValueError if a metric is unknown, or named like what every trial has.

    EXACT ones may only follow the first, as no test is needed for them.
    """
    declared = design.trainable.metrics([arm.config for arm in design.arms])
    for metric in declared:
        if metric.name in NOT_NUMBERS:
            raise ValueError(f"metrics: {metric.name}: is recorded for each trial: give a metric of yours another name")
    measured = [*(metric.name for metric in declared), *design.trainable.known_evals()]
    for name in (design.metric, *design.secondary_metrics):
        is_described = name in EXACT and name in design.trainable.described
        if design.trainable.eval_of(name) or (is_described and name != design.metric):
            continue
        measure, _, value = name.partition("@")
        if value and design.trainable.eval_of(measure):
            design.trainable.metrics_of(f"{design.trainable.eval_of(measure)}@{value}")  # raises, naming the values
        check_name(design.study, "metrics" if design.study.metrics else "metric", name, measured)


def check_data(design: Design) -> None:
    """Raise ValueError if the baseline's data set is not listed, or an arm or a claim is about two data sets."""
    key = design.trainable.data_key
    listed = design.curves.get(key, [])
    of_baseline = design.study.baseline.get(key)
    if listed and of_baseline not in (None, *listed):
        names = joined_names(listed)
        raise design.mistake(
            f"baseline: {key}={of_baseline}: one of {names}, the data sets on which every arm is trained"
        )
    data = {arm.name: design.trainable.data_name(arm.config) for arm in design.arms}
    compared = [(f"arm {arm.name}", arm.name, arm.baseline) for arm in design.arms]
    compared += [(f"claim {claim}", *claimed_arms(claim)) for claim in design.claims]
    for what, first, second in compared:
        if {first, second} <= data.keys() and data[first] != data[second]:
            raise design.mistake(
                f"{what}: {data[first]} against {data[second]}: numbers on different test images are not compared; "
                "`factors: {data: [A, B]}` gives every arm on every data set"
            )


def check_arms(design: Design, key: str, names: Iterable[str], known: Sequence[str]) -> None:
    baseline = design.main_baseline
    for name in names:
        if name in known or may_name_arm(design.study, name):
            continue
        if {*name.split(",")} <= {*baseline.split(",")}:
            raise design.mistake(f"{key}={name}: is the baseline, whose name is {baseline}")
        check_name(design.study, key, name, known)


def check_name(study: Study, key: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise ValueError(f"study '{study.name}': {key}={name}: {known_names(USUAL_METRICS.get(name, name), known)}")


def check_shares(design: Design) -> None:
    if not design.primary_metric.is_accuracy:
        return
    check_margin(design.margin, f"study '{design.study.name}'")
    for arm, value in design.study.published.items():
        if value > 1:
            raise design.mistake(f"published {arm}={value:g}: at most 1, as a share of the images (0.642 is 64.2%)")


def check_margin(margin: float | str | None, where: str) -> None:
    """Raise ValueError for an accuracy's margin of 1 or more: 3, meant as points, makes every arm equivalent."""
    if isinstance(margin, float) and margin >= 1:
        raise ValueError(f"{where}: margin={margin:g}: below 1, as a share of the images (0.03 is 3 points)")


def claimable_names(design: Design) -> list[str]:
    """Return the names that a claim may use: arms, tuned arms and, with curves, arm names without curve values."""
    names = [*design.remaining_arms, *design.tuned_arms]
    if design.curves:
        names += [change.name for change in design.changes]
    return names


def may_name_arm(study: Study, name: str) -> bool:
    """Return whether an arm called `name` could exist with the axis values of another recipe."""
    varied: dict[str, Axis] = {}
    for axes in (study.factors, *study.crosses, study.curves):
        varied |= axes
    depends_on_recipe = False
    for piece in name.split(","):
        key, _, value = piece.partition("=")
        if key not in varied:
            if key not in study.arms:
                return False
        elif "axis" in varied[key]:
            depends_on_recipe = True
        elif value not in map(str, varied[key]):
            return False
    return depends_on_recipe


# -- undeclared differences --------------------------------------------------------------------------------------------


def refuse_undeclared(plan: Plan) -> None:
    """Raise ValueError for undeclared differences in settings between arms and baselines, or between their stages."""
    trainable = find(plan.trainable)
    arms = plan.arms_by_name
    for arm in plan.arms:
        baseline = arms.get(arm.baseline)
        if baseline is None:
            continue
        allowed = allowed_settings(arm, baseline, plan)
        if allowed is None:
            continue
        refuse_undeclared_start(trainable, plan, arm, baseline, allowed)
        difference = undeclared_difference(trainable, arm, baseline, allowed)
        if difference:
            raise ValueError(
                f"{plan.name}: {arm.name} differs from {arm.baseline} in {difference}, "
                "which the study does not declare: name it in `with`, or plan anew with --prune"
            )


def refuse_undeclared_start(trainable: Trainable, plan: Plan, arm: Entry, baseline: Entry, allowed: set[str]) -> None:
    for stage, reference in zip(plan.lineage(arm), plan.lineage(baseline), strict=False):
        if stage.stage != reference.stage:
            break
        prefix = f"{stage.stage}."
        declared = {key.removeprefix(prefix) for key in allowed if key.startswith(prefix) or trainable.is_shared(key)}
        difference = undeclared_difference(trainable, stage, reference, declared)
        if difference:
            raise ValueError(
                f"{plan.name}: {stage.name}, from which {arm.name} starts, differs from {reference.name} in "
                f"{difference}, which the study does not declare"
            )


def allowed_settings(arm: Entry, baseline: Entry, plan: Plan) -> set[str] | None:
    """Return the settings in which an arm may differ from its baseline; None for a named arm of an earlier version."""
    declared = arm.declared
    if declared is None:  # in plans of earlier versions
        declared = [key for key, value in arm.values.items() if value != baseline.values.get(key)]
        if arm.name != arm.baseline and not declared:
            return None
    allowed = set(declared)
    if plan.budget != "steps":
        allowed.add("steps")
    return allowed


def undeclared_difference(trainable: Trainable, entry: Entry, reference: Entry, declared: set[str]) -> str:
    """Return the first undeclared difference between two entries as text with both values, or "" if there is none."""
    settings = with_options(entry.config)
    others = with_options(reference.config)
    for key in sorted((settings.keys() | others.keys()) - {*trainable.how_it_runs}):
        if settings.get(key) != others.get(key) and not any(trainable.covers(name, key) for name in declared):
            return f"{key}, {settings.get(key)} against {others.get(key)}"
    return ""


def with_options(config: Settings) -> Settings:
    """Return a config with the options of its variants as settings of their own."""
    rest = {key: value for key, value in config.items() if key != "options"}
    return {**rest, **config.get("options", {})}
