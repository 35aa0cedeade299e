"""The folder that describes a job array on disk.

intent.json      function, arguments, the share of every task, tag: written before sbatch is called
script.sh        the script given to sbatch
ack.json         the job id that sbatch printed: a hint, since a restarted slurmctld reuses ids
refused.json     instead of intent.json: SLURM refused the array
logs/            standard output and error of the tasks
"""

import json
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

SETTLE_SECONDS = 15.0  # how long after an sbatch without an answer its job may still turn up
NAME, ACK = "intent.json", "ack.json"
LARGEST = 2**26  # bytes of a file

Content = TypeVar("Content", bound=BaseModel)


class Intent(BaseModel):
    """The content of an array: a function, its arguments, and a share per task."""

    model_config = ConfigDict(strict=True, frozen=True)
    tag: str
    function: str
    arguments: list[str]
    shares: list[list[str]]
    written: FiniteFloat


class Acknowledged(BaseModel):
    """The job id that SLURM reported, if any."""

    model_config = ConfigDict(strict=True, frozen=True)
    job_id: int | None


def write(folder: Path, tag: str, function: str, arguments: Sequence[str], shares: Sequence[Sequence[str]]) -> None:
    calls = [list(one) for one in shares]
    content = Intent(tag=tag, function=function, arguments=list(arguments), shares=calls, written=time.time())
    durable(folder / NAME, content.model_dump())


def read(folder: Path) -> Intent:
    """Read an array's intent. Raises ValueError; FileNotFoundError if SLURM refused it or it is not yet written."""
    return parsed(folder / NAME, Intent)


def parsed(path: Path, kind: type[Content]) -> Content:
    """Read a JSON file of this kind. Raises FileNotFoundError; ValueError for invalid content."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
        os.close(descriptor)
        raise ValueError(f"{path}: is not a regular file of at most {LARGEST:,} bytes")
    with open(descriptor, "rb") as file:
        text = file.read()
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise ValueError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def acknowledge(folder: Path, job_id: int | None) -> None:
    """Record the job id. None: SLURM reported no id, and the job can no longer appear."""
    durable(folder / ACK, {"job_id": job_id})


def is_settled(folder: Path) -> bool:
    """Return whether the answer is final whether SLURM has the array."""
    return (folder / ACK).exists()


def was_taken(folder: Path) -> bool:
    """Return whether SLURM reported a job id."""
    return is_settled(folder) and parsed(folder / ACK, Acknowledged).job_id is not None


def withdraw(folder: Path) -> None:
    """Mark an array that SLURM refused."""
    os.rename(folder / NAME, folder / "refused.json")


def durable(path: Path, content: object) -> None:
    """Write JSON to a file, completely or not at all, even if the power fails."""
    temporary = path.with_name(f".{path.name}")
    with open(temporary, "w") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
