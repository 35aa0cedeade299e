"""The messages between the pool and a worker: jobs one way, events the other, as one line of JSON each."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from ablations.planning.jobs import Job
from ablations.reporting.cleaning import Keep
from vitcore.analysis.model_cost import Cost


@dataclass(frozen=True)
class WorkerSettings:
    """The settings on a worker's command line."""

    runs: str
    data_dir: str | None
    plugins: list[str]
    gpu: bool  # refuse to run without one
    checkpoints: str | None  # scratch space; None: in the run directory
    keep_weights: Keep

    @property
    def data_path(self) -> Path | None:
        return Path(self.data_dir) if self.data_dir else None

    @property
    def scratch(self) -> Path | None:
        return Path(self.checkpoints) if self.checkpoints else None


@dataclass(frozen=True)
class Ready:
    """The event of a worker that has started."""


@dataclass(frozen=True)
class Alive:
    """The worker's heartbeat."""


@dataclass(frozen=True)
class Note:
    """A warning to show once."""

    text: str


@dataclass(frozen=True)
class Waiting:
    """The event of a worker that waits for space on a full disk."""

    cause: str


@dataclass(frozen=True)
class Started:
    """The event of an attempt that has begun."""

    attempt: str


@dataclass(frozen=True)
class Compiling:
    """The event of a first step that compiles."""


@dataclass(frozen=True)
class Progress:
    """The step reached so far, and the accuracy as of the last evaluation."""

    step: int
    accuracy: float | None


@dataclass(frozen=True)
class Ended:
    """The end of a worker's job.

    kind: `again` is tried once more after `pause` seconds; `stopped` on request; `held` by another attempt.
    An `interrupted` trial cannot go on here. leaving: the worker takes no further job. elsewhere: it was over before.
    """

    kind: Literal["finished", "diverged", "failed", "blocked", "again", "stopped", "held", "interrupted"]
    cause: str = ""
    accuracy: float | None = None
    seconds: float = 0.0
    leaving: bool = False
    pause: float = 0.0
    elsewhere: bool = False


@dataclass(frozen=True)
class Said:
    """A line of the worker's standard error."""

    line: str


@dataclass(frozen=True)
class Exited:
    """The end of a worker's process."""

    code: int


Event = Ready | Alive | Note | Waiting | Started | Compiling | Progress | Ended
Heard = Event | Said | Exited  # what the pool hears of a worker
EVENTS: dict[str, type[Event]] = {
    kind.__name__: kind for kind in (Ready, Alive, Note, Waiting, Started, Compiling, Progress, Ended)
}


def event_line(event: Event) -> str:
    return json.dumps({"event": type(event).__name__, **asdict(event)}) + "\n"


def read_event(line: str) -> Event:
    content = json.loads(line)
    return EVENTS[content.pop("event")](**content)


def job_line(job: Job) -> str:
    return json.dumps(asdict(job)) + "\n"


def read_job(line: str) -> Job:
    content = json.loads(line)
    cost = content.pop("cost")
    return Job(**content, cost=None if cost is None else Cost(**cost))
