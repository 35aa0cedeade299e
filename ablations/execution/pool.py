"""The pool of workers as a state machine: the states of workers and trials, and the transitions between them.

    worker   ABSENT --start--> STARTING --Ready--> IDLE --job--> BUSY --Ended--> IDLE, or LEAVING
             any --Exited--> ABSENT; a slot whose workers do not start is removed
    trial    waits --job--> runs in a slot --Ended--> ends, or waits if it continues later
             runs --Exited--> waits; ends if too many workers died on it
             waits --the disk says that it is over, failed or blocked, or that nothing trains its parent--> ends

A pool that pulls takes its trials from a list that other pools share, and leaves to them what they have claimed.

ablations.execution.runner calls `tick` as time passes, `handle` with each message of a worker, and `stop` at a signal.
"""

import os
import queue
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice
from typing import Literal, Protocol

from ablations.execution import messages, retry_rules
from ablations.execution.launch import Place, WorkerProcess
from ablations.jobs import Job, all_on_cpu
from ablations.machine import ended_by, oom_kills
from results import store
from results.store import lease
from results.store.standing import Kind, Standing, Standings

CRASHED_STARTS = 3
KILLED_STARTS = 20
DEATHS = 5  # workers that die on one trial before its attempt begins; later deaths are counted on disk
HELD_SECONDS = 2.0
PULL_SECONDS = 60.0  # between looks of a pool that pulls at a trial that another pool holds
PARENT_SECONDS = 10.0  # between looks of such a pool at a trial whose parent another pool trains
PATIENCE_SECONDS = 600.0  # how long such a pool waits for parents while it trains nothing
SILENT_SECONDS = 300.0  # heartbeats begin once PyTorch is imported, which may take minutes
LONGEST_LOOK = 1.0  # maximum silence counted per check, because this process itself may have been suspended


WorkerState = Enum("WorkerState", ["ABSENT", "STARTING", "IDLE", "BUSY", "LEAVING"])  # LEAVING: takes no further job


class Display(Protocol):
    def show_running(self, slot: int, job: Job, progress: messages.Progress | None) -> None: ...
    def show_compiling(self, slot: int, job: Job) -> None: ...
    def show_idle(self, slot: int) -> None: ...
    def show_end(self, job: Job, end: messages.Ended) -> None: ...
    def say(self, text: str) -> None: ...


@dataclass
class RunSummary:
    done: list[str] = field(default_factory=list)  # ids of the finished and diverged trials
    failed: dict[str, str] = field(default_factory=dict)  # id -> cause, as in `blocked` and `interrupted`
    blocked: dict[str, str] = field(default_factory=dict)  # trials whose parent failed or diverged
    interrupted: dict[str, str] = field(default_factory=dict)  # trials that the same command continues
    left_out: list[str] = field(default_factory=list)  # trials that a race left out
    left: int = 0  # trials that a pool that pulls did not take, or left to the pools that hold them
    stopped: bool = False  # whether the run was stopped on request

    def add(self, job: Job, end: messages.Ended) -> None:
        if end.kind == "failed":
            self.failed[job.id] = end.cause
        elif end.kind == "blocked":
            self.blocked[job.id] = end.cause
        elif end.kind == "left out":
            self.left_out.append(job.id)
        else:
            self.done.append(job.id)


@dataclass
class PoolTrial:
    job: Job
    due: float = 0.0  # the earliest start, in seconds of the monotonic clock
    deaths: int = 0  # workers that died on the trial since its last attempt began
    elsewhere: Literal["", "trial", "parent"] = ""  # whether another pool trains the trial or its parent

    def look_again(self) -> None:
        self.due = 0.0
        self.elsewhere = ""


@dataclass
class Slot:
    number: int
    environment: dict[str, str]  # environment variables for this slot's worker only
    state: WorkerState = WorkerState.ABSENT
    worker: WorkerProcess | None = None
    trial: PoolTrial | None = None  # what the worker trains while BUSY
    silent: float = 0.0  # seconds since the worker's last message
    crashed_starts: int = 0  # consecutive starts that ended with an exit status
    killed_starts: int = 0  # consecutive starts that ended with a signal
    last_line: str = ""  # on the worker's standard error

    def vacate(self) -> None:
        self.worker = None
        self.trial = None
        self.state = WorkerState.ABSENT
        self.last_line = ""


@dataclass
class Pool:
    """A pool of workers for some jobs: its slots, its trials and their transitions.

    on_over: called with each job that ends without being interrupted. pulls: whether the pool ends once others hold all
    trials that are left, and records only its own. left_out: returns id -> reason of trials that races leave out.
    """

    jobs: Sequence[Job]
    place: Place
    slots: list[Slot]
    display: Display
    on_over: Callable[[Job], None]
    summary: RunSummary
    pulls: bool = False
    left_out: Callable[[], Mapping[str, str]] = dict

    def __post_init__(self) -> None:
        self.trials = {job.id: PoolTrial(job) for job in self.jobs}  # not ended, in the order in which they wait
        self.events: queue.SimpleQueue[tuple[WorkerProcess, messages.Heard]] = queue.SimpleQueue()
        self.warned: set[str] = set()
        self.memory_kills = oom_kills()
        self.looked = self.worked = time.monotonic()
        self.watch = lease.Watch()
        self.is_closed = False

    @property
    def workers(self) -> list[WorkerProcess]:
        return [slot.worker for slot in self.slots if slot.worker is not None]

    @property
    def has_work(self) -> bool:
        return bool(self.trials) and not self.summary.stopped and not self.is_exhausted

    @property
    def is_exhausted(self) -> bool:
        """Whether a pool that pulls trains nothing, and has nothing left to take or to wait for."""
        if not self.pulls or self.slots_in_state(WorkerState.BUSY):
            return False
        if self.is_closed:
            return True
        elsewhere = {trial.elsewhere for trial in self.trials.values()}
        if time.monotonic() - self.worked > PATIENCE_SECONDS:
            elsewhere.discard("parent")
        return elsewhere <= {"trial"}

    def close(self) -> None:
        self.is_closed = True

    def stop(self) -> None:
        self.summary.stopped = True

    # -- time passes ---------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Give trials to idle workers, start workers for the remaining trials, and kill silent workers."""
        now = time.monotonic()
        absent = self.slots_in_state(WorkerState.ABSENT)
        starting = len(self.slots_in_state(WorkerState.STARTING))
        ready = self.ready_trials(now)
        if self.slots_in_state(WorkerState.BUSY):
            self.worked = now
        for slot in self.slots_in_state(WorkerState.IDLE):
            trial = next(ready, None)
            if trial is not None:
                assert slot.worker is not None
                slot.state = WorkerState.BUSY
                slot.trial = trial
                slot.worker.send(trial.job)
        if absent:
            waiting = list(islice(ready, starting + len(absent)))
            for slot in absent[: max(0, len(waiting) - starting)]:
                slot.worker = self.start(slot)
                slot.state = WorkerState.STARTING
                slot.silent = 0.0
        self.kill_silent(now)

    def start(self, slot: Slot) -> WorkerProcess:
        needs_gpu = self.place.gpu and not all_on_cpu(self.jobs)
        place = replace(self.place, gpu=needs_gpu, trainable=self.jobs[0].trainable)
        return WorkerProcess(place, slot.environment, self.events)

    def slots_in_state(self, *states: WorkerState) -> list[Slot]:
        return [slot for slot in self.slots if slot.state in states]

    def ready_trials(self, now: float) -> Iterator[PoolTrial]:
        """Yield the waiting trials that may begin. Trials between them end, wait or are interrupted."""
        if self.is_closed:
            return
        left_out = self.left_out()
        running = {slot.trial.job.id for slot in self.slots if slot.trial is not None}
        due = [trial for trial in self.trials.values() if trial.due <= now and trial.job.id not in running]
        for trial in due:
            standing = self.standing(trial)
            if trial.job.id in left_out:
                self.leave_out(trial, left_out[trial.job.id])
            elif not standing.is_pending:
                self.end(trial, end_elsewhere(standing))
            elif self.pulls and (self.is_held(standing) or self.is_for_other_nodes(trial)):
                self.wait(trial, PULL_SECONDS, "trial")
            elif standing.start.kind is Kind.READY:
                yield trial
            elif standing.kind is Kind.RUNNING or standing.start.running or standing.start.open[0] in self.trials:
                self.wait(trial, PARENT_SECONDS if self.pulls else HELD_SECONDS, "parent")
            else:
                self.interrupt(trial, standing.start.why)

    def standing(self, trial: PoolTrial) -> Standing:
        return trial.job.standing(Standings(self.place.runs, self.place.code))

    def is_held(self, standing: Standing) -> bool:
        attempt = standing.state.attempt
        return standing.kind is Kind.RUNNING and attempt is not None and not self.watch.is_dead(attempt)

    def is_for_other_nodes(self, trial: PoolTrial) -> bool:
        """Return whether machine faults on this node ended the trial's newest attempt and an earlier one."""
        node = os.environ.get("SLURMD_NODENAME")
        if not node:
            return False
        on_disk = store.trial(self.place.runs, trial.job.id)
        return retry_rules.last_faulty_node(on_disk, self.place.code) == node

    def kill_silent(self, now: float) -> None:
        """Kill workers that have sent no message for SILENT_SECONDS. Their exit frees their trials."""
        passed = min(now - self.looked, LONGEST_LOOK)
        self.looked = now
        for slot in self.slots:
            slot.silent += passed
            if slot.worker is not None and slot.silent > SILENT_SECONDS:
                slot.silent = 0.0
                self.display.say(f"worker {slot.number + 1} sent no heartbeat for {SILENT_SECONDS:.0f} s: killed")
                slot.worker.process.kill()

    # -- events of workers ---------------------------------------------------------------------------------------------

    def handle(self, worker: WorkerProcess, event: messages.Heard) -> None:
        """Update slots and trials for a worker's event. Raises ValueError if no slot is left."""
        slot = next((slot for slot in self.slots if slot.worker is worker), None)
        if slot is None:
            return
        if not isinstance(event, messages.Said):  # a child process of the worker may write this line
            slot.silent = 0.0
        match event:
            case messages.Ready():
                slot.state = WorkerState.IDLE
                slot.crashed_starts = 0
                slot.killed_starts = 0
            case messages.Said():
                if slot.state in (WorkerState.IDLE, WorkerState.BUSY):
                    self.display.say(event.line)
                slot.last_line = event.line  # of a traceback, which it sums up
            case messages.Note() if event.text not in self.warned:
                self.warned.add(event.text)
                self.display.say(event.text)
            case messages.Exited():
                self.free(slot, event.code)
        trial = slot.trial
        if trial is None:
            return
        match event:
            case messages.Started():
                trial.deaths = 0
                self.display.show_running(slot.number, trial.job, None)
            case messages.Compiling():
                self.display.show_compiling(slot.number, trial.job)
            case messages.Progress():
                self.display.show_running(slot.number, trial.job, event)
            case messages.Ended():
                slot.state = WorkerState.LEAVING if event.leaving else WorkerState.IDLE
                slot.trial = None
                self.display.show_idle(slot.number)
                self.settle(trial, event)
                if self.pulls and event.kind != "held" and not self.slots_in_state(WorkerState.BUSY):
                    self.look_again()

    def free(self, slot: Slot, code: int) -> None:
        """Free the slot of a worker that has exited with `code`. Make its trial wait, or interrupt it."""
        assert slot.worker is not None
        slot.worker.close()
        trial = slot.trial
        last_line = slot.last_line
        had_started = slot.state is not WorkerState.STARTING
        slot.vacate()
        self.display.show_idle(slot.number)
        if self.summary.stopped:
            return
        how = self.exit_text(code)
        if trial is not None:
            self.count_death(trial, how)
        elif not had_started and last_line and code > 0:
            self.count_failed_start(slot, code, last_line)
        elif not had_started:
            self.count_failed_start(slot, code, how)

    def exit_text(self, code: int) -> str:
        """Return how a worker ended. The kernel's kills for lack of memory since the last call are counted."""
        how = ended_by(code)
        kills_before = self.memory_kills
        if code == -signal.SIGKILL:
            self.memory_kills = oom_kills()
        if self.memory_kills > kills_before:
            how += ": out of memory"
        return how

    def count_failed_start(self, slot: Slot, code: int, why: str) -> None:
        slot.killed_starts += code < 0
        slot.crashed_starts += code >= 0
        if slot.crashed_starts < CRASHED_STARTS and slot.killed_starts < KILLED_STARTS:
            return
        self.slots.remove(slot)
        if not self.slots:
            raise ValueError(f"workers do not start: {why}")
        self.display.say(f"worker {slot.number + 1} does not start: {why}; {len(self.slots)} go on without it")

    def count_death(self, trial: PoolTrial, how: str) -> None:
        trial.deaths += 1
        if trial.deaths >= DEATHS:
            return self.interrupt(trial, f"its workers died {DEATHS} times before it began, the last of {how}")
        self.display.say(f"the worker of {trial.job.name} died ({how}); its trial is resumed")
        self.wait(trial)  # behind the others, as this trial may be the cause

    # -- transitions of trials -----------------------------------------------------------------------------------------

    def settle(self, trial: PoolTrial, end: messages.Ended) -> None:
        match end.kind:
            case "held" if self.pulls and self.standing(trial).kind is Kind.RUNNING:
                self.wait(trial, PULL_SECONDS, "trial")
            case "held":  # or its holder has died, and the worker must watch the lease for a minute to be sure
                self.wait(trial, HELD_SECONDS)
            case "stopped":
                self.wait(trial)
            case "again":
                when = f" in {end.pause:.0f} s" if end.pause else ""
                self.display.say(f"{trial.job.name}: {end.cause}; trying again{when}")
                self.wait(trial, end.pause)
            case "interrupted":
                self.interrupt(trial, end.cause)
            case _:
                self.end(trial, end)

    def wait(self, trial: PoolTrial, seconds: float = 0.0, elsewhere: Literal["", "trial", "parent"] = "") -> None:
        """Move a trial to the end of the queue, where it waits for at least `seconds`. elsewhere: as in PoolTrial."""
        trial.due = time.monotonic() + seconds
        trial.elsewhere = elsewhere
        self.trials[trial.job.id] = self.trials.pop(trial.job.id)

    def look_again(self) -> None:
        for trial in self.trials.values():
            if trial.elsewhere:
                trial.look_again()

    def interrupt(self, trial: PoolTrial, cause: str) -> None:
        """End a trial that cannot go on in this run; its checkpoints stay for the next run."""
        del self.trials[trial.job.id]
        self.summary.interrupted[trial.job.id] = cause
        self.display.say(f"{trial.job.name} interrupted: {cause}; what it saved stays")
        if self.pulls and len(self.summary.interrupted) > 1:  # this node or its disk is to blame
            self.close()

    def leave_out(self, trial: PoolTrial, why: str) -> None:
        text = f"{trial.job.arm} stopped {why}"
        if text not in self.warned:
            self.warned.add(text)
            self.display.say(text)
        self.end(trial, messages.Ended("left out", why, elsewhere=True))

    def end(self, trial: PoolTrial, end: messages.Ended) -> None:
        del self.trials[trial.job.id]
        if not (self.pulls and end.elsewhere):
            self.summary.add(trial.job, end)
        self.display.show_end(trial.job, end)
        if not self.has_work:  # the workers exit while `on_over` publishes the last study
            for worker in self.workers:
                worker.close()
        self.on_over(trial.job)
        for child in self.trials.values():
            if trial.job.id in child.job.parents:
                child.look_again()


def end_elsewhere(standing: Standing) -> messages.Ended:
    """Return the message for a trial that is over (finished or diverged), failed or blocked on disk."""
    if standing.is_over:
        return messages.Ended("finished", standing.why, elsewhere=True)
    if standing.kind is Kind.FAILED:
        return messages.Ended("failed", standing.why, elsewhere=True)
    return messages.Ended("blocked", standing.why, elsewhere=True)
