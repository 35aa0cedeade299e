"""Plans on disk and the jobs they ask for, as plain data: running them needs no torch in this process."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ablations.study.naming import ALL_ARMS, matching
from results import store
from results.store import dependencies, lease
from results.store.paths import refuse_links
from results.store.planned import evals_of

Json = dict[str, Any]
TURN_SECONDS = 30.0
BASE = "base"  # in an unwritten plan: the digest of the plan on disk that it extends
COST = (
    "params",
    "flops",
    "tokens",
    "class_token",
    "attention_bias",
)  # fields of vitcore.analysis.cost.Cost, which loads torch


def read(runs: Path, plan_name: str) -> Json | None:
    """The plan of that name; None if there is none."""
    try:
        return store.read_plan(store.study_folder(runs, plan_name) / "plan.json")
    except FileNotFoundError:
        return None


def write(runs: Path, plan: Json) -> None:
    """Write the plan if plan.json is still the one that it extends (compare and swap).

    Raises ValueError if another run has changed it: the same command, given again, extends the new one.
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
                check_same_table(there, content)
            raise ValueError(f"{plan['name']}: another run changed its plan meanwhile: give the command again")
        store.write_plan(folder / "plan.json", content)


def digest(plan: Json | None) -> str:
    """The checksum of a plan on disk; "" if there is none."""
    return "" if plan is None else store.checksum(plan)


def check_same_table(old: Json, new: Json) -> None:
    """Raises ValueError if two plans of one name differ in baseline or metric: they cannot share a table."""
    for key in ("baseline", "metric"):
        if old[key] != new[key]:
            raise ValueError(
                f"{old['name']} was planned with {key} {old[key]}, now it is {new[key]}: give the study another name, "
                "or plan it anew with --prune (results stay)"
            )
    before, after = baseline_arm(old), baseline_arm(new)
    if before["key"] != after["key"]:
        changed = describe_difference(settings_with_stages(before, old), settings_with_stages(after, new))
        raise ValueError(
            f"{old['name']} was planned with another baseline ({changed}): "
            "give the recipe another name, or plan it anew with --prune (results stay)"
        )


def baseline_arm(plan: Json) -> Json:
    return next(arm for arm in plan["arms"] if arm["name"] == plan["baseline"])


def settings_with_stages(arm: Json, plan: Json) -> Json:
    """An arm's settings, and those of its stages as 'pretrain.lr'."""
    lineage = dependencies.lineage(arm, dependencies.by_name(plan))
    above = {f"{one['stage']}.{key}": value for one in lineage for key, value in one["config"].items()}
    return {**arm["config"], **above}


def describe_difference(old: Json, new: Json) -> str:
    """Name the first three settings in which two configs differ."""
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    changed = ", ".join(f"{key} {old.get(key)} -> {new.get(key)}" for key in keys[:3])
    return changed or "the images of its data, or what one of its parts computes"


@dataclass(frozen=True)
class Job:
    """A trial to run, as plain data that can be sent to a worker."""

    id: str
    config: Json
    arm: str
    study: str
    evals: tuple[str, ...] = ()  # evals that it owes besides its result
    parents: dict[str, str] = field(default_factory=dict)  # trials that it starts from, nearest first: id -> name
    cost: Json | None = None  # fields of vitcore.analysis.cost.Cost, if the plan has them

    @property
    def ranks(self) -> int:
        """The number of processes that train it together."""
        return int(self.config.get("gpus", 1))  # not in plans of earlier versions

    def also(self, evals: Iterable[str]) -> "Job":
        """This job with the evals of another plan added."""
        return replace(self, evals=tuple(dict.fromkeys([*self.evals, *evals])))


def jobs(plans: Iterable[Json], arms: Sequence[str] = ALL_ARMS) -> list[Job]:
    """The jobs of all plans, each trial once. arms: globs. Raises ValueError if one matches no arm of a plan.

    Jobs are ordered by study, then by seed, parents first: an unfinished table has balanced seeds.
    """
    found: dict[str, Job] = {}
    for plan in plans:
        named = matching([arm["name"] for arm in plan["arms"]], arms, plan["name"])
        chosen = [arm for arm in plan["arms"] if arm["name"] in named]
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
                start = {dependencies.link(entry["config"]): next(iter(parents))} if parents else {}
                config = entry["config"] | {"seed": seed} | start
                found[key] = Job(key, config, entry["name"], plan["name"], evals, parents, recorded_cost(entry))
    return list(found.values())


def recorded_cost(entry: Json) -> Json | None:
    """The recorded cost of an arm's or stage's model; None in plans of earlier versions."""
    return {name: entry[name] for name in COST} if entry.keys() >= set(COST) else None
