"""Prepare the plan to run: merge the request into the plan of the same name on disk.

A plan records a digest of its inputs. If the digest has not changed, the plan on disk is used: no model is measured,
and torch is not loaded.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablations.execution import provenance
from ablations.planning.jobs import digest, read
from results.store.schemas import Plan
from vitcore.config import Config
from vitcore.data.lookup import describe
from vitcore.options import ConfigError
from vitcore.training import parents

if TYPE_CHECKING:
    from ablations.study.design import Design


def make(design: "Design", seeds: Sequence[int], old: Plan | None, prune: bool) -> Plan:
    """Build a plan, extending the old one. Raises ValueError for an impossible arm or an incompatible old plan."""
    from ablations.planning.plan import build, grown, pruned  # late: torch

    new = build(design, seeds)
    return new if old is None else pruned(old, new) if prune else grown(old, new)


def prepare(design: "Design", runs: Path, seeds: int | None, prune: bool = False, code: str = "") -> Plan:
    """Return the plan to run: the request merged with the plan of the same name on disk.

    code: digests of sources and plug-ins (provenance.code_digest); with plug-ins, or "", the plan is always rebuilt.
    The digest of the plan that it extends is recorded for `jobs.write`.
    Raises ValueError for an impossible arm, and if old and new cannot share a table.
    """
    asked, old = list(range(seeds if seeds is not None else design.recipe.seeds)), read(runs, design.name)
    wanted = asked if old is None or prune else sorted({*old.seeds, *asked})
    known = inputs_digest(design, wanted, code, None if prune else old)
    if old is not None and not prune and known and old.made_from == known:
        return Plan(**old.content("pruned"), extends=digest(old))
    return make(design, wanted, old, prune).model_copy(update={"made_from": known, "extends": digest(old)})


def inputs_digest(design: "Design", seeds: Sequence[int], code: str, old: Plan | None = None) -> str:
    """Return a digest of all inputs of a plan; "" if it cannot be computed. Equal digests mean equal plans.

    old: the plan that it extends. The order of keys counts: arms are named and listed by it.
    """
    if not code or "+" in code:
        return ""  # a plug-in may import any file
    asked = [design.study.model_dump(), design.recipe.model_dump(), design.overrides]
    try:
        data = {name: describe(name).fingerprint for name in sorted(data_names(design, old))}
        weights = [*values_of_key(asked, "init_from"), *planned_values(old, "init_from")]
        files = {parents.normalized("init_from", name) for name in weights if is_file(name)}
        starts = {name: parents.identified("init_from", name) for name in sorted(files)}
        teachers = {*values_of_key(asked, "teacher"), *planned_values(old, "teacher")}
        for name in sorted(filter(is_file, teachers)):
            starts[name] = parents.identified("teacher", parents.normalized("teacher", name))
    except (ConfigError, OSError):
        return ""  # building the plan will say what is wrong
    content = {"asked": asked, "seeds": list(seeds), "data": data, "starts": starts, "code": code}
    text = json.dumps(content | {"versions": provenance.versions()}, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def data_names(design: "Design", old: Plan | None) -> set[str]:
    """Return all values of `data` in the request and in the old plan."""
    asked = [design.study.model_dump(), design.recipe.model_dump(), design.overrides]
    return {Config.model_fields["data"].default, *values_of_key(asked, "data"), *planned_values(old, "data")}


def planned_values(plan: Plan | None, key: str) -> set[str]:
    """Return the values of a setting in all arms and stages of a plan."""
    entries = [*plan.stages, *plan.arms] if plan else []
    return {entry.config[key] for entry in entries if key in entry.config}


def values_of_key(content: Any, key: str) -> Iterator[str]:
    """Yield all strings under `key` at any depth, also as a stage's setting such as pretrain.data."""
    if isinstance(content, dict):
        for name, value in content.items():
            if name.rpartition(".")[2] == key:
                yield from filter(is_text, value if isinstance(value, list) else [value])
            yield from values_of_key(value, key)
    elif isinstance(content, list):
        for value in content:
            yield from values_of_key(value, key)


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_file(init_from: str) -> bool:
    return init_from.endswith(parents.FILES)
