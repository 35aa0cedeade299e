"""The plan to run: what is asked for, on top of what was planned under the same name before.

A plan says what it was made from. Where that is the same again nothing is made anew: no model is measured, and torch is
not loaded.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablations.execution import provenance
from ablations.planning.jobs import BASE, digest, read
from vitcore.config import Config
from vitcore.data.lookup import describe
from vitcore.options import ConfigError
from vitcore.training import init_from as origin

if TYPE_CHECKING:
    from ablations.study.study import Design

Json = dict[str, Any]


def make(design: "Design", seeds: Sequence[int], old: Json | None, prune: bool) -> Json:
    """Make a plan, on top of an old one. Raises ValueError for an arm that cannot be, or not with the old ones."""
    from ablations.planning.plan import build, grown, pruned  # late: torch

    new = build(design, seeds)
    return new if old is None else pruned(old, new) if prune else grown(old, new)


def prepare(design: "Design", runs: Path, seeds: int | None, prune: bool = False, code: str = "") -> Json:
    """The plan to run: what is asked for, and whatever was planned under the same name before.

    code: the sources and the plugins (provenance.code). With plugins, and with "" where it is not known, every plan is
    made anew. What it is made on top of is noted in it, for `jobs.write`.
    Raises ValueError for an arm that cannot be, and where the two cannot be one table.
    """
    asked, old = list(range(seeds if seeds is not None else design.recipe.seeds)), read(runs, design.name)
    wanted = asked if old is None or prune else sorted({*old["seeds"], *asked})
    known = made_from(design, wanted, code, None if prune else old)
    if old is not None and not prune and known and old.get("made_from") == known:
        return {key: value for key, value in old.items() if key != "pruned"} | {BASE: digest(old)}
    return make(design, wanted, old, prune) | {"made_from": known, BASE: digest(old)}


def made_from(design: "Design", seeds: Sequence[int], code: str, old: Json | None = None) -> str:
    """A digest of everything that a plan follows from: equal ones are equal plans. "" where that cannot be said.

    old: the plan that it grows from. The order of keys counts: arms are named and listed by it.
    """
    if not code or "+" in code:
        return ""  # what a plugin imports may be any file
    asked = [design.study.model_dump(), design.recipe.model_dump(), design.overrides]
    try:
        data = {name: describe(name).fingerprint for name in sorted(images(design, old))}
        weights = [*texts(asked, "init_from"), *named(old, "init_from")]
        files = {origin.checked(name) for name in weights if is_file(name)}
        starts = {name: origin.fingerprint(name) for name in sorted(files)}
    except (ConfigError, OSError):
        return ""  # what makes the plan says what is wrong, and of which arm
    content = {"asked": asked, "seeds": list(seeds), "data": data, "starts": starts, "code": code}
    text = json.dumps(content | {"versions": provenance.versions()}, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def images(design: "Design", old: Json | None) -> set[str]:
    """Every `data` that a plan may be about, on top of an old one."""
    asked = [design.study.model_dump(), design.recipe.model_dump(), design.overrides]
    return {Config.model_fields["data"].default, *texts(asked, "data"), *named(old, "data")}


def named(plan: Json | None, key: str) -> set[str]:
    """A setting of all arms: those that nobody asks for any more stay planned, with ids of what is there today."""
    entries = [*plan.get("stages", []), *plan["arms"]] if plan else []
    return {entry["config"][key] for entry in entries if key in entry["config"]}


def texts(content: Any, key: str) -> Iterator[str]:
    """Every text that stands under `key`, wherever it does, or under a stage's, as pretrain.data."""
    if isinstance(content, dict):
        for name, value in content.items():
            if name.rpartition(".")[2] == key:
                yield from filter(is_text, value if isinstance(value, list) else [value])
            yield from texts(value, key)
    elif isinstance(content, list):
        for value in content:
            yield from texts(value, key)


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_file(init_from: str) -> bool:
    return init_from.endswith(origin.FILES)
