"""Differences between an arm and its baseline that the study declares, and those that it does not: an error.

Device, code and kernels may differ from trial to trial: results/tables/provenance.py reports them.
"""

from collections.abc import Iterator

from ablations.study import stages
from ablations.study.arms import Arm
from ablations.study.naming import assignments
from ablations.trainables.trainable import Trainable, find
from results.store.schemas import Entry, Plan, Settings


def footnotes(arm: Arm, baseline: Arm, budget: str) -> dict[str, str]:
    """Return the footnotes of an arm: note -> the measure that it explains, or ""."""
    declared = {} if arm.name == baseline.name else dict.fromkeys(declared_notes(arm, baseline), "")
    return declared | arm.trainable.notes(arm.compared(), baseline.compared(), budget)


def declared_notes(arm: Arm, baseline: Arm) -> Iterator[str]:
    """Yield notes on the settings of a named arm, and on co-changed settings."""
    if arm.change.named:
        yield f"is {assignments(arm.change.settings)}"
    for key, value in arm.change.co_changes.items():
        yield f"with {key} {value} against {stages.value(baseline.config, baseline.parent, key)}, declared"


def refuse_undeclared(plan: Plan) -> None:
    """Raise ValueError for undeclared differences in settings between arms and baselines, or between their stages."""
    trainable = find(plan.trainable)
    arms = {arm.name: arm for arm in plan.arms}
    for arm in plan.arms:
        baseline = arms.get(arm.baseline)
        allowed = None if baseline is None else allowed_settings(arm, baseline, plan)
        if baseline is None or allowed is None:
            continue
        refuse_undeclared_start(trainable, plan, arm, baseline, allowed)
        if difference := undeclared_difference(trainable, arm, baseline, allowed):
            raise ValueError(
                f"{plan.name}: {arm.name} differs from {arm.baseline} in {difference}, "
                "which the study does not declare: name it in `with`, or plan anew with --prune"
            )


def refuse_undeclared_start(trainable: Trainable, plan: Plan, arm: Entry, baseline: Entry, allowed: set[str]) -> None:
    """Raise ValueError if a stage of the arm and the same stage of its baseline differ in an undeclared setting.

    allowed: the settings in which arm and baseline may differ, such as pretrain.lr.
    """
    there = {entry.name: entry for entry in plan.stages}
    own, other = (there.get(one.parent) for one in (arm, baseline))
    while own is not None and other is not None and own.stage == other.stage:
        prefix = f"{own.stage}."
        declared = {key.removeprefix(prefix) for key in allowed if key.startswith(prefix)}
        declared |= {key for key in allowed if trainable.is_shared(key)}
        if difference := undeclared_difference(trainable, own, other, declared):
            raise ValueError(
                f"{plan.name}: {own.name}, from which {arm.name} starts, differs from {other.name} in {difference}, "
                "which the study does not declare"
            )
        own, other = there.get(own.parent), there.get(other.parent)


def allowed_settings(arm: Entry, baseline: Entry, plan: Plan) -> set[str] | None:
    """Return the settings in which an arm may differ from its baseline.

    Returns None for a named arm in a plan of an earlier version, because such plans record no declared settings.
    """
    said = arm.declared
    if said is None:  # in plans of earlier versions
        said = [key for key, value in arm.values.items() if value != baseline.values.get(key)]
        if arm.name != arm.baseline and not said:
            return None
    budget = {"steps"} if plan.budget != "steps" else set()
    return {*said, *budget}


def undeclared_difference(trainable: Trainable, entry: Entry, reference: Entry, declared: set[str]) -> str:
    """Return the first undeclared difference between two entries as text with both values, or "" if there is none."""
    own, other = learning_settings(trainable, entry.config), learning_settings(trainable, reference.config)
    for key in sorted(own.keys() | other.keys()):
        if own.get(key) != other.get(key) and not any(trainable.covers(one, key) for one in declared):
            return f"{key}, {own.get(key)} against {other.get(key)}"
    return ""


def learning_settings(trainable: Trainable, config: Settings) -> Settings:
    """Return the settings that affect what is learned, including the options of variants."""
    whole = {**config, **config.get("options", {})}
    return {key: value for key, value in whole.items() if key != "options" and key not in trainable.how_it_runs}
