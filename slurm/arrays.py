"""Submission of tasks as SLURM job arrays, each array exactly once.

An array is written to disk before sbatch is called. Its tag is in the job's comment. So the queue shows whether SLURM
has the job, even if sbatch fails or prints no job id. submitit renders the script. Its executor is not used, because it
names the files of the tasks' arguments after the job id. A launcher killed after sbatch would leave tasks without them.
"""

import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm import grammar, intent, queue
from slurm.ask import NoSlurm, Refused, Unreachable, ask

BEGAN = "ABLATE_JOB_BEGAN"  # environment variable: when the job's script began, before the profile's setup
FOLDER = "ABLATE_ARRAY"  # environment variable: the folder of the array that a task belongs to
STARTS = 10  # maximum starts of a persistent task
SBATCH_SECONDS = 60.0
REFUSAL = "Batch job submission failed: "  # slurmctld's answer, as sbatch prints it

Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Tasks:
    """The tasks of a job array. Each task calls `function(*arguments, *share)` with one element of `shares`."""

    function: str  # 'module:name'
    arguments: Sequence[str]
    shares: Sequence[Sequence[str]]
    persistent: bool = False  # whether a task starts again in its job when a signal ends it; it runs without srun
    container: Sequence[str] = ()  # words of a command that precedes Python


def next_folder(arrays: Path) -> Path:
    """Return the folder of the next array: 0001, 0002, and so on."""
    return arrays / f"{len(list(arrays.glob('*'))) + 1:04d}"


def send(folder: Path, tag: str, tasks: Tasks, parameters: Parameters, code: Path) -> int:
    """Write tasks to the new folder `folder`, submit them as one job array and return its job id.

    tag: identifies the array in SLURM's queue. parameters: the script's parameters for submitit, with the tag in the
    comment. code: the folder from which nodes import code. Raises Refused if SLURM rejects the array, or Unreachable if
    it is unknown whether SLURM has it. Raises the errors of `script`, and OSError if writing fails.
    """
    text, path = script(folder, tasks, parameters, code), folder / "script.sh"
    (folder / "logs").mkdir(parents=True)
    path.touch(mode=0o600)  # private, as the profile's environment may hold secrets
    path.write_text(text)
    intent.write(folder, tag, tasks.function, tasks.arguments, tasks.shares)
    try:
        job_id = submit(path, tag)
    except Refused:
        intent.withdraw(folder)
        raise
    intent.acknowledge(folder, job_id)
    return job_id


def submit(script: Path, tag: str) -> int:
    """Submit a script whose job has this tag, and return the job id. Raises Refused or Unreachable as `send` does."""
    try:
        said = ask("sbatch", str(script), timeout=SBATCH_SECONDS).stdout
    except Refused as error:
        if REFUSAL in str(error):
            raise
        return find_in_queue(tag, f"sbatch failed: {error}")  # a site's wrapper around sbatch may have failed
    except (Unreachable, NoSlurm) as error:
        return find_in_queue(tag, str(error))
    # a banner of the cluster may also contain numbers and the word job
    own = re.search(r"^Submitted batch job (\d+)", said, re.MULTILINE)
    return int(own[1]) if own else find_in_queue(tag, "sbatch printed no job id")


def find_in_queue(tag: str, problem: str) -> int:
    """Wait for a job with this tag in the queue and return its id. Raises Unreachable with `problem` if none comes."""
    deadline, found = time.monotonic() + intent.SETTLE_SECONDS, "whether the job was submitted is unknown"
    while time.monotonic() < deadline:
        time.sleep(1)
        try:
            mine = [job for job in queue.jobs(tag, ended=True) if job.tag == tag]
        except (Unreachable, NoSlurm, Refused):  # a failure of squeue says nothing about the job
            continue
        if mine:
            return mine[0].job_id
        found = "the queue does not have the job"
    raise Unreachable(f"{problem}; {found}: submit again when SLURM answers")


def script(folder: Path, tasks: Tasks, parameters: Parameters, code: Path) -> str:
    """Return the script that `send` passes to sbatch for these arguments. Raises the errors of `require_folder`.

    Raises ModuleNotFoundError if submitit is not installed.
    """
    from submitit.slurm.slurm import _make_sbatch_string  # late: submitit is an extra

    require_folder(folder)
    began = f"export {BEGAN}=$(date +%s)"
    path = f"export PYTHONPATH={shlex.quote(str(code))}${{PYTHONPATH:+:$PYTHONPATH}} PYTHONSAFEPATH=1"
    added = {"chdir": str(code.parent), **parameters.get("additional_parameters", {})}
    count = len(tasks.shares)
    changes: dict[str, Any] = {
        "setup": [began, *parameters.get("setup", ()), path],
        "use_srun": not tasks.persistent,  # srun would be another process that a signal can kill
        "map_count": count if count > 1 else None,
        "additional_parameters": added | ({"array": f"0-{count - 1}"} if count > 1 else {}),
    }
    text: str = _make_sbatch_string(task_command(folder, tasks, code), folder / "logs", **{**parameters, **changes})
    return text.replace("#SBATCH --signal=USR2@0\n", "")  # which submitit cannot leave out


def task_command(folder: Path, tasks: Tasks, code: Path) -> str:
    """Return the shell command that runs one task of the array in `folder`."""
    python = shlex.join([*tasks.container, sys.executable])
    # -P: nodes import the copied code and not files of their working directory
    command = f"{python} -u -P -m slurm.job {shlex.join([str(folder), tasks.function, str(code)])}"
    if tasks.persistent:  # a status above 128 means that a signal ended the task
        again = f"for start in {{1..{STARTS}}}; do {command}; status=$?; [ $status -gt 128 ] || break; done"
        return f"{again}\nexit $status"
    return command


def require_folder(folder: Path) -> None:
    """Raise ValueError if the path has characters that SLURM's file name patterns or PYTHONPATH would misread."""
    for character in str(folder):
        if character in "%\\:" or not character.isprintable():
            raise ValueError(
                f"{grammar.quoted_value(folder)}: SLURM needs a run directory without {character!a} in its path"
            )
