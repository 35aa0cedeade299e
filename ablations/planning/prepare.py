"""Prepare the plan to run from a design and its plan on disk, which it extends unless it is pruned."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ablations import provenance
from ablations.planning import plan as planning
from ablations.planning.checks import refuse_undeclared
from ablations.planning.saved_plans import check_same_table, plan_digest, saved_plan
from ablations.study.design import Design
from ablations.study.naming import PlanIdentity, check_given_name, check_name, only_name
from ablations.trainables.trainable import Trainable, find
from results.statistics import looks
from results.store import ledger, plan_files
from results.store.contents import timestamp
from results.store.schemas.plans import Arm, Entry, Interaction, Plan, Stage, Tuned

Contrast = TypeVar("Contrast", bound=Tuned | Interaction)
Extended = TypeVar("Extended", bound=Entry)


def prepare(
    design: Design, runs: Path, seeds: int | None, prune: bool = False, code: str = "", given_name: str = ""
) -> Plan:
    """Return a design's plan. It extends the plan on disk, if there is one, and keeps that plan's name.

    seeds: None for the recipe's. prune: whether to drop arms and seeds that are not asked for. code: of
    provenance.code_digest. Raises ValueError if the old plan is unreadable or has another table.
    """
    name = name_to_write(design.identity, runs, given_name)
    wanted = set(range(design.recipe.seeds if seeds is None else seeds))
    old = saved_plan(runs, name)
    extended = None if prune else old
    if extended is not None:
        wanted.update(extended.seeds)
    digest = inputs_digest(design, sorted(wanted), code, extended)
    if extended is not None and digest and extended.made_from == digest:
        return Plan(**extended.content("pruned"), extends=plan_digest(extended))
    plan = planning.build(design, sorted(wanted))
    if plan.race and not (old and old.race):
        refuse_late_race(plan, runs)
    if extended is not None:
        plan = grown(extended, plan)
    elif old is not None:
        plan = plan.model_copy(update={"pruned": timestamp()})
    return plan.model_copy(update={"name": name, "made_from": digest, "extends": plan_digest(old)})


def name_to_write(identity: PlanIdentity, runs: Path, given_name: str = "") -> str:
    """Return the name of the plan on disk with this identity, or else the name for a new plan: given_name, if any."""
    name = given_name or identity.name
    if name in plan_files.planned_names(runs):
        plan = saved_plan(runs, name)
        if plan is not None and not identity.is_of(plan):
            of = PlanIdentity(plan.study, plan.recipe, plan.overrides, plan.trainable).name
            raise ValueError(f"{name}: is the name of a plan of {of}: give this one another: --name NAME")
        return name
    if given_name:
        check_given_name(given_name)
        return given_name
    check_name(name)
    plans = plan_files.read_plans(runs).readable
    older = [plan.name for plan in plans if identity.is_of(plan)]
    return only_name(older, identity.overrides, plans, runs) if older else name


def inputs_digest(design: Design, seeds: Sequence[int], code: str, old: Plan | None = None) -> str:
    """Return a digest of the inputs of a plan, so that an equal plan is not built again; "" if it is unknown.

    The order of keys in study and recipe counts, because it names and orders the arms.
    """
    if not code or "+" in code:
        return ""  # a plug-in may import any file, which the digest would not cover
    written = [design.study.model_dump(), design.recipe.model_dump(), design.overrides]
    planned = [entry.config for entry in old.entries] if old else []
    try:
        inputs = design.trainable.fingerprints(lambda key: set(values_of_key([*written, *planned], key)))
    except (ValueError, OSError):
        return ""  # building the plan will say what is wrong
    content = {"asked": written, "seeds": list(seeds), "inputs": inputs, "code": code}
    text = json.dumps(content | {"versions": provenance.versions()}, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def values_of_key(content: Any, key: str) -> Iterator[str]:
    """Yield all strings under `key` at any depth, also under a stage's setting such as pretrain.data."""
    if isinstance(content, list):
        for value in content:
            yield from values_of_key(value, key)
    if not isinstance(content, dict):
        return
    for name, value in content.items():
        if name.rpartition(".")[2] == key:
            listed = value if isinstance(value, list) else [value]
            yield from filter(lambda text: isinstance(text, str), listed)
        yield from values_of_key(value, key)


# -- growing -----------------------------------------------------------------------------------------------------------


def grown(old: Plan, new: Plan) -> Plan:
    """Return the new plan with the arms, stages, interactions and tuned arms that only the old plan has.

    Raises ValueError if the baselines or metrics differ, or if an old arm has an undeclared difference.
    """
    check_same_table(old, new)
    names = {arm.name for arm in new.arms}
    dropped = [arm for arm in old.arms if arm.name not in names]
    kept = KeptEntries(find(new.trainable), new.seeds, {stage.name: stage for stage in new.stages})
    needed = {stage.name for arm in dropped for stage in old.lineage(arm)}
    for stage in old.stages:
        if stage.name in needed:
            kept.add_stage(stage)
    arms = [*new.arms, *map(kept.extended, dropped)]
    tuned = with_old(new.tuned, old.tuned if old.tune == new.tune else [])
    plan = new.model_copy(
        update={
            "stages": list(kept.stages.values()),
            "arms": arms,
            "family": planning.contrasts(tuned or arms),
            "tuned": tuned,
            "points_family": planning.contrasts(arms) if tuned else 0,
            "interactions": with_old(new.interactions, old.interactions),
        }
    )
    if old.race:
        plan = plan.model_copy(update={"race": True})
    refuse_undeclared(plan)
    return plan


def refuse_late_race(plan: Plan, runs: Path) -> None:
    declared = ledger.with_declarations(plan, ledger.read_declarations(runs))
    ended = set(ledger.ended_trials(runs, plan))
    late = []
    for name, contrast in looks.planned_contrasts(plan).items():
        if any(map(ended.issuperset, contrast)) and not looks.declares_race(contrast, declared):
            late.append(name)
    if late:
        arms = f"{late[0]} has" if len(late) == 1 else f"{len(late)} arms have"
        raise ValueError(
            f"{plan.name}: {arms} results already, and a race is declared before the first: run it without, "
            "or in another run directory (--runs)"
        )


def with_old(new: Sequence[Contrast], old: Sequence[Contrast]) -> list[Contrast]:
    names = {entry.name for entry in new}
    return [*new, *(entry for entry in old if entry.name not in names)]


@dataclass
class KeptEntries:
    """The stages of a new plan and of kept arms: name -> stage. new_names: name in the old plan -> name here."""

    trainable: Trainable
    seeds: Sequence[int]
    stages: dict[str, Stage]
    new_names: dict[str, str] = field(default_factory=dict)

    def add_stage(self, stage: Stage) -> None:
        """Keep a stage of the old plan, unless the new plan has its trials. An edited one is renamed."""
        kept = self.extended(stage)
        for name in (stage.name, *self.stages):
            if name in self.stages and self.stages[name].trials == kept.trials:
                self.new_names[stage.name] = name
                return
        name = stage.name
        if name in self.stages:
            name = f"{name.partition('#')[0]}#{kept.trials[0].id[:6]}"
        self.new_names[stage.name] = name
        self.stages[name] = kept.model_copy(update={"name": name})

    def extended(self, entry: Extended) -> Extended:
        """Return an old entry with a trial for every seed of its parent, or as it was if it is no longer valid."""
        entry = entry.model_copy(update={"parent": self.new_names.get(entry.parent, "")})
        parent = self.stages.get(entry.parent)
        seeds = [seed for seed in self.seeds if parent is None or seed in parent.ids]
        try:
            settings = self.trainable.resolve({**entry.config, "seed": 0})
            changes = planning.description(self.trainable, entry.name, settings)
            changes["trials"] = planning.trials(self.trainable, settings, entry.config, seeds, parent)
        except ValueError:  # its plug-in is not loaded or has changed
            return entry
        if not isinstance(entry, Arm):
            changes.pop("train_flops", None)
        return entry.model_copy(update=changes)
