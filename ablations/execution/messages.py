"""The messages between the pool and a worker: jobs to the worker, events from it, one line of JSON each."""

import json
from dataclasses import asdict, dataclass
from typing import Literal

from ablations.planning.jobs import Job
from vitcore.analysis.model_cost import Cost


@dataclass(frozen=True)
class Ready:
    """The worker has started."""


@dataclass(frozen=True)
class Alive:
    """The worker runs: its heartbeat."""


@dataclass(frozen=True)
class Note:
    """A warning, to be shown once per run."""

    text: str


@dataclass(frozen=True)
class Waiting:
    """The worker waits for space on a full disk."""

    cause: str


@dataclass(frozen=True)
class Started:
    """An attempt has begun."""

    attempt: str


@dataclass(frozen=True)
class Compiling:
    """The first step is being compiled."""


@dataclass(frozen=True)
class Progress:
    """The step reached so far, and the validation accuracy of the last evaluation."""

    step: int
    accuracy: float | None


@dataclass(frozen=True)
class Ended:
    """A worker's job has ended.

    kind: `again`: to be tried again after `pause` seconds; `stopped`: on request; `held`: by another attempt;
    `interrupted`: the trial cannot go on here. leaving: the worker takes no further job. elsewhere: another run, or
    an earlier one, has ended the trial.
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
    """The worker has written a line to standard error."""

    line: str


@dataclass(frozen=True)
class Exited:
    """The worker's process has ended."""

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
