"""Hand tasks to SLURM as job arrays: each wholly on disk before sbatch is called, and never handed over twice.

    <folder>/intent.json      the function, its arguments, the share of every task, the tag: written before sbatch
    <folder>/script.sh        what sbatch is given, as submitit renders it
    <folder>/ack.json         the job id that sbatch printed: a hint (a restarted slurmctld hands ids out again)
    <folder>/logs/            standard output and error of the tasks

The tag travels as the job's comment. Whether SLURM has a job is asked by tag, whatever sbatch said.
"""

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slurm import grammar, queue
from slurm.ask import Unreachable, ask

SBATCH_SECONDS = 60.0
SETTLE_SECONDS = 15.0  # how long after a failed sbatch its job may still turn up
BEGAN = "ABLATE_JOB_BEGAN"  # in the job's environment: when its script began, before the user's own lines
STARTS = 10  # of a persistent task, where it is killed

Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Tasks:
    """`function` ('module:name') is called as function(*arguments, *share), once for each share.

    `persistent`: started again in the same job where a signal ends it; without srun.
    """

    function: str
    arguments: Sequence[str]
    shares: Sequence[Sequence[str]]
    persistent: bool = False
    container: Sequence[str] = ()  # a command around Python


def send_all(
    arrays: Path, prefix: str, tasks: Tasks, parameters: Callable[[str], Parameters], code: Path, most: int
) -> Iterator[int]:
    """One array after the other, each of at most `most` shares, in the next free folders of `arrays`; their job ids.

    An array's tag is the prefix and its folder's name; `parameters` are submitit's for that tag. Raises as `send`.
    """
    for start in range(0, len(tasks.shares), most):
        folder = arrays / f"{len(list(arrays.glob('*'))) + 1:04d}"
        tag = f"{prefix}:{folder.name}"
        write(folder, tag, replace(tasks, shares=tasks.shares[start : start + most]), parameters(tag), code)
        yield send(folder)


def write(folder: Path, tag: str, tasks: Tasks, parameters: Parameters, code: Path) -> None:
    """Intent and script, on disk. `parameters`: submitit's, the tag among them; `code`: what the nodes import."""
    text = script(folder, tasks, parameters, code)
    (folder / "logs").mkdir(parents=True)
    (folder / "script.sh").write_text(text)
    durable(
        folder / "intent.json",
        {
            "tag": tag,
            "function": tasks.function,
            "arguments": list(tasks.arguments),
            "shares": [list(share) for share in tasks.shares],
            "written": time.time(),
        },
    )


def read(folder: Path) -> dict[str, Any]:
    intent: dict[str, Any] = json.loads((folder / "intent.json").read_text())
    return intent


def durable(path: Path, content: object) -> None:
    """All of it or nothing, also after a power cut."""
    temporary = path.with_name(f".{path.name}")
    with open(temporary, "w") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)


def require_folder(folder: Path) -> None:
    """Raises ValueError for a path that SLURM's file name patterns or PYTHONPATH would take for another."""
    for character in str(folder):
        if character in "%\\:" or not character.isprintable():
            raise ValueError(f"{grammar.shown(folder)}: SLURM needs a run directory without {character!a} in its path")


def script(folder: Path, tasks: Tasks, parameters: Parameters, code: Path) -> str:
    """submitit's script around our command: the payload is the intent, read by array index, and no pickle.

    -P and PYTHONPATH: the nodes import the snapshot, whatever lies in the working directory.
    """
    from submitit.slurm.slurm import _make_sbatch_string  # late: not in the base install

    require_folder(folder)
    began = f"export {BEGAN}=$(date +%s)"
    setup = [began, *parameters.get("setup", ()), f"export PYTHONPATH={shlex.quote(str(code))} PYTHONSAFEPATH=1"]
    python = [sys.executable, "-u", "-P", "-m", "slurm.job", str(folder)]
    command = shlex.join([*tasks.container, *python])
    if tasks.persistent:  # a status above 128 is a signal's; srun would only be one more process to kill
        command = (
            f"for start in {{1..{STARTS}}}; do {command}; status=$?; [ $status -gt 128 ] || break; done\nexit $status"
        )
    chosen = {**parameters, "setup": setup, "use_srun": not tasks.persistent}
    return _make_sbatch_string(command, folder / "logs", map_count=len(tasks.shares), **chosen)


def send(folder: Path) -> int:
    """Calls sbatch and acknowledges; returns the job id.

    Raises Refused where SLURM said no (the intent is then withdrawn), Unreachable where it cannot be told whether
    SLURM has the job, NoSlurm.
    """
    try:
        answer = ask("sbatch", "--parsable", str(folder / "script.sh"), timeout=SBATCH_SECONDS).stdout
    except Unreachable as error:
        return adopt(folder, error)
    except ValueError:
        os.rename(folder / "intent.json", folder / "refused.json")
        raise
    return acknowledge(folder, int(answer.strip().partition(";")[0]))


def adopt(folder: Path, error: Unreachable) -> int:
    """sbatch got no answer, perhaps after submitting: the queue is asked for the tag until it is settled."""
    tag = read(folder)["tag"]
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        time.sleep(1)
        try:
            found = [job for job in queue.jobs(tag) if job.tag == tag]
        except Unreachable:
            continue
        if found:
            return acknowledge(folder, found[0].job_id)
    raise Unreachable(f"{error}; whether the job was submitted is unknown: submit again when SLURM answers") from None


def acknowledge(folder: Path, job_id: int) -> int:
    durable(folder / "ack.json", {"job_id": job_id})
    return job_id
