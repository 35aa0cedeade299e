"""The files that describe a SLURM job array on disk.

intent.json      the tag, the function and the arguments of every task; it is written before sbatch is called
script.sh        the script passed to sbatch
ack.json         the job id that SLURM reported, or null; only a hint, since a restarted slurmctld reuses ids
refused.json     the renamed intent.json of an array that SLURM refused
logs/            standard output and standard error of the tasks
"""

import json
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, FiniteFloat, ValidationError

SETTLE_SECONDS = 15.0  # how long after an unanswered sbatch its job may still appear
NAME, ACK = "intent.json", "ack.json"
LARGEST = 2**26  # maximum bytes of a file

Content = TypeVar("Content", bound=BaseModel)


class Intent(BaseModel, strict=True, frozen=True):
    """The content of intent.json: the function of a SLURM job array, and the arguments of its tasks."""

    tag: str
    function: str
    arguments: list[str]  # common to all tasks
    shares: list[list[str]]  # further arguments of each task
    written: FiniteFloat  # seconds since 1970


class Acknowledged(BaseModel, strict=True, frozen=True):
    """The content of ack.json: the job id that SLURM reported, or None if the job cannot appear any more."""

    job_id: int | None


def write(folder: Path, tag: str, function: str, arguments: Sequence[str], shares: Sequence[Sequence[str]]) -> None:
    calls = [list(one) for one in shares]
    content = Intent(tag=tag, function=function, arguments=list(arguments), shares=calls, written=time.time())
    write_durably(folder / NAME, content.model_dump())


def read(folder: Path) -> Intent:
    """Return the intent of an array.

    Raises FileNotFoundError if SLURM refused the array or no file is written yet, or ValueError if the file is invalid.
    """
    return read_json(folder / NAME, Intent)


def read_json(path: Path, kind: type[Content]) -> Content:
    """Return the content of a regular JSON file. Raises FileNotFoundError, or ValueError if it is not valid."""
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
    """Record the job id in ack.json. None means that SLURM reported no id and the job cannot appear any more."""
    write_durably(folder / ACK, {"job_id": job_id})


def is_settled(folder: Path) -> bool:
    """Return whether ack.json exists, which means that SLURM's answer about the array is final."""
    return (folder / ACK).exists()


def was_taken(folder: Path) -> bool:
    """Return whether SLURM reported a job id for the array. Raises ValueError if ack.json is invalid."""
    return is_settled(folder) and read_json(folder / ACK, Acknowledged).job_id is not None


def withdraw(folder: Path) -> None:
    """Rename intent.json to refused.json, which marks the array as refused by SLURM."""
    os.rename(folder / NAME, folder / "refused.json")


def write_durably(path: Path, content: object) -> None:
    """Write `content` to a JSON file, completely or not at all, even if the power fails."""
    temporary = path.with_name(f".{path.name}")
    with open(temporary, "w") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
