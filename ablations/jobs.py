"""A plan as it lies on disk, and the trials it asks for, as plain data: what runs them needs no torch for that."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from results import chain, lease, store
from results.paths import refuse_links
from results.planned import evals_of

Json = dict[str, Any]
TURN_SECONDS = 30.0
COST = ("params", "flops", "tokens", "class_token", "attention_bias")  # as vitcore.measure.Cost, which loads torch


def read(runs: Path, plan_name: str) -> Json | None:
    try:
        return store.read_json(store.study_folder(runs, plan_name) / "plan.json")
    except FileNotFoundError:
        return None


def write(runs: Path, plan: Json) -> None:
    """Writes the plan unless it is there already; a plan that grew meanwhile, by another run, is an error.

    Raises ValueError: the same command, given again, plans on top of the other.
    """
    folder = store.study_folder(runs, plan["name"])
    refuse_links(runs, folder / "turns")
    with lease.turn(folder / "turns", TURN_SECONDS):
        there = read(runs, plan["name"])
        if there is not None and lost(there, plan):
            raise ValueError(f"{plan['name']}: another run planned more of it meanwhile: give the command again")
        if there != plan:
            store.write_json(folder / "plan.json", plan)


def lost(there: Json, plan: Json) -> bool:
    """Whether writing `plan` would forget arms or seeds; a pruned plan says that it means to."""
    arms = {arm["name"] for arm in there["arms"]} - {arm["name"] for arm in plan["arms"]}
    return not plan.get("pruned") and bool(arms or set(there["seeds"]) - set(plan["seeds"]))


@dataclass(frozen=True)
class Job:
    """One trial to make sure of: plain data, so that it can be handed to a worker."""

    id: str
    config: Json
    arm: str
    study: str
    evals: tuple[str, ...] = ()  # what it owes besides its result
    parents: dict[str, str] = field(default_factory=dict)  # what it starts from, nearest first: id -> what it is called
    cost: Json | None = None  # of its model (vitcore.measure.Cost), where the plan says it

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
        stages = chain.by_name(plan)
        needed = {one["name"] for arm in chosen for one in chain.lineage(arm, stages)}
        entries = [*(stage for stage in stages.values() if stage["name"] in needed), *chosen]
        ids = [chain.seeds(entry) for entry in entries]
        for seed, (entry, own) in itertools.product(plan["seeds"], zip(entries, ids, strict=True)):
            evals = tuple(evals_of(entry, plan))
            if (key := own.get(seed)) in found:
                found[key] = found[key].also(evals)
            elif key is not None:
                parents = chain.parents(entry, stages, seed)
                start = {"init_from": next(iter(parents))} if parents else {}
                config = entry["config"] | {"seed": seed} | start
                found[key] = Job(key, config, entry["name"], plan["name"], evals, parents, cost(entry))
    return list(found.values())


def cost(entry: Json) -> Json | None:
    """Of an arm's or a stage's model; None where an earlier version did not say all of it."""
    return {name: entry[name] for name in COST} if entry.keys() >= set(COST) else None
