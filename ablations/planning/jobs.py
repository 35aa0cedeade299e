"""A plan as it lies on disk, and the trials it asks for, as plain data: what runs them needs no torch for that."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from results import store
from results.store import dependencies, lease
from results.store.paths import refuse_links
from results.store.planned import evals_of

Json = dict[str, Any]
TURN_SECONDS = 30.0
BASE = "base"  # in a plan that is not written yet: the digest of what it was made on top of
COST = (
    "params",
    "flops",
    "tokens",
    "class_token",
    "attention_bias",
)  # as vitcore.analysis.cost.Cost, which loads torch


def read(runs: Path, plan_name: str) -> Json | None:
    try:
        return store.read_plan(store.study_folder(runs, plan_name) / "plan.json")
    except FileNotFoundError:
        return None


def write(runs: Path, plan: Json) -> None:
    """Writes the plan where plan.json is still what the plan was made on top of (compare and swap).

    Raises ValueError where another run changed it meanwhile: the same command, given again, plans on top of that.
    """
    folder = store.study_folder(runs, plan["name"])
    refuse_links(runs, folder / "turns")
    content = {key: value for key, value in plan.items() if key != BASE}
    with lease.turn(folder / "turns", TURN_SECONDS):
        there = read(runs, plan["name"])
        if there == content:
            return
        if digest(there) != plan.get(BASE, ""):
            assert there is not None, "plans are never deleted"
            if not content.get("pruned"):
                refuse_other(there, content)
            raise ValueError(f"{plan['name']}: another run changed its plan meanwhile: give the command again")
        store.write_plan(folder / "plan.json", content)


def digest(plan: Json | None) -> str:
    """Of a plan as it lies on disk; "" where there is none."""
    return "" if plan is None else store.checksum(plan)


def refuse_other(old: Json, new: Json) -> None:
    """Raises ValueError where two plans of one name cannot be one table: another baseline or metric."""
    for key in ("baseline", "metric"):
        if old[key] != new[key]:
            raise ValueError(
                f"{old['name']} was planned with {key} {old[key]}, now it is {new[key]}: give the study another name, "
                "or plan it anew with --prune (results stay)"
            )
    before, after = baseline_arm(old), baseline_arm(new)
    if before["key"] != after["key"]:
        raise ValueError(
            f"{old['name']} was planned with another baseline ({difference(whole(before, old), whole(after, new))}): "
            "give the recipe another name, or plan it anew with --prune (results stay)"
        )


def baseline_arm(plan: Json) -> Json:
    return next(arm for arm in plan["arms"] if arm["name"] == plan["baseline"])


def whole(arm: Json, plan: Json) -> Json:
    """An arm's settings, and those of what it starts from, as 'pretrain.lr'."""
    lineage = dependencies.lineage(arm, dependencies.by_name(plan))
    above = {f"{one['stage']}.{key}": value for one in lineage for key, value in one["config"].items()}
    return {**arm["config"], **above}


def difference(old: Json, new: Json) -> str:
    """What two configs differ in, the first three keys."""
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    changed = ", ".join(f"{key} {old.get(key)} -> {new.get(key)}" for key in keys[:3])
    return changed or "the images of its data, or what one of its parts computes"


@dataclass(frozen=True)
class Job:
    """One trial to make sure of: plain data, so that it can be handed to a worker."""

    id: str
    config: Json
    arm: str
    study: str
    evals: tuple[str, ...] = ()  # what it owes besides its result
    parents: dict[str, str] = field(default_factory=dict)  # what it starts from, nearest first: id -> what it is called
    cost: Json | None = None  # of its model (vitcore.analysis.cost.Cost), where the plan says it

    @property
    def ranks(self) -> int:
        """How many processes train it together."""
        return int(self.config.get("gpus", 1))  # not in plans of earlier versions

    def also(self, evals: Iterable[str]) -> "Job":
        """With what another plan wants of the same trial."""
        return replace(self, evals=tuple(dict.fromkeys([*self.evals, *evals])))


def jobs(plans: Iterable[Json], arms: str = "*") -> list[Job]:
    """Every trial once, study by study and within a study seed by seed: a partial table is a balanced one.

    Within a seed what others start from comes first.
    """
    found: dict[str, Job] = {}
    for plan in plans:
        chosen = [arm for arm in plan["arms"] if fnmatchcase(arm["name"], arms)]
        if not chosen:
            there = ", ".join(arm["name"] for arm in plan["arms"])
            raise ValueError(f"--arm {arms}: {plan['name']} has the arms {there}")
        stages = dependencies.by_name(plan)
        needed = {one["name"] for arm in chosen for one in dependencies.lineage(arm, stages)}
        entries = [*(stage for stage in stages.values() if stage["name"] in needed), *chosen]
        ids = [dependencies.seeds(entry) for entry in entries]
        for seed, (entry, own) in itertools.product(plan["seeds"], zip(entries, ids, strict=True)):
            evals = tuple(evals_of(entry, plan))
            if (key := own.get(seed)) in found:
                found[key] = found[key].also(evals)
            elif key is not None:
                parents = dependencies.parents(entry, stages, seed)
                start = {"init_from": next(iter(parents))} if parents else {}
                config = entry["config"] | {"seed": seed} | start
                found[key] = Job(key, config, entry["name"], plan["name"], evals, parents, cost(entry))
    return list(found.values())


def cost(entry: Json) -> Json | None:
    """Of an arm's or a stage's model; None where an earlier version did not say all of it."""
    return {name: entry[name] for name in COST} if entry.keys() >= set(COST) else None
