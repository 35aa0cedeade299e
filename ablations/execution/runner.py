"""The loop that runs trials on this machine: it drives the pool of workers as time, messages and signals arrive.

The disk alone decides which trials are done. The run waits for trials that another run holds.
"""

import math
import queue
import signal
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from ablations.execution.launch import Place
from ablations.execution.messages import Ended, Progress
from ablations.execution.pool import Display, Pool, RunSummary, end_elsewhere
from ablations.execution.slots import group_for_pools, make_slots
from ablations.jobs import Job
from results import store
from results.store.standing import Standings

STOP_SECONDS = 60.0
LISTEN_SECONDS = 0.2
CALLED_OFF_SECONDS = 5.0  # between calls of `called_off`
SPREAD = 32  # jobs: with 100 tasks, three compete for each first claim; seeds are trained nearly in their order
CLOSING_FRACTION = 0.02


class LineDisplay:
    """A display of a pool that prints a line with the time for each event of its own trials."""

    def show_running(self, slot: int, job: Job, progress: Progress | None) -> None:
        if progress is None:
            print(f"{store.timestamp()} {job.id} {job.name}: begins", flush=True)

    def show_idle(self, slot: int) -> None: ...

    def show_compiling(self, slot: int, job: Job) -> None:
        print(f"{store.timestamp()} {job.id} compiling the first step", flush=True)

    def show_end(self, job: Job, end: Ended) -> None:
        if not end.elsewhere:
            print(f"{store.timestamp()} {job.id} {end.kind} {end.cause}", flush=True)

    def say(self, text: str) -> None:
        print(f"{store.timestamp()} {text}", flush=True)


def run(
    jobs: Sequence[Job],
    place: Place,
    display: Display,
    workers: int | None = None,
    on_over: Callable[[Job], None] = lambda job: None,
    left_out: Callable[[], Mapping[str, str]] = dict,
) -> RunSummary:
    """Run all unfinished jobs, and return how all jobs ended. on_over: called with each that ended.

    At SIGINT or SIGTERM, running trials save a checkpoint and stop. Raises store.NewerSchema if a newer version wrote a
    trial, ValueError if no worker starts, and the errors of `slots.check_gpus`.
    """
    summary = RunSummary()
    standings = Standings(place.runs, place.code)
    todo: list[Job] = []
    for job in jobs:
        standing = job.standing(standings)
        if standing.is_pending:
            todo.append(job)
            continue
        end = end_elsewhere(standing)
        summary.add(job, end)
        if standing.is_over:
            store.trial(place.runs, job.id, place.checkpoints).remove_checkpoints()
        else:
            display.show_end(job, end)
        on_over(job)
    groups = [(group, make_slots(group, workers, place.trials_per_gpu)) for group in group_for_pools(todo)]
    for group, slots in groups:
        if not summary.stopped:
            drive(Pool(group, place, slots, display, on_over, summary, left_out=left_out))
    return summary


def pull(
    jobs: Sequence[Job],
    place: Place,
    task: str,
    workers: int | None = None,
    deadline: float = math.inf,
    called_off: Callable[[], bool] = lambda: False,
    left_out: Callable[[], Mapping[str, str]] = dict,
    is_race: bool = False,
) -> RunSummary:
    """Run the jobs that no other process has claimed until none is left, and return how the jobs run here ended.

    task: differs between the pools that share the jobs. At the deadline (monotonic clock), or once `called_off()` is
    true, trials stop as at a signal. In the last CLOSING_FRACTION of the time before, none begins. Raises as `run`.
    """
    summary = RunSummary()
    closing = deadline
    if not math.isinf(deadline):
        closing -= CLOSING_FRACTION * (deadline - time.monotonic())
    for group in group_for_pools(pull_order(jobs, task, 1 if is_race else SPREAD)):
        if not summary.stopped:
            slots = make_slots(group, workers, place.trials_per_gpu)
            pool = Pool(group, place, slots, LineDisplay(), lambda job: None, summary, True, left_out)
            drive(pool, deadline, called_off, closing)
            summary.left += len(pool.trials)
            summary.stopped |= any(not trial.elsewhere for trial in pool.trials.values())
    return summary


def pull_order(jobs: Iterable[Job], task: str, spread: int = SPREAD) -> list[Job]:
    """Return the jobs by seed, parents first. Tasks begin at different ones of the first `spread`, to compete less."""
    by_seed = sorted(jobs, key=lambda job: int(job.config["seed"]))
    window = min(spread, len(by_seed))
    offset = zlib.crc32(task.encode()) % max(1, window)
    return by_seed[offset:window] + by_seed[:offset] + by_seed[window:]


def drive(
    pool: Pool,
    deadline: float = math.inf,
    called_off: Callable[[], bool] = lambda: False,
    closing: float = math.inf,
) -> None:
    """Run a pool until no trial is left, a signal arrives, `deadline` passes or `called_off()` is true.

    Workers then have STOP_SECONDS to save a checkpoint and end, before they are killed. Raises as `run`.
    """
    last_asked = time.monotonic()
    with signal_handler(lambda *_: pool.stop(), signal.SIGINT, signal.SIGTERM):
        try:
            while pool.has_work:
                now = time.monotonic()
                if now > deadline:
                    pool.stop()
                if now - last_asked > CALLED_OFF_SECONDS:
                    last_asked = now
                    if called_off():
                        pool.stop()
                if now > closing:
                    pool.close()
                pool.tick()
                with suppress(queue.Empty):
                    pool.handle(*pool.events.get(timeout=LISTEN_SECONDS))
        finally:
            for worker in pool.workers:
                worker.stop()  # idle workers too; workers are busy only if the run stops early
            end = time.monotonic() + STOP_SECONDS
            for worker in pool.workers:
                worker.end(end)


@contextmanager
def signal_handler(handler: Callable[[int, FrameType | None], None], *numbers: signal.Signals) -> Iterator[None]:
    saved = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in saved.items():
            signal.signal(number, before)
