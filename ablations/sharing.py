"""Small trials share a GPU, each in a process of its own: as many as their measured memory leaves room for.

A worker says how much of its GPU was free when it came and, once a trial was evaluated, what that one takes; that is
kept beside the paces. One whose need is not known yet is taken for half the GPU, and no second one joins it before it
has told. Where one keeps the GPU busy it has it alone; so has a group that is trained as one.
"""

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
    """What is known of GPUs, by their names in CUDA_VISIBLE_DEVICES, and of trials, by pace."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.device: Device | None = None
        self.free: dict[str, int] = {}  # bytes before anything of ours ran
        self.needs: dict[str, Json] = {}  # bytes of a process at their peak, FLOPs of a step
        self.keys: dict[str, str] = {}  # by trial: the same few are asked about again and again

    def meet(self, gpu: str, device: str, free: int) -> None:
        """A worker's first words. Those of the first on a GPU count: later ones see the memory of others of ours."""
        self.free.setdefault(gpu, free)
        if self.device is None:
            self.device = Device(gpu=True, name=device)
            self.needs = paces.measured(self.runs, device, paces.MEMORY) | self.needs

    def learn(self, job: Job, took: int, flops: float) -> None:
        """Of a trial that had a process of its own; the most that any of its pace took is kept."""
        key = self.key(job)
        if self.device is None or took <= self.needs.get(key, {"bytes": 0})["bytes"]:
            return
        self.needs[key] = {"bytes": took, "flops": flops, "arm": job.arm, "when": store.now()}
        paces.write(self.runs, self.device, paces.MEMORY, {key: self.needs[key]})

    def key(self, job: Job) -> str:
        """What trials have in common that take the same."""
        if job.id not in self.keys:
            self.keys[job.id] = paces.key(job.config)
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
        needs = [self.needs.get(self.key(job)) for jobs in [*there, more] for job in jobs]
        known = [need for need in needs if need is not None]
        if len(needs) - len(known) > 1 or any(need["flops"] > BUSY for need in known):
            return False
        peaks = [need["bytes"] for need in known]
        if len(known) < len(needs):
            peaks.append(max(UNKNOWN * self.free[gpu], AMPLY * max(peaks, default=0)))
        return fit(self.free[gpu], [*peaks, *[IDLE] * idle])


def fit(free: float, peaks: Iterable[float]) -> bool:
    """Whether processes that take so many bytes at their peaks go together: of equal ones floor(SHARE free / peak)."""
    return sum(peaks) <= SHARE * free
