"""The slots of the pool, one per worker: by default, one for each core or GPU."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence

from ablations.execution.pool import Slot
from ablations.jobs import Job, all_on_cpu
from ablations.machine import cores, default_workers, gpus, nodes
from results.units import amount_text

VISIBLE = "CUDA_VISIBLE_DEVICES"
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def make_slots(jobs: Sequence[Job], asked: int | None, trials_per_gpu: int = 1) -> list[Slot]:
    """Return the slots of a pool, at most one per job, which share GPUs. A trial on several nodes runs alone."""
    devices = [] if all_on_cpu(jobs) else gpus()
    check_gpus(jobs, len(devices), nodes(), "here")
    ranks = max((job.ranks for job in jobs), default=1)
    spread = 1
    number = asked or default_workers(ranks, trials_per_gpu * len(devices), cores())
    if ranks > 1 and nodes() > 1:
        spread = nodes()
        number = 1
    groups = zip(*[iter(devices)] * (ranks // spread), strict=False)  # leftover GPUs stay idle
    environments = [THREADS | {VISIBLE: ",".join(group)} for group in groups] or [THREADS]
    return [Slot(worker, environments[worker % len(environments)]) for worker in range(min(number, len(jobs)))]


def check_gpus(jobs: Iterable[Job], each: int, count: int, where: str) -> None:
    """Raise ValueError if nodes, each with some GPUs, cannot run a job or share its ranks evenly."""
    for job in jobs:
        if job.ranks == 1:
            continue
        if not job.resources.on_cpu and job.ranks > each * count:
            available = f"only {amount_text(each * count, 'GPU')}" if each else "no GPU"
            if count > 1:
                where += f", {each} on each of {count} nodes"
            advice = f"; device=cpu runs {job.ranks} processes without a GPU" if "device" in job.config else ""
            raise ValueError(f"gpus={job.ranks}: {available} {where}{advice}")
        if job.ranks % count:
            raise ValueError(f"gpus={job.ranks}: {count} nodes {where}: give a multiple of {count}")


def group_for_pools(jobs: Iterable[Job]) -> list[list[Job]]:
    """Return the jobs grouped by trainable, then by numbers of parents (fewest first) and GPUs (most first)."""
    by_trainable: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        by_trainable[job.trainable].append(job)
    groups: list[list[Job]] = []
    for same_trainable in by_trainable.values():
        if len({job.ranks for job in same_trainable}) == 1:  # one pool, in which a parent's children follow it at once
            groups.append(same_trainable)
            continue
        in_order = sorted(same_trainable, key=parents_and_ranks)
        groups += [list(group) for _, group in itertools.groupby(in_order, parents_and_ranks)]
    return groups


def parents_and_ranks(job: Job) -> tuple[int, int]:
    return len(job.parents), -job.ranks
