"""A display of a pool of workers for logs: a line per event."""

from ablations.execution.messages import Ended, Progress
from ablations.jobs import Job
from results import store


class Lines:
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
