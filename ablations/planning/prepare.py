"""Prepare the plan to run from a design and its plan on disk.

A plan records a digest of its inputs. While the digest stays the same, the plan on disk is used as it is.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ablations import provenance
from ablations.planning import growing
from ablations.planning import plan as planning
from ablations.planning.saved_plans import plan_digest, saved_plan
from ablations.study.design import Design
from ablations.study.naming import PlanIdentity, check_given_name, check_name, only_name
from results.store import plan_files
from results.store.contents import timestamp
from results.store.schemas import Plan


def prepare(
    design: Design, runs: Path, seeds: int | None, prune: bool = False, code: str = "", given_name: str = ""
) -> Plan:
    """Return a design's plan. It extends the plan on disk, if there is one, and keeps that plan's name.

    seeds: the number of seeds; None for the recipe's. prune: whether to drop arms and seeds that are not asked for.
    code: the result of provenance.code_digest. If it is "" or has plug-ins, the plan is always rebuilt.
    given_name: as in `name_to_write`. Raises ValueError if the old plan is unreadable, or if the two plans cannot share
    a table. Also raises the errors of `name_to_write` and `plan.build`.
    """
    name = name_to_write(design.identity, runs, given_name)
    asked = list(range(seeds if seeds is not None else design.recipe.seeds))
    old = saved_plan(runs, name)
    wanted = asked if old is None or prune else sorted({*old.seeds, *asked})
    known = inputs_digest(design, wanted, code, None if prune else old)
    if old is not None and not prune and known and old.made_from == known:
        return Plan(**old.content("pruned"), extends=plan_digest(old))
    plan = planning.build(design, wanted)
    if old is not None:
        plan = plan.model_copy(update={"pruned": timestamp()}) if prune else growing.grown(old, plan)
    return plan.model_copy(update={"name": name, "made_from": known, "extends": plan_digest(old)})


def name_to_write(identity: PlanIdentity, runs: Path, given_name: str = "") -> str:
    """Return the name of the plan on disk with this identity, or else the name for a new plan.

    given_name: the option --name, or "". Raises ValueError if a new name is not valid, if another plan has the name, or
    if several plans have the identity.
    """
    name = given_name or identity.name
    if name in plan_files.planned_names(runs):
        plan = saved_plan(runs, name)
        if plan is not None and not identity.is_of(plan):
            of = PlanIdentity(plan.study, plan.recipe, plan.overrides).name
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
    """Return a digest of the inputs of a plan. An old plan that was made from equal inputs is up to date.

    Returns "" if an input cannot be read, plug-ins are loaded or `code` is "". old: the plan to extend, if any.
    The order of keys in study and recipe counts, because it names and orders the arms.
    """
    if not code or "+" in code:
        return ""  # a plug-in may import any file, which the digest would not cover
    asked = [design.study.model_dump(), design.recipe.model_dump(), design.overrides]
    try:
        inputs = design.trainable.fingerprints(lambda key: {*values_of_key(asked, key), *planned_values(old, key)})
    except (ValueError, OSError):
        return ""  # building the plan will say what is wrong
    content = {"asked": asked, "seeds": list(seeds), "inputs": inputs, "code": code}
    text = json.dumps(content | {"versions": provenance.versions()}, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def planned_values(plan: Plan | None, key: str) -> set[str]:
    entries = [*plan.stages, *plan.arms] if plan else []
    return {entry.config[key] for entry in entries if key in entry.config}


def values_of_key(content: Any, key: str) -> Iterator[str]:
    """Yield all strings under `key` at any depth, also under a stage's setting such as pretrain.data."""
    if isinstance(content, dict):
        for name, value in content.items():
            if name.rpartition(".")[2] == key:
                yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str))
            yield from values_of_key(value, key)
    elif isinstance(content, list):
        for value in content:
            yield from values_of_key(value, key)
