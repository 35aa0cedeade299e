"""One array as it lies on disk, in a folder of its own.

intent.json      the function, its arguments, the share of every task, the tag: written before sbatch is called
script.sh        what sbatch is given
ack.json         the job id that sbatch printed: a hint, since a restarted slurmctld hands ids out again
refused.json     instead of intent.json: SLURM refused the array
logs/            standard output and error of the tasks
"""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SETTLE_SECONDS = 15.0  # how long after an sbatch without an answer its job may still turn up
NAME, ACK = "intent.json", "ack.json"


def write(folder: Path, tag: str, function: str, arguments: Sequence[str], shares: Sequence[Sequence[str]]) -> None:
    content = {"tag": tag, "function": function, "arguments": list(arguments), "shares": [list(one) for one in shares]}
    durable(folder / NAME, {**content, "written": time.time()})


def read(folder: Path) -> dict[str, Any]:
    """Raises FileNotFoundError for an array that SLURM refused, or that is still being written."""
    content: dict[str, Any] = json.loads((folder / NAME).read_text())
    return content


def acknowledge(folder: Path, job_id: int | None) -> None:
    """`None`: SLURM never named a job id, and the time in which the job could turn up is over."""
    durable(folder / ACK, {"job_id": job_id})


def is_settled(folder: Path) -> bool:
    """Whether nobody waits any more for the array to turn up."""
    return (folder / ACK).exists()


def was_taken(folder: Path) -> bool:
    """Whether SLURM named a job id."""
    return is_settled(folder) and json.loads((folder / ACK).read_text())["job_id"] is not None


def withdraw(folder: Path) -> None:
    """Marks an array that SLURM refused."""
    os.rename(folder / NAME, folder / "refused.json")


def durable(path: Path, content: object) -> None:
    """Writes all of it or nothing, also where the power fails."""
    temporary = path.with_name(f".{path.name}")
    with open(temporary, "w") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
