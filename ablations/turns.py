"""The trials that wait, and which of them a place gets next: in order, as far as the memory of a GPU admits them."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from ablations import fusing
from ablations.jobs import Job
from ablations.sharing import Sharing
from ablations.slots import Slot

Asked = Callable[[Job], bool]


class Turns:
    """Who goes next, beside whom, and with whom as one. fuse: as `fusing.asked` has it."""

    def __init__(self, jobs: Sequence[Job], slots: list[Slot], runs: Path, fuse: int) -> None:
        self.waiting: deque[Job] = deque(jobs)
        self.rank = {job.id: place for place, job in enumerate(jobs)}
        self.slots = slots
        self.sharing = Sharing(runs)
        self.fuse = fusing.most(fuse, gpu=any(slot.gpu for slot in slots))
        self.kins: dict[str, str] = {}  # by trial
        self.apart: set[str] = set()  # kin that does not pay as one, or died so
        self.alone: set[str] = set()  # trials that failed among others: the next time they go alone
        self.secluded: set[str] = set()  # trials that ran out of memory beside others: they get a GPU to themselves
        self.overtaken: Counter[str] = Counter()  # how often others went before the first that waits, by trial

    def next(self, slot: Slot, may_begin: Asked) -> Job | None:
        """The first waiting trial that there is room for and that may begin, no longer waiting.

        may_begin: asks, and takes one that may not out of those that wait.
        """
        while (job := self.candidate(slot, self.beside(slot), self.idle(slot))) is not None:
            first = self.waiting[0]
            if job is not first and not may_begin(first):
                continue  # overtaken is who could have gone
            if may_begin(job):
                self.waiting.remove(job)
                self.overtaken[first.id] += job is not first
                del self.overtaken[job.id]
                return job
        return None

    def company(self, slot: Slot, lead: Job, ready: Asked) -> list[Job]:
        """Those that may be trained with `lead` as one, and are ready to begin, no longer waiting."""
        if self.beside(slot) or lead.id in self.alone or self.kin(lead) in self.apart:
            return []
        places = len({slot.gpu or slot.number for slot in self.slots})
        waiting = [job for job in self.waiting if job.id not in self.alone]
        found = [job for job in fusing.company(lead, waiting, places, self.fuse) if ready(job)]
        for job in found:
            self.waiting.remove(job)
        return found

    def wanted(self, slot: Slot) -> bool:
        """Whether a worker here would be handed a trial, once all that are without any have theirs.

        The first of a GPU tells how much memory there is, and takes its work, before others are started.
        """
        there, idle, taken = self.beside(slot), self.idle(slot), list[Job]()
        if not there:
            return bool(self.waiting) and not idle
        if len(self.waiting) <= sum(one.idle for one in self.slots):
            return False
        while len(taken) <= idle:
            others = max(0, idle - len(taken) - 1)
            if (job := self.candidate(slot, [*there, *([one] for one in taken)], others, taken)) is None:
                return False
            taken.append(job)
        return True

    def put_back(self, job: Job) -> None:
        """To where it waited before."""
        mine = self.rank[job.id]
        later = (place for place, one in enumerate(self.waiting) if self.rank[one.id] > mine)
        self.waiting.insert(next(later, len(self.waiting)), job)

    def shared(self, slot: Slot) -> bool:
        """Whether others may use its GPU while it is at work."""
        return bool(self.neighbours(slot)) and not any(job.id in self.secluded for job in slot.jobs)

    def part(self, job: Job) -> None:
        """Its kin is not trained as one any more."""
        self.apart.add(self.kin(job))

    def seclude(self, job: Job) -> None:
        """It ran out of memory where others may have taken it: it goes again, on a GPU of its own."""
        self.secluded.add(job.id)
        self.alone.add(job.id)
        self.sharing.crowded(job)
        self.put_back(job)

    def candidate(self, slot: Slot, there: Sequence[Sequence[Job]], idle: int, taken: Sequence[Job] = ()) -> Job | None:
        """The first that waits, but for those `taken`, which the memory of a GPU admits beside those `there`.

        idle: how many other processes of ours are on it, without work.
        """
        if any(job.id in self.secluded for jobs in there for job in jobs):
            return None
        refused = set[str]()  # of thousands that wait few differ in what they take
        for job in islice(self.waiting, 1 if self.drains(slot) else None):
            kind = self.sharing.key(job) if there else ""
            if kind in refused or job in taken or (there and job.id in self.secluded):
                continue
            if not there or (self.sharing.admits(slot.gpu, there, [job], idle) and not self.may_fuse(job)):
                return job
            refused.add(kind)
        return None

    def drains(self, slot: Slot) -> bool:
        """Whether its GPU waits until the first of the waiting fits, which was overtaken as often as there are places.

        That is the GPU with the fewest at work; the others go on.
        """
        if not self.waiting or self.overtaken[self.waiting[0].id] < max(1, len(self.slots)):
            return False
        at_work = Counter({one.gpu: 0 for one in self.slots})
        at_work.update(one.gpu for one in self.slots if one.jobs)
        return slot.gpu == min(at_work, key=at_work.__getitem__)

    def may_fuse(self, job: Job) -> bool:
        """Whether a trial of which nothing is known yet had better have a GPU, for there it may be trained as one.

        Not once that did not pay: the others of a study are like it.
        """
        if self.fuse < 2 or self.apart or job.id in self.alone or self.sharing.knows(job):
            return False
        kin = (one for one in self.waiting if one is not job and self.kin(one) == self.kin(job))
        return fusing.sociable(job.config) and any(kin)

    def kin(self, job: Job) -> str:
        if job.id not in self.kins:
            self.kins[job.id] = fusing.kin(job.config)
        return self.kins[job.id]

    def neighbours(self, slot: Slot) -> list[Slot]:
        """The others of its GPU; a core is a slot's own."""
        return [one for one in self.slots if one is not slot and slot.gpu and one.gpu == slot.gpu]

    def beside(self, slot: Slot) -> list[list[Job]]:
        """What is at work on its GPU already."""
        return [one.jobs for one in self.neighbours(slot) if one.jobs]

    def idle(self, slot: Slot) -> int:
        """How many other processes on its GPU have no work, or begin."""
        return sum(one.idle for one in self.neighbours(slot))
