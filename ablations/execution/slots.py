"""The slots of the pool, one per worker: by default, one for each core or GPU."""

from collections.abc import Iterable, Sequence
from itertools import islice

from ablations.execution.launch import worker_environments
from ablations.execution.machine import gpus, nodes
from ablations.execution.pool import Slot
from ablations.planning.jobs import Job, all_on_cpu


def make_slots(jobs: Sequence[Job], asked: int | None, trials_per_gpu: int = 1) -> list[Slot]:
    """Return the slots of a pool for jobs that use the same number of GPUs: one per worker, and at most one per job.

    asked: the number of workers; None for the default. Raises ValueError if the machine has too few GPUs.
    """
    check_gpus(jobs, 0 if all_on_cpu(jobs) else len(gpus()), nodes(), "here")
    ranks = max((job.ranks for job in jobs), default=1)
    found = islice(worker_environments(ranks, all_on_cpu(jobs), asked, trials_per_gpu), len(jobs))
    return [Slot(number, own) for number, own in enumerate(found)]


def check_gpus(jobs: Iterable[Job], each: int, count: int, where: str) -> None:
    """Raise ValueError if `count` nodes with `each` GPUs cannot run one of the trials.

    The ranks must divide evenly among the nodes. where: the place that the message names.
    """
    for job in jobs:
        if job.ranks == 1:
            continue
        if job.config["device"] != "cpu" and job.ranks > each * count:
            total = f"{each * count}" + (f" ({each} on each of {count} nodes)" if count > 1 else "")
            raise ValueError(f"gpus={job.ranks}: {where} there are {total}; as many processes without one: device=cpu")
        if job.ranks % count:
            raise ValueError(f"gpus={job.ranks}: {where} there are {count} nodes: a multiple of that")


def group_by_ranks(jobs: Iterable[Job]) -> list[list[Job]]:
    """Return the jobs in groups, each with one number of GPUs: first those with fewer parents, then with more GPUs."""
    asked = list(jobs)
    if len({job.ranks for job in asked}) == 1:  # one pool, in which a parent's children follow it at once
        return [asked]
    turns: dict[tuple[int, int], list[Job]] = {}
    for job in asked:
        turns.setdefault((len(job.parents), -job.ranks), []).append(job)
    return [turns[turn] for turn in sorted(turns)]
