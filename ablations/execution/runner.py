"""Run trials on this machine until they are over: a bounded pool of workers, by default one a core or one a GPU.

The disk decides what is done; the runner only sees to it that somebody works. A worker that dies is replaced and its
trial resumed; trials that another run holds are waited for; a failed trial stops no other.
"""

import json
import math
import queue
import signal
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ablations.execution import launch
from ablations.execution.launch import Place, Process, hang_up
from ablations.execution.machine import memory_kills
from ablations.execution.slots import Slot, by_ranks, on_cpu, slots
from ablations.planning.jobs import Job
from results import store
from results.store import dependencies, evals

Json = dict[str, Any]
FAILED_STARTS = 3
KILLED_STARTS = 20
DEATHS = 5  # of workers over one trial before its attempt begins: what happens later is counted on disk
HELD_SECONDS = 2.0
STOP_SECONDS = 60.0
SILENT_SECONDS = 300.0  # a worker beats every 5 s, but before that imports PyTorch, for minutes from a busy file system
LONGEST_LOOK = 1.0  # of silence that one look may count: the run itself may have been stopped or suspended
CALLED_OFF_SECONDS = 5.0  # how often a run asks whether it is called off


class Display(Protocol):
    """Who watches the pool."""

    def running(self, slot: int, job: Job, step: int | None, accuracy: float | None) -> None:
        """step: None until the first step is done."""

    def idle(self, slot: int) -> None: ...
    def over(self, job: Job, event: str, detail: Json) -> None: ...
    def say(self, text: str) -> None: ...


@dataclass
class Tally:
    """How the trials asked for ended."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)  # what they start from failed or diverged
    interrupted: dict[str, str] = field(default_factory=dict)  # neither: the same command goes on
    stopped: bool = False


# -- what is left ------------------------------------------------------------------------------------------------------


def outcome(runs: Path, job: Job, code: str | None, look: dependencies.Look | None = None) -> tuple[str, str]:
    """('over' | 'failed' | 'blocked' | 'todo', why): a failure counts only against the code it happened under.

    look: what many that start from the same trials share.
    """
    trial = store.trial(runs, job.id)
    state = evals.state(trial, job.evals)
    if state.over:
        return "over", state.status
    failure = (evals.failure(trial, job.evals) or trial.failure()) if state.status == "failed" else None
    if dependencies.counts(failure, code):
        return "failed", state.reason
    start = dependencies.begin(runs, job.id, job.parents, look or dependencies.on_disk(runs, code))
    if start.kind == dependencies.BLOCKED:
        return "blocked", start.why
    return "todo", state.reason


# -- the pool ----------------------------------------------------------------------------------------------------------


class Pool:
    """Workers, the jobs that wait for them, and the events they send."""

    def __init__(self, jobs: Sequence[Job], place: Place, slots: list[Slot], display: Display) -> None:
        self.place = place
        self.on_cpu = on_cpu(jobs)
        self.slots = slots
        self.display = display
        self.waiting: deque[Job] = deque(jobs)
        self.held: dict[str, tuple[float, Job]] = {}  # id -> when to look again
        self.events: queue.Queue[tuple[Slot, Process, Json]] = queue.Queue()
        self.tally = Tally()
        self.warned: set[str] = set()
        self.deaths: Counter[str] = Counter()  # of workers, by trial: those that its attempts do not tell of
        self.memory_kills = memory_kills()
        self.stopping = False
        self.looked = time.monotonic()

    def run(
        self, on_over: Callable[[Job], None], deadline: float, called_off: Callable[[], bool] = lambda: False
    ) -> Tally:
        """Until nothing is left, until told to stop, until the deadline, or until it is called off."""
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
        """Ctrl-C and SIGTERM set a flag; the previous handlers come back."""

        def stop(*_: object) -> None:
            self.stopping = True

        saved = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in saved.items():
                signal.signal(number, handler)

    def dispatch(self) -> None:
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
        """Take the first waiting trial that may begin; settle those before it, which wait no longer."""
        while self.waiting:
            if self.may_begin(job := self.waiting.popleft()):
                return job
        return None

    def may_begin(self, job: Job) -> bool:
        """Whether a trial is still to do and its parent is there; if not, it is settled or held.

        Another run may have finished it meanwhile.
        """
        state, reason = outcome(self.place.runs, job, self.place.code)
        if state != "todo":
            kind = "finished" if state == "over" else state
            self.finish(job, kind, {"cause": reason, "elsewhere": True})
            return False
        start = dependencies.begin(
            self.place.runs, job.id, job.parents, dependencies.on_disk(self.place.runs, self.place.code)
        )
        if start.kind != dependencies.READY:
            self.await_parent(job, start)
        return start.kind == dependencies.READY

    def await_parent(self, job: Job, start: dependencies.Start) -> None:
        """Holds a trial while another one, or its own, run trains what it starts from; else it is left."""
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
        slot.process = launch.start(self.place, slot.environment, self.on_cpu)
        threading.Thread(target=self.read, args=(slot, slot.process), daemon=True).start()

    def read(self, slot: Slot, process: Process) -> None:
        """A thread a worker: its lines become events, and so does its end."""
        assert process.stdout is not None
        errors = threading.Thread(target=self.read_errors, args=(slot, process), daemon=True)
        errors.start()
        for line in process.stdout:
            if line.endswith("\n"):  # a killed worker's last line may be torn
                self.events.put((slot, process, json.loads(line)))
        process.stdout.close()
        errors.join(1.0)  # not longer: a process of the worker's own may keep the pipe open
        self.events.put((slot, process, {"event": "died", "code": process.wait()}))

    def read_errors(self, slot: Slot, process: Process) -> None:
        """A thread a worker: what it, and the libraries it loads, write to standard error."""
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                if line.strip():
                    self.events.put((slot, process, {"event": "said", "line": line.rstrip()}))

    def send(self, slot: Slot, job: Job) -> None:
        assert slot.process is not None
        assert slot.process.stdin is not None
        with suppress(OSError):  # it died: the event that says so is on its way
            slot.process.stdin.write(json.dumps(asdict(job)) + "\n")
            slot.process.stdin.flush()

    def listen(self, seconds: float) -> None:
        try:
            slot, process, event = self.events.get(timeout=seconds)
        except queue.Empty:
            return
        if process is slot.process:
            self.handle(slot, event)

    def handle(self, slot: Slot, event: Json) -> None:
        job, kind = slot.job, event["event"]
        if kind != "said":  # which may be a process of the worker's own
            slot.silent = 0.0
        if kind == "ready":
            slot.ready, slot.failed_starts = True, 0
        elif kind == "said":
            self.hear(slot, event["line"])
        elif kind == "alive":
            pass
        elif kind == "died":
            self.bury(slot, event["code"])
        elif job is not None and kind == "progress":
            self.display.running(slot.number, job, event["step"], event["accuracy"])
        elif job is not None and kind == "waiting":
            self.warn_once(f"{job.arm} seed {job.config['seed']} waits: {event['cause'].lower()}")
        elif job is not None and kind == "started":
            del self.deaths[job.id]
            self.display.running(slot.number, job, None, None)
        elif job is not None:
            slot.job = None
            slot.ready = slot.ready and not event.get("leaving")
            self.display.idle(slot.number)
            self.settle(job, event)

    def end_silent(self) -> None:
        """Kill workers that gave no sign of life, as stopped ones do. Their end is an event and frees the trial."""
        now = time.monotonic()
        passed, self.looked = min(now - self.looked, LONGEST_LOOK), now
        for slot in self.slots:
            if slot.process is None:
                continue
            slot.silent += passed
            if slot.silent > SILENT_SECONDS:
                slot.silent = 0.0
                self.display.say(f"worker {slot.number + 1} gave no sign of life for {SILENT_SECONDS:.0f} s: killed")
                slot.process.kill()

    def hear(self, slot: Slot, line: str) -> None:
        """While a worker starts only the last line is kept: a traceback's says it all."""
        if slot.ready:
            self.display.say(line)
        slot.said = line

    def warn_once(self, text: str) -> None:
        if text not in self.warned:
            self.warned.add(text)
            self.display.say(text)

    def settle(self, job: Job, event: Json) -> None:
        match event["event"]:
            case "held":
                self.hold(job, HELD_SECONDS)
            case "stopped":
                self.waiting.append(job)
            case "again":
                when = f" in {pause:.0f} s" if (pause := event["pause"]) else ""
                self.display.say(f"{job.arm} seed {job.config['seed']}: {event['cause']}; trying again{when}")
                self.hold(job, pause)
            case "interrupted":
                self.interrupt(job, event["cause"])
            case kind:
                self.finish(job, kind, event)

    def hold(self, job: Job, seconds: float) -> None:
        """It waits, without a worker."""
        self.held[job.id] = (time.monotonic() + seconds, job)

    def interrupt(self, job: Job, cause: str) -> None:
        """The trial is left as it is: what it needs is not here, and the others are tried all the same."""
        self.tally.interrupted[job.id] = cause
        self.display.say(f"{job.arm} seed {job.config['seed']} interrupted: {cause}; what it saved stays")

    def finish(self, job: Job, kind: str, detail: Json) -> None:
        if kind == "failed":
            self.tally.failed[job.id] = detail.get("cause", "unknown")
        elif kind == "blocked":
            self.tally.blocked[job.id] = detail["cause"]
        else:
            self.tally.done.append(job.id)
        self.display.over(job, kind, detail)
        self.on_over(job)
        for key, (_, waiting) in list(self.held.items()):
            if job.id in waiting.parents:  # it need not wait for its next look
                self.held[key] = (0.0, waiting)

    def bury(self, slot: Slot, code: int) -> None:
        """Replace a worker that died; another one resumes its trial, or gives up one that keeps killing them."""
        job, started = slot.job, slot.ready
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
        if code == -signal.SIGKILL and (kills := memory_kills()) > self.memory_kills:
            self.memory_kills, how = kills, f"{how}: out of memory"
        assert slot.process is not None
        hang_up(slot.process)
        slot.process, slot.job, slot.ready = None, None, False
        self.display.idle(slot.number)
        if not started and code != 0 and not self.stopping:
            self.count_failed_start(slot, code, slot.said if slot.said and code > 0 else how)
        if job is not None and not self.stopping:
            self.count_death(job, how)
        slot.said = ""

    def count_failed_start(self, slot: Slot, code: int, why: str) -> None:
        """A slot whose workers do not start is given up. Raises ValueError where it was the last."""
        slot.failed_starts += 1
        if slot.failed_starts < (FAILED_STARTS if code > 0 else KILLED_STARTS):
            return
        self.slots.remove(slot)
        if not self.slots:
            raise ValueError(f"workers do not start: {why}")
        self.display.say(f"worker {slot.number + 1} does not start: {why}; {len(self.slots)} go on without it")

    def count_death(self, job: Job, how: str) -> None:
        """Another worker takes the trial up, after those that wait: it may be what kills them."""
        self.deaths[job.id] += 1
        if self.deaths[job.id] >= DEATHS:
            return self.interrupt(job, f"its workers died {DEATHS} times before it began, the last of {how}")
        self.display.say(f"the worker of {job.arm} seed {job.config['seed']} died ({how}); its trial is resumed")
        self.waiting.append(job)

    def dismiss(self) -> None:
        """Every worker stops at its next step with a checkpoint, or is killed after a minute."""
        alive = [slot.process for slot in self.slots if slot.process is not None]
        for process in alive:
            process.terminate()  # those that wait end too: none is busy unless the run stops early
            hang_up(process)
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
) -> Tally:
    """Makes sure of every job; returns how they ended. `on_over` is called after each, finished before or now.

    At the `deadline`, on the monotonic clock, and when `called_off`, whatever still runs is stopped with a checkpoint.

    Raises store.NewerSchema where a trial was written by a newer version; ValueError where no worker starts.
    """
    todo, settled = [], Tally()
    for job in jobs:
        state, reason = outcome(place.runs, job, place.code)
        if state == "todo":
            todo.append(job)
        else:
            if state == "over":
                store.trial(place.runs, job.id, place.checkpoints).sweep()
                settled.done.append(job.id)
            else:
                (settled.failed if state == "failed" else settled.blocked)[job.id] = reason
                display.over(job, state, {"cause": reason, "elsewhere": True})
            on_over(job)
    pools = [(group, slots(group, workers, place.trials_per_gpu)) for group in by_ranks(todo)]
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
