"""Grow plans. A plan keeps the arms and seeds of the plan on disk unless it is pruned."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TypeVar

from ablations.planning.plan import arm_cost, contrasts, trials
from ablations.planning.saved_plans import check_same_table
from ablations.study.confounds import refuse_undeclared
from results.store import schemas
from results.store.schemas import Entry, Plan
from vitcore.config import Config

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
    kept = [extended(arm, new.seeds, stages, called) for arm in gone]
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
            kept = extended(stage, new.seeds, found, names)
            same = [one for one in (name, *found) if one in found and found[one].trials == kept.trials]
            if same:
                names[name] = same[0]
                continue
            # If the name is taken, the first 6 digits of the stage's first trial id are added.
            names[name] = f"{name.partition('#')[0]}#{kept.trials[0].id[:6]}" if name in found else name
            found[names[name]] = kept.model_copy(update={"name": names[name]})
    return found, names


def extended(
    arm: Extended, seeds: Sequence[int], stages: Mapping[str, schemas.Stage], names: Mapping[str, str]
) -> Extended:
    """Return an old arm or stage with a trial for every seed in `seeds` that its parent has too.

    An entry whose config is no longer valid keeps its old trials. stages: name -> kept stage. names: old stage name ->
    new name.
    """
    arm = arm.model_copy(update={"parent": names.get(arm.parent, "")})
    parent = stages.get(arm.parent)
    own = [seed for seed in seeds if parent is None or seed in parent.ids]
    try:
        config = Config(**arm.config, seed=0)
        measured = arm_cost(arm.name, config)
        return arm.model_copy(update=asdict(measured) | {"trials": trials(config, arm.config, own, parent)})
    except ValueError:  # its plug-in is not loaded or has changed
        return arm
