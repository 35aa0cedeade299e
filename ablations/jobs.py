"""The jobs of plans: the trials that workers run. This module does not load torch."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal

from ablations.study.naming import ALL_ARMS, matching_names
from results.store.plan_files import parent_setting
from results.store.schemas import Arm, Entry, Plan, Settings
from results.store.standing import Standing, Standings
from vitcore.runtime.host import Cost

Keep = Literal["all", "baseline", "none"]  # the trials whose final weights are kept


@dataclass(frozen=True)
class Job:
    """A trial to run, as plain data for a worker."""

    id: str
    config: Settings
    arm: str
    study: str
    evals: tuple[str, ...] = ()  # names of the evals to compute after training
    parents: dict[str, str] = field(default_factory=dict)  # the trial's ancestors, nearest first: id -> name
    cost: Cost | None = None  # cost of the model, if the plan records it
    evaluation: float = 0.0  # time of validations and test, as a fraction of the training time; 0 if unknown

    @property
    def name(self) -> str:
        return f"{self.arm} seed {self.config['seed']}"

    def standing(self, known: Standings) -> Standing:
        return known.read(self.id, self.evals, self.parents)

    @property
    def ranks(self) -> int:
        """The number of processes that train the trial together, one per GPU."""
        return int(self.config.get("gpus", 1))  # missing in plans of earlier versions


def jobs(plans: Iterable[Plan], arms: Sequence[str] = ALL_ARMS) -> list[Job]:
    """Return the jobs of all plans: each trial once, with the evals of all its plans.

    They are ordered by plan, then by seed, with parents first. arms: glob patterns; stages of matching arms are
    included. Raises ValueError if a pattern matches no arm of a plan.
    """
    found: dict[str, Job] = {}
    for plan in plans:
        chosen = matching_arms(plan, arms)
        needed = {one.name for arm in chosen for one in plan.lineage(arm)}
        entries: list[Entry] = [*(stage for stage in plan.stages if stage.name in needed), *chosen]
        ids = [entry.ids for entry in entries]
        for seed, (entry, own) in itertools.product(plan.seeds, zip(entries, ids, strict=True)):
            evals = tuple(plan.evals_of(entry))
            if (key := own.get(seed)) in found:
                owed = dict.fromkeys([*found[key].evals, *evals])
                found[key] = replace(found[key], evals=tuple(owed))
            elif key is not None:
                parents = plan.parents(entry, seed)
                start = {parent_setting(entry.config): next(iter(parents))} if parents else {}
                config = entry.config | {"seed": seed} | start
                share = evaluation_share(config, plan)
                found[key] = Job(key, config, entry.name, plan.name, evals, parents, recorded_cost(entry), share)
    return list(found.values())


def evaluation_share(config: Settings, plan: Plan) -> float:
    """Return the time of a trial's validations and test, as a fraction of its training time.

    It follows from the numbers of images, because training on an image takes as long as evaluating three. Returns 0 for
    plans of earlier versions, which do not record the numbers of images.
    """
    if plan.data is None:
        return 0.0
    validated = min(config["evaluations"], config["steps"]) * round(config["val_fraction"] * plan.data.train)
    return float((validated + plan.data.test) / (3 * config["steps"] * config["batch"]))


def all_on_cpu(jobs: Iterable[Job]) -> bool:
    return all(job.config["device"] == "cpu" for job in jobs)


def recorded_cost(entry: Entry) -> Cost | None:
    """Return the cost of the model that a plan entry records; None in plans of earlier versions."""
    names = {field.name for field in fields(Cost)}
    return Cost(**{name: getattr(entry, name) for name in names}) if entry.model_fields_set >= names else None


def matching_arms(plan: Plan, globs: Sequence[str]) -> list[Arm]:
    """Return the arms whose names match a glob pattern. Raises ValueError if a pattern matches no arm."""
    named = matching_names([arm.name for arm in plan.arms], globs, plan.name)
    return [arm for arm in plan.arms if arm.name in named]


def kept_weights(keep: Keep, plans: Iterable[Plan]) -> Callable[[str], bool]:
    """Return a function that takes a trial's id and returns whether the trial's final weights are kept.

    Weights of stages are always kept, because other trials start from them.
    """
    if keep == "all":
        return lambda trial_id: True
    entries: list[Entry] = []
    for plan in plans:
        entries += plan.stages
        if keep == "baseline":
            entries += [arm for arm in plan.arms if arm.name == arm.baseline]
    return {trial.id for entry in entries for trial in entry.trials}.__contains__
