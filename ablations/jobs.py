"""The jobs of plans: the trials that workers run. This module does not load torch."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ablations.study.naming import ALL_ARMS, matching_names
from ablations.trainables.trainable import Resources, find
from results import store
from results.store.plan_files import parent_setting
from results.store.schemas.base import Settings
from results.store.schemas.plans import Arm, Entry, Plan
from results.store.standing import Standing, Standings

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
    description: Settings = field(default_factory=dict)  # what the plan records of it, such as `params`
    evaluation: float = 0.0  # time of evaluating, as a fraction of the training time; 0 if unknown
    trainable: str = ""  # module:attribute; "" for a ViT
    metric: str = ""  # shown when the trial ends
    selection_metric: str = ""  # shown while it trains

    @property
    def name(self) -> str:
        return f"{self.arm} seed {self.config['seed']}"

    @property
    def steps(self) -> int | None:
        steps = self.config.get("steps")
        return steps if isinstance(steps, int) else None

    def standing(self, known: Standings) -> Standing:
        return known.read(self.id, self.evals, self.parents)

    @property
    def resources(self) -> Resources:
        return find(self.trainable).resources(self.config)

    @property
    def ranks(self) -> int:
        """The number of processes that train the trial together, one per GPU."""
        return self.resources.gpus


def jobs(plans: Iterable[Plan], arms: Sequence[str] = ALL_ARMS) -> list[Job]:
    """Return the jobs of all plans: each trial once, with the evals of all its plans.

    They are ordered by plan, then by seed, with parents first. arms: glob patterns; stages of matching arms are
    included. Raises ValueError if a pattern matches no arm of a plan.
    """
    jobs_by_id: dict[str, Job] = {}
    for plan in plans:
        chosen = matching_arms(plan, arms)
        ancestors = {entry.name for arm in chosen for entry in plan.lineage(arm)}
        entries = [*(stage for stage in plan.stages if stage.name in ancestors), *chosen]
        ids_by_seed = [entry.ids for entry in entries]
        for seed in plan.seeds:
            for entry, ids in zip(entries, ids_by_seed, strict=True):
                trial_id = ids.get(seed)
                if trial_id in jobs_by_id:
                    job = jobs_by_id[trial_id]
                    evals = dict.fromkeys([*job.evals, *plan.evals_of(entry)])
                    jobs_by_id[trial_id] = replace(job, evals=tuple(evals))
                elif trial_id is not None:
                    jobs_by_id[trial_id] = job_of_plan(plan, entry, seed, trial_id)
    return list(jobs_by_id.values())


def job_of_plan(plan: Plan, entry: Entry, seed: int, trial_id: str) -> Job:
    parents = plan.parents(entry, seed)
    trainable = find(plan.trainable)
    config = entry.config | {"seed": seed}
    if parents:
        config[parent_setting(entry.config)] = next(iter(parents))
    return Job(
        trial_id,
        config,
        entry.name,
        plan.name,
        tuple(plan.evals_of(entry)),
        parents,
        description={name: getattr(entry, name) for name in trainable.described if name in entry.model_fields_set},
        evaluation=trainable.evaluation_fraction(config, entry.data or plan.data),
        trainable=plan.trainable,
        metric=plan.metric if plan.metric in plan.trial_metrics else plan.trial_metrics[0],
        selection_metric=plan.selection_metric,
    )


def unfinished(jobs: Iterable[Job], runs: Path) -> dict[str, Job]:
    """Return id -> job of those jobs whose trials have no result in a run directory."""
    return {job.id: job for job in jobs if not store.trial(runs, job.id).state().is_over}


def all_on_cpu(jobs: Iterable[Job]) -> bool:
    return all(job.resources.on_cpu for job in jobs)


def matching_arms(plan: Plan, globs: Sequence[str]) -> list[Arm]:
    named = matching_names([arm.name for arm in plan.arms], globs, plan.name)
    return [arm for arm in plan.arms if arm.name in named]


def kept_weights(keep: Keep, plans: Iterable[Plan]) -> Callable[[str], bool]:
    """Return a function that takes a trial's id and returns whether the trial's final weights are kept."""
    if keep == "all":
        return lambda trial_id: True
    entries: list[Entry] = []
    for plan in plans:
        entries += plan.stages
        if keep == "baseline":
            entries += [arm for arm in plan.arms if arm.name == arm.baseline]
    ids: set[str] = set()
    for entry in entries:
        ids.update(entry.ids.values())
    return ids.__contains__
