"""Check a design before it is planned: unknown names, numbers meant as percentages, arms that cannot be trained."""

from collections.abc import Iterable, Sequence

from ablations.planning.contrasts import fixed_points, tuned_arms
from ablations.study import written_names
from ablations.study.arms import Arm, arm_name
from ablations.study.design import Design
from ablations.study.stages import Stage, lineage
from ablations.study.study import Axis, Study
from commonfloor.messages import joined_names, spelling_hint
from results.figures.kinds import FIGURE_KINDS
from results.records import claimed_arms

USUAL_METRICS = {"accuracy": "test_accuracy", "acc": "test_accuracy", "top1": "test_accuracy", "loss": "test_loss"}


def check(design: Design) -> None:
    """Raise ValueError if a design has an error that can be found before training.

    Errors are unknown names, arms that cannot be trained or evaluated, and margins or published accuracies in percent.
    Also raises the errors of `Design.arms`.
    """
    check_names(design)
    check_shares(design)
    for name in required_evals(design):
        for arm in design.arms:
            try:
                design.trainable.check_eval(name, arm.config)
            except ValueError as error:
                raise ValueError(f"eval {name} of arm {arm.name}: {error}") from None
    stages = {one.name: one for arm in design.arms for one in lineage(arm.parent)}
    entries: list[Arm | Stage] = [*design.arms, *stages.values()]
    for one in entries:
        try:
            design.trainable.check_trial(one.config, one.parent.config if one.parent else None)
        except ValueError as error:
            raise ValueError(f"study '{design.study.name}', {one.name}: {error}") from None


def check_names(design: Design) -> None:
    """Raise ValueError if the study names an unknown metric, figure or arm, or a model family without arms.

    Arms that exist only with the axis values of another recipe count as known.
    """
    study, arms = design.study, [arm.name for arm in design.arms]
    trainable = design.trainable
    if not trainable.eval_of(design.metric):
        declared = [metric.name for metric in trainable.metrics([arm.config for arm in design.arms])]
        check_name(study, "metric", design.metric, [*declared, *trainable.known_evals()])
    check_name(study, "figure", study.figure, FIGURE_KINDS)
    at_own_value = [arm_name(change.name, point) for change in design.changes for point in fixed_points(design)]
    check_arms(design, "published", written_names.published(design), [*arms, *at_own_value] if design.tune else arms)
    claimed = [name for claim in written_names.all_claims(design) for name in claimed_arms(claim)]
    check_arms(design, "claims", claimed, claimable_names(design))
    for name in sorted(study.families.keys() - {design.family_name(arm) for arm in design.arms}):
        raise ValueError(f"study '{study.name}': families: no arm is of {name}")


def check_arms(design: Design, key: str, names: Iterable[str], known: Sequence[str]) -> None:
    study = design.study
    baseline = design.main_baseline
    for name in names:
        if may_name_arm(study, name):
            continue
        if name not in known and {*name.split(",")} <= {*baseline.split(",")}:
            raise ValueError(f"study '{study.name}': {key}={name}: is the baseline, whose name is {baseline}")
        check_name(study, key, name, known)


def check_name(study: Study, key: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise ValueError(
            f"study '{study.name}': {key}={name}: one of {joined_names(known)}"
            f"{spelling_hint(USUAL_METRICS.get(name, name), known)}"
        )


def check_shares(design: Design) -> None:
    """Raise ValueError if the metric is an accuracy and its margin or a published number looks like a percentage."""
    if not design.primary_metric.is_accuracy:
        return
    where = f"study '{design.study.name}'"
    check_margin(design.margin, where)
    for arm, value in design.study.published.items():
        if value > 1:
            raise ValueError(
                f"{where}: published {arm}={value:g}: at most 1, as a share of the images (0.642 is 64.2%)"
            )


def check_margin(margin: float | str | None, where: str) -> None:
    """Raise ValueError for an accuracy's margin of 1 or more: 3, meant as points, makes every arm equivalent."""
    if isinstance(margin, float) and margin >= 1:
        raise ValueError(f"{where}: margin={margin:g}: below 1, as a share of the images (0.03 is 3 points)")


def claimable_names(design: Design) -> list[str]:
    """Return the names that a claim may use: arms, tuned arms and, with curves, arm names without curve values."""
    found = [*(arm.name for arm in design.arms), *(entry.name for entry in tuned_arms(design))]
    return [*found, *(change.name for change in design.changes)] if design.curves else found


def may_name_arm(study: Study, name: str) -> bool:
    """Return whether an arm called `name` could exist with the axis values of another recipe."""
    varied: dict[str, Axis] = {}
    for axes in (study.factors, *study.crosses, study.curves):
        varied |= axes
    pieces = [piece.partition("=") for piece in name.split(",")]
    free = {key for key, values in varied.items() if values == "axis" or "axis" in values}
    return any(key in free for key, _, _ in pieces) and all(
        key in free or value in map(str, varied[key]) if key in varied else key in study.arms
        for key, _, value in pieces
    )


def required_evals(design: Design) -> list[str]:
    """Return the names of a design's evals and of its metric's eval, if any. Raises ValueError if a name is unknown."""
    names = [*design.evals, *filter(None, [design.trainable.eval_of(design.metric)])]
    for name in names:
        design.trainable.metrics_of(name)
    return list(dict.fromkeys(names))
