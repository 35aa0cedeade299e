"""Grow plans. A plan keeps the arms and seeds of the plan on disk unless it is pruned."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from ablations.planning.plan import contrasts, description, trials
from ablations.planning.saved_plans import check_same_table
from ablations.study.undeclared import refuse_undeclared
from ablations.trainables.trainable import Trainable, find
from results.store import schemas
from results.store.schemas import Entry, Plan

Listed = TypeVar("Listed", bound=schemas.Tuned | schemas.Interaction)
Extended = TypeVar("Extended", bound=Entry)


def grown(old: Plan, new: Plan) -> Plan:
    """Return the new plan, extended by the arms, stages and interactions that only the old plan has.

    Old tuned arms are kept if both plans tune over equal values. Raises ValueError if the baselines or metrics of the
    plans differ, or if an old arm has an undeclared difference.
    """
    check_same_table(old, new)
    names = {arm.name for arm in new.arms}
    gone = [arm for arm in old.arms if arm.name not in names]
    stages, called = kept_stages(old, gone, new)
    trainable = find(new.trainable)
    kept = [extended(trainable, arm, new.seeds, stages, called) for arm in gone]
    arms, apart = new.arms + kept, add_old_entries(old.tuned if old.tune == new.tune else [], new.tuned)
    plan = new.model_copy(
        update={
            "stages": list(stages.values()),
            "arms": arms,
            "family": contrasts(apart or arms),
            "tuned": apart,
            "points_family": contrasts(arms) if apart else 0,
            "interactions": add_old_entries(old.interactions, new.interactions),
        }
    )
    refuse_undeclared(plan)
    return plan


def add_old_entries(old: Sequence[Listed], new: Sequence[Listed]) -> list[Listed]:
    names = {entry.name for entry in new}
    return [*new, *(entry for entry in old if entry.name not in names)]


def kept_stages(old: Plan, arms: Sequence[schemas.Arm], new: Plan) -> tuple[dict[str, schemas.Stage], dict[str, str]]:
    """Return (name -> stage, old name -> new name) for the stages of the new plan and of the old `arms`.

    Stages are identified by their trials. If a stage was edited, its old and its new version are kept.
    """
    found = {stage.name: stage for stage in new.stages}
    before = {stage.name: stage for stage in old.stages}
    needed = {stage.name for arm in arms for stage in old.lineage(arm)}
    names: dict[str, str] = {}
    for name, stage in before.items():
        if name in needed:
            kept = extended(find(new.trainable), stage, new.seeds, found, names)
            same = [one for one in (name, *found) if one in found and found[one].trials == kept.trials]
            if same:
                names[name] = same[0]
                continue
            # If the name is taken, the first 6 digits of the stage's first trial id are added.
            names[name] = f"{name.partition('#')[0]}#{kept.trials[0].id[:6]}" if name in found else name
            found[names[name]] = kept.model_copy(update={"name": names[name]})
    return found, names


def extended(
    trainable: Trainable,
    arm: Extended,
    seeds: Sequence[int],
    stages: Mapping[str, schemas.Stage],
    names: Mapping[str, str],
) -> Extended:
    """Return an old arm or stage with a trial for every seed in `seeds` that its parent has too.

    An entry whose config is no longer valid keeps its old trials. stages: name -> kept stage. names: old stage name ->
    new name.
    """
    arm = arm.model_copy(update={"parent": names.get(arm.parent, "")})
    parent = stages.get(arm.parent)
    own = [seed for seed in seeds if parent is None or seed in parent.ids]
    try:
        settings = trainable.resolve({**arm.config, "seed": 0})
        described = description(trainable, arm.name, settings)
        if not isinstance(arm, schemas.Arm):
            described.pop("train_flops", None)
        return arm.model_copy(update={**described, "trials": trials(trainable, settings, arm.config, own, parent)})
    except ValueError:  # its plug-in is not loaded or has changed
        return arm
