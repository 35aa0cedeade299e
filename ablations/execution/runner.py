"""Running trials on this machine: a pool of workers, by default one per core or per GPU.

What is done is decided by the disk alone. A worker that dies is replaced and its trial resumed; a trial that another
run holds is waited for; a failed trial stops no other.
"""

import math
import queue
import signal
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from ablations.execution import launch, messages
from ablations.execution.launch import Place, Process, close_stdin
from ablations.execution.machine import oom_kills
from ablations.execution.slots import Slot, all_on_cpu, group_by_ranks, make_slots
from ablations.planning.jobs import Job
from results import store
from results.store.standing import Kind, Standing, Standings, Start

PoolEvent = messages.Event | messages.Said | messages.Died
FAILED_STARTS = 3
KILLED_STARTS = 20
DEATHS = 5  # workers that die on one trial before its attempt begins; later deaths are counted on disk
HELD_SECONDS = 2.0
STOP_SECONDS = 60.0
SILENT_SECONDS = 300.0  # workers send a heartbeat every 5 s, once PyTorch is imported: minutes on a busy file system
LONGEST_LOOK = 1.0  # silence counted per check: this process itself may have been suspended
CALLED_OFF_SECONDS = 5.0  # between checks whether the run is called off


class Display(Protocol):
    """What shows the progress of the pool."""

    def running(self, slot: int, job: Job, step: int | None, accuracy: float | None) -> None:
        """Show a running trial. step: None until the first step is done."""

    def compiling(self, slot: int, job: Job) -> None:
        """The first step takes as long as the compiler."""

    def idle(self, slot: int) -> None: ...
    def over(self, job: Job, end: messages.Ended) -> None: ...
    def say(self, text: str) -> None: ...


@dataclass
class RunSummary:
    """How the trials of a run ended: ids of those done, id -> cause of the others."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)  # their parent failed or diverged
    interrupted: dict[str, str] = field(default_factory=dict)  # neither: the same command goes on
    stopped: bool = False

    def add(self, job: Job, end: messages.Ended) -> None:
        """Record a trial that is finished, diverged, failed or blocked."""
        if end.kind in ("failed", "blocked"):
            (self.failed if end.kind == "failed" else self.blocked)[job.id] = end.cause
        else:
            self.done.append(job.id)


def end_elsewhere(found: Standing) -> messages.Ended:
    """Return the event of a trial that another run, or an earlier one, has settled."""
    if found.over:
        return messages.Ended("finished", found.why, elsewhere=True)
    return messages.Ended("failed" if found.kind is Kind.FAILED else "blocked", found.why, elsewhere=True)


# -- the pool ----------------------------------------------------------------------------------------------------------


class Pool:
    """The workers, the jobs that wait for them, and the events that workers send."""

    def __init__(self, jobs: Sequence[Job], place: Place, slots: list[Slot], display: Display) -> None:
        self.place = place
        self.on_cpu = all_on_cpu(jobs)
        self.slots = slots
        self.display = display
        self.waiting: deque[Job] = deque(jobs)
        self.held: dict[str, tuple[float, Job]] = {}  # id -> when to look again
        self.events: queue.Queue[tuple[Slot, Process, PoolEvent]] = queue.Queue()
        self.tally = RunSummary()
        self.warned: set[str] = set()
        self.deaths: Counter[str] = Counter()  # trial id -> workers that died before its attempt began
        self.memory_kills = oom_kills()
        self.stopping = False
        self.looked = time.monotonic()

    def run(
        self, on_over: Callable[[Job], None], deadline: float, called_off: Callable[[], bool] = lambda: False
    ) -> RunSummary:
        """Run until no job is left, a signal asks to stop, the deadline passes or the run is called off."""
        self.on_over = on_over
        asked = time.monotonic()
        with self.signals():
            try:
                while not self.stopping and (self.waiting or self.held or any(slot.job for slot in self.slots)):
                    self.stopping = self.stopping or time.monotonic() > deadline
                    if time.monotonic() - asked > CALLED_OFF_SECONDS:
                        asked, self.stopping = time.monotonic(), self.stopping or called_off()
                    self.dispatch()
                    self.listen(0.2)
                    self.end_silent()
            finally:
                self.dismiss()
        self.tally.stopped = self.stopping
        return self.tally

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Let Ctrl-C and SIGTERM set a flag; restore the previous handlers afterwards."""

        def stop(*_: object) -> None:
            self.stopping = True

        saved = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in saved.items():
                signal.signal(number, handler)

    def dispatch(self) -> None:
        """Give waiting jobs to free workers, and start workers for those left."""
        now = time.monotonic()
        for key, (due, job) in list(self.held.items()):
            if due <= now:
                del self.held[key]
                self.waiting.append(job)
        for slot in self.slots:
            if slot.ready and slot.job is None and (next_job := self.next_job()) is not None:
                slot.job = next_job
                self.send(slot, next_job)
        for slot in self.slots:
            if slot.process is None and len(self.waiting) > sum(one.idle for one in self.slots):
                self.start(slot)

    def next_job(self) -> Job | None:
        """Take the first waiting trial that may begin; settle those before it."""
        while self.waiting:
            if self.may_begin(job := self.waiting.popleft()):
                return job
        return None

    def may_begin(self, job: Job) -> bool:
        """Whether a trial is still to do and its parent has finished; if not, settle or hold it.

        Another run may have finished it in the meantime.
        """
        found = job.standing(Standings(self.place.runs, self.place.code))
        if not found.to_do:
            self.finish(job, end_elsewhere(found))
            return False
        if found.start.kind is not Kind.READY:
            self.await_parent(job, found.start)
        return found.start.kind is Kind.READY

    def await_parent(self, job: Job, start: Start) -> None:
        """Hold a trial while this or another run trains its parent; else interrupt it."""
        mine = [
            *self.waiting,
            *(held for _, held in self.held.values()),
            *(slot.job for slot in self.slots if slot.job is not None),
        ]
        if start.running or any(one.id == start.open[0] for one in mine):
            self.hold(job, HELD_SECONDS)
        else:
            self.interrupt(job, start.why)

    def start(self, slot: Slot) -> None:
        slot.silent = 0.0
        slot.process = launch.start_worker(self.place, slot.environment, self.on_cpu)
        threading.Thread(target=self.read, args=(slot, slot.process), daemon=True).start()

    def read(self, slot: Slot, process: Process) -> None:
        """Turn a worker's lines, and its end, into events (one thread per worker)."""
        assert process.stdout is not None
        errors = threading.Thread(target=self.read_errors, args=(slot, process), daemon=True)
        errors.start()
        for line in process.stdout:
            if line.endswith("\n"):  # a killed worker's last line may be torn
                self.events.put((slot, process, messages.read_event(line)))
        process.stdout.close()
        errors.join(1.0)  # not longer: a process of the worker's own may keep the pipe open
        self.events.put((slot, process, messages.Died(process.wait())))

    def read_errors(self, slot: Slot, process: Process) -> None:
        """Turn the lines of a worker's standard error into events (one thread per worker)."""
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                if line.strip():
                    self.events.put((slot, process, messages.Said(line.rstrip())))

    def send(self, slot: Slot, job: Job) -> None:
        assert slot.process is not None
        assert slot.process.stdin is not None
        with suppress(OSError):  # it died: the event is on its way
            slot.process.stdin.write(messages.job_line(job))
            slot.process.stdin.flush()

    def listen(self, seconds: float) -> None:
        """Handle the next event, if one arrives in time."""
        try:
            slot, process, event = self.events.get(timeout=seconds)
        except queue.Empty:
            return
        if process is slot.process:
            self.handle(slot, event)

    def handle(self, slot: Slot, event: PoolEvent) -> None:
        """Update the slot and the display for an event of its worker."""
        job = slot.job
        if not isinstance(event, messages.Said):  # a child process of the worker may write it too
            slot.silent = 0.0
        match event:
            case messages.Ready():
                slot.ready, slot.failed_starts = True, 0
            case messages.Said():
                self.hear(slot, event.line)
            case messages.Note():
                self.warn_once(event.text)
            case messages.Died():
                self.bury(slot, event.code)
            case messages.Progress() if job is not None:
                self.display.running(slot.number, job, event.step, event.accuracy)
            case messages.Compiling() if job is not None:
                self.display.compiling(slot.number, job)
            case messages.Waiting() if job is not None:
                self.warn_once(f"{job.arm} seed {job.config['seed']} waits: {event.cause.lower()}")
            case messages.Started() if job is not None:
                del self.deaths[job.id]
                self.display.running(slot.number, job, None, None)
            case messages.Ended() if job is not None:
                slot.job = None
                slot.ready = slot.ready and not event.leaving
                self.display.idle(slot.number)
                self.settle(job, event)

    def end_silent(self) -> None:
        """Kill workers that have been silent for too long, as stopped processes are. Their end frees the trial."""
        now = time.monotonic()
        passed, self.looked = min(now - self.looked, LONGEST_LOOK), now
        for slot in self.slots:
            if slot.process is None:
                continue
            slot.silent += passed
            if slot.silent > SILENT_SECONDS:
                slot.silent = 0.0
                self.display.say(f"worker {slot.number + 1} sent no heartbeat for {SILENT_SECONDS:.0f} s: killed")
                slot.process.kill()

    def hear(self, slot: Slot, line: str) -> None:
        """Show a line of standard error; of a starting worker keep the last alone: it sums up a traceback."""
        if slot.ready:
            self.display.say(line)
        slot.said = line

    def warn_once(self, text: str) -> None:
        """Show a warning unless it was shown before."""
        if text not in self.warned:
            self.warned.add(text)
            self.display.say(text)

    def settle(self, job: Job, end: messages.Ended) -> None:
        """Act on the end of a worker's job."""
        match end.kind:
            case "held":
                self.hold(job, HELD_SECONDS)
            case "stopped":
                self.waiting.append(job)
            case "again":
                when = f" in {pause:.0f} s" if (pause := end.pause) else ""
                self.display.say(f"{job.arm} seed {job.config['seed']}: {end.cause}; trying again{when}")
                self.hold(job, pause)
            case "interrupted":
                self.interrupt(job, end.cause)
            case _:
                self.finish(job, end)

    def hold(self, job: Job, seconds: float) -> None:
        """Let a job wait without a worker for a while."""
        self.held[job.id] = (time.monotonic() + seconds, job)

    def interrupt(self, job: Job, cause: str) -> None:
        """Leave a trial as it is, since it cannot go on here; the others go on."""
        self.tally.interrupted[job.id] = cause
        self.display.say(f"{job.arm} seed {job.config['seed']} interrupted: {cause}; what it saved stays")

    def finish(self, job: Job, end: messages.Ended) -> None:
        """Record how a job ended, and let its children begin."""
        self.tally.add(job, end)
        self.display.over(job, end)
        self.on_over(job)
        for key, (_, waiting) in list(self.held.items()):
            if job.id in waiting.parents:  # check it now
                self.held[key] = (0.0, waiting)

    def bury(self, slot: Slot, code: int) -> None:
        """Free the slot of a worker that died, and resume or give up its trial."""
        job, started = slot.job, slot.ready
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
        if code == -signal.SIGKILL and (kills := oom_kills()) > self.memory_kills:
            self.memory_kills, how = kills, f"{how}: out of memory"
        assert slot.process is not None
        close_stdin(slot.process)
        slot.process, slot.job, slot.ready = None, None, False
        self.display.idle(slot.number)
        if not started and code != 0 and not self.stopping:
            self.count_failed_start(slot, code, slot.said if slot.said and code > 0 else how)
        if job is not None and not self.stopping:
            self.count_death(job, how)
        slot.said = ""

    def count_failed_start(self, slot: Slot, code: int, why: str) -> None:
        """Give up a slot whose workers do not start. Raises ValueError if it was the last slot."""
        slot.failed_starts += 1
        if slot.failed_starts < (FAILED_STARTS if code > 0 else KILLED_STARTS):
            return
        self.slots.remove(slot)
        if not self.slots:
            raise ValueError(f"workers do not start: {why}")
        self.display.say(f"worker {slot.number + 1} does not start: {why}; {len(self.slots)} go on without it")

    def count_death(self, job: Job, how: str) -> None:
        """Queue the trial behind the others: it may be what kills workers."""
        self.deaths[job.id] += 1
        if self.deaths[job.id] >= DEATHS:
            return self.interrupt(job, f"its workers died {DEATHS} times before it began, the last of {how}")
        self.display.say(f"the worker of {job.arm} seed {job.config['seed']} died ({how}); its trial is resumed")
        self.waiting.append(job)

    def dismiss(self) -> None:
        """Stop every worker at its next step with a checkpoint; kill it after a minute."""
        alive = [slot.process for slot in self.slots if slot.process is not None]
        for process in alive:
            process.terminate()  # idle workers too: none is busy unless the run stops early
            close_stdin(process)
        deadline = time.monotonic() + STOP_SECONDS
        for process in alive:
            try:
                process.wait(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run(
    jobs: Sequence[Job],
    place: Place,
    display: Display,
    workers: int | None = None,
    on_over: Callable[[Job], None] = lambda job: None,
    deadline: float = math.inf,
    called_off: Callable[[], bool] = lambda: False,
) -> RunSummary:
    """Run all jobs that are not over; return how all of them ended. on_over: called after each.

    At the deadline (monotonic clock, seconds), and when called_off() is true, running trials stop with a checkpoint.
    Raises store.NewerSchema if a newer version wrote a trial; ValueError if no worker starts.
    """
    todo, settled = [], RunSummary()
    for job in jobs:
        found = job.standing(Standings(place.runs, place.code))
        if found.to_do:
            todo.append(job)
            continue
        settled.add(job, end := end_elsewhere(found))
        if found.over:
            store.trial(place.runs, job.id, place.checkpoints).sweep()
        else:
            display.over(job, end)
        on_over(job)
    pools = [(group, make_slots(group, workers, place.trials_per_gpu)) for group in group_by_ranks(todo)]
    for group, places in pools:
        if settled.stopped:
            break
        tally = Pool(group, place, places, display).run(on_over, deadline, called_off)
        settled.done += tally.done
        settled.failed |= tally.failed
        settled.blocked |= tally.blocked
        settled.interrupted |= tally.interrupted
        settled.stopped = tally.stopped
    return settled
