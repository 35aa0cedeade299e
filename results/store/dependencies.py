"""Parents of trials: the trials from whose weights other trials start or learn, as recorded in plans."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from results import store
from results.store import eval_files, plan_files
from results.store.schemas import Entry, Metrics, Plan, Settings, Stage


def trials_with_parents(plan: Plan) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the id of each trial that has parents, with a dict of its parents: id -> name, nearest first."""
    stages = by_name(plan)
    for entry in plan_files.trained(plan):
        for seed, key in entry.ids.items() if entry.parent else ():
            yield key, parents(entry, stages, seed)


def start_metrics(runs: Path, plan: Plan) -> dict[str, Metrics]:
    """Return trial id -> metrics of the evals of the trial's nearest parent, each named start_<metric>."""

    @cache
    def metrics(key: str) -> Metrics:
        trial = store.trial(runs, key)
        result = trial.state().result
        known = eval_files.summary(trial, result) if result else {}
        return {f"start_{name}": value for one in known.values() for name, value in one.metrics.items()}

    return {key: metrics(next(iter(before))) for key, before in trials_with_parents(plan)}


def by_name(plan: Plan) -> dict[str, Stage]:
    return {stage.name: stage for stage in plan.stages}


def lineage(entry: Entry, stages: Mapping[str, Stage]) -> Iterator[Stage]:
    """Yield the stages that an arm or stage starts or learns from, nearest first."""
    while parent := stages.get(entry.parent):
        yield parent
        entry = parent


def link(config: Settings) -> str:
    """Return the setting that names the parent trial: `teacher` if the config has `init_from`, else `init_from`.

    config: that of an entry with a parent, without the setting that names the parent.
    """
    return "teacher" if "init_from" in config else "init_from"


def parents(entry: Entry, stages: Mapping[str, Stage], seed: int) -> dict[str, str]:
    """Return the parents of the trial with a seed: id -> name, nearest first."""
    return {one.ids[seed]: one.name for one in lineage(entry, stages)}
