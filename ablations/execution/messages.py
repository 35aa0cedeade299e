"""The messages between the pool and a worker, as lines of JSON: jobs to the worker, events to the pool."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal, get_args

from ablations.jobs import Job


@dataclass(frozen=True)
class Ready:
    """The message that the worker has started and can take a job."""


@dataclass(frozen=True)
class Alive:
    """The heartbeat of a worker, which shows that its process runs."""


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class Started:
    """The message that an attempt has begun."""


@dataclass(frozen=True)
class Compiling:
    """The message that the first step is being compiled."""


@dataclass(frozen=True)
class Progress:
    """The progress of training. value: of `selection_metric`. evaluating: until the next such message."""

    step: int
    value: float | None = None
    evaluating: bool = False


@dataclass(frozen=True)
class Ended:
    """The message that a worker's job has ended.

    kind: how it ended. `finished`, `diverged`, `failed` and `blocked` (by its parent) are final in this run. `again`:
    the trial will be tried again after `pause` seconds. `stopped`: on request. `held`: another process holds the trial.
    `interrupted`: the trial cannot go on in this run. `left out`: a race left the trial out.
    """

    kind: Literal["finished", "diverged", "failed", "blocked", "again", "stopped", "held", "interrupted", "left out"]
    cause: str = ""
    metrics: Mapping[str, float | None] = field(default_factory=dict)  # name -> value in the trial's result
    seconds: float = 0.0  # of training
    leaving: bool = False  # whether the worker takes no further job
    pause: float = 0.0
    elsewhere: bool = False  # whether another or an earlier run has ended the trial


@dataclass(frozen=True)
class Said:
    line: str


@dataclass(frozen=True)
class Exited:
    """The exit of a worker's process. code: its exit status; negative if a signal ended it."""

    code: int


Event = Ready | Alive | Note | Started | Compiling | Progress | Ended
Heard = Event | Said | Exited  # what the pool receives from a worker
EVENTS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}


def event_line(event: Event) -> str:
    return json.dumps({"event": type(event).__name__, **asdict(event)}) + "\n"


def read_event(line: str) -> Event:
    content = json.loads(line)
    return EVENTS[content.pop("event")](**content)


def job_line(job: Job) -> str:
    return json.dumps(asdict(job)) + "\n"


def read_job(line: str) -> Job:
    return Job(**json.loads(line))
