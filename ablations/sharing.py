"""Small trials share a GPU, each in a process of its own: as many as their measured memory leaves room for.

A worker says how much of its GPU was free when it came and, once a trial was evaluated, what that one takes; that is
kept beside the paces. One whose need is not known yet is taken for half the GPU, and no second one joins it before it
has told. Where one keeps the GPU busy it has it alone; so has a group that is trained as one, and what ran out of
memory beside others. A step in smaller pieces, as memory made it, is the same to rounding (vitcore.memory.shrinking).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from ablations import paces
from ablations.jobs import Job
from ablations.paces import Device, Json
from results import store

SHARE = 0.9  # of the memory that is free
UNKNOWN = 0.5  # of it, for a trial whose need nobody has measured, or
AMPLY = 2.0  # times the most that one beside it takes, where that is more: arms of a study are of a size
IDLE = 2**29  # bytes that a process without work takes: CUDA's context
BUSY = 4e12  # FLOPs of a train step that no device is through with before its kernels are started


class Sharing:
    """What is known of GPUs, by their names in CUDA_VISIBLE_DEVICES, and of trials, by `paces.memory_key`."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.device: Device | None = None
        self.free: dict[str, int] = {}  # bytes before anything of ours ran
        self.needs: dict[str, Json] = {}  # bytes of a process at their peak, FLOPs of a step
        self.raised: Counter[str] = Counter()  # how often such trials ran out of memory beside others, in this run
        self.keys: dict[str, str] = {}  # by trial: the same few are asked about again and again

    def meet(self, gpu: str, device: str, free: int) -> None:
        """A worker's first words. Those of the first on a GPU count: later ones see the memory of others of ours."""
        self.free.setdefault(gpu, free)
        if self.device is None:
            self.device = Device(gpu=True, name=device)
            self.needs = paces.measured(self.runs, device, paces.MEMORY) | self.needs

    def learn(self, job: Job, took: int, flops: float) -> None:
        """Of a trial that had a process of its own; the most that any of its like took is kept."""
        key = self.key(job)
        if self.device is None or took <= self.needs.get(key, {"bytes": 0})["bytes"]:
            return
        self.needs[key] = {"bytes": took, "flops": flops, "arm": job.arm, "when": store.now()}
        paces.write(self.runs, self.device, paces.MEMORY, {key: self.needs[key]})

    def crowded(self, job: Job) -> None:
        """One ran out of memory beside others: in this run its like is taken for twice as large."""
        self.raised[self.key(job)] += 1

    def key(self, job: Job) -> str:
        """What trials have in common that take the same."""
        if job.id not in self.keys:
            self.keys[job.id] = paces.memory_key(job.config, job.evals)
        return self.keys[job.id]

    def knows(self, job: Job) -> bool:
        return self.key(job) in self.needs

    def admits(self, gpu: str, there: Sequence[Sequence[Job]], more: Sequence[Job], idle: int = 0) -> bool:
        """Whether a process for `more` (several: as one) may begin beside those that are `there`.

        idle: how many others of ours there are on it, without work.
        """
        if not there:
            return True
        if gpu not in self.free or any(len(jobs) > 1 for jobs in [*there, more]):
            return False
        keys = [self.key(job) for jobs in [*there, more] for job in jobs]
        known = [key for key in keys if key in self.needs]
        if len(keys) - len(known) > 1 or any(self.needs[key]["flops"] > BUSY for key in known):
            return False
        peaks = [self.needs[key]["bytes"] * 2.0 ** self.raised[key] for key in known]
        if len(known) < len(keys):
            peaks.append(max(UNKNOWN * self.free[gpu], AMPLY * max(peaks, default=0)))
        return fit(self.free[gpu], [*peaks, *[IDLE] * idle])


def fit(free: float, peaks: Iterable[float]) -> bool:
    """Whether processes that take so many bytes at their peaks go together: of equal ones floor(SHARE free / peak)."""
    return sum(peaks) <= SHARE * free
