"""The slots of the pool: a worker each, one a core or one a GPU unless more are asked for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from ablations.execution.launch import Process, environments
from ablations.execution.machine import gpus, nodes
from ablations.planning.jobs import Job


@dataclass
class Slot:
    """A place in the pool: its worker's process, and the trial that it trains."""

    number: int
    environment: dict[str, str]
    process: Process | None = None
    job: Job | None = None
    ready: bool = False
    silent: float = 0.0  # seconds since the last sign of life of its worker
    failed_starts: int = 0  # in a row
    said: str = ""  # the last line on its standard error while it starts

    @property
    def idle(self) -> bool:
        """Whether its worker has no trial; a worker that still starts has none."""
        return self.process is not None and self.job is None


def slots(jobs: Sequence[Job], asked: int | None, trials_per_gpu: int = 1) -> list[Slot]:
    """A slot for each of `launch.environments`, never more than trials. All jobs take as many GPUs each.

    Raises ValueError where there are fewer GPUs.
    """
    check_gpus(jobs, 0 if on_cpu(jobs) else len(gpus()), nodes(), "here")
    ranks = max((job.ranks for job in jobs), default=1)
    found = islice(environments(ranks, on_cpu(jobs), asked, trials_per_gpu), len(jobs))
    return [Slot(number, own) for number, own in enumerate(found)]


def on_cpu(jobs: Iterable[Job]) -> bool:
    return all(job.config["device"] == "cpu" for job in jobs)


def check_gpus(jobs: Iterable[Job], each: int, count: int, where: str) -> None:
    """Raises ValueError for a trial of more GPUs than `count` nodes of `each` have, or of unequal shares of them."""
    for job in jobs:
        if job.ranks == 1:
            continue
        if job.config["device"] != "cpu" and job.ranks > each * count:
            total = f"{each * count}" + (f" ({each} on each of {count} nodes)" if count > 1 else "")
            raise ValueError(f"gpus={job.ranks}: {where} there are {total}; as many processes without one: device=cpu")
        if job.ranks % count:
            raise ValueError(f"gpus={job.ranks}: {where} there are {count} nodes: a multiple of that")


def by_ranks(jobs: Iterable[Job]) -> list[list[Job]]:
    """Those that take as many GPUs together: what others start from first, then the most; otherwise in their order."""

    def turn(job: Job) -> tuple[int, int]:
        return len(job.parents), -job.ranks

    asked = list(jobs)
    if len({job.ranks for job in asked}) == 1:  # one pool, in which a parent's children follow it at once
        return [asked]
    return [list(group) for _, group in groupby(sorted(asked, key=turn), key=turn)]
