"""Submission of tasks as SLURM job arrays, each of which is submitted exactly once.

An array is written to disk before sbatch is called. Its tag is in the job's comment. So the queue shows whether SLURM
has the job, even if sbatch fails or prints no job id.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm.profiles import grammar

if TYPE_CHECKING:
    from slurm.submission.executor import ArrayExecutor

BEGAN = "ABLATE_JOB_BEGAN"  # environment variable: when the job's script began, before the profile's setup

Parameters = Mapping[str, Any]


@dataclass(frozen=True)
class Tasks:
    """The tasks of a job array. Each task calls `function(*arguments, *share)` with one element of `shares`."""

    function: str  # 'module:name'
    arguments: Sequence[str]
    shares: Sequence[Sequence[str]]
    persistent: bool = False  # whether a task starts again in its job when a signal ends it; it runs without srun
    container: Sequence[str] = ()  # a command around Python


def next_folder(arrays: Path) -> Path:
    """Return the folder of the next array: 0001, 0002, and so on."""
    return arrays / f"{len(list(arrays.glob('*'))) + 1:04d}"


def send(folder: Path, tag: str, tasks: Tasks, parameters: Parameters, code: Path) -> int:
    """Write tasks to `folder`, submit them as one job array and return its job id.

    tag: identifies the array in SLURM's queue. parameters: parameters of submitit's executor, with the tag in the
    comment. code: the folder from which nodes import code. Raises Refused if SLURM rejects the array, Unreachable if it
    is unknown whether SLURM has it, and ValueError if SLURM would misread the path of `folder`.
    """
    return executor(folder, tag, tasks, parameters, code).send()


def script(folder: Path, tasks: Tasks, parameters: Parameters, code: Path) -> str:
    """Return the script that `send` would pass to sbatch for these arguments."""
    return executor(folder, "", tasks, parameters, code).script()


def executor(folder: Path, tag: str, tasks: Tasks, parameters: Parameters, code: Path) -> "ArrayExecutor":
    from slurm.submission.executor import ArrayExecutor  # late: submitit is an extra

    require_folder(folder)
    began = f"export {BEGAN}=$(date +%s)"
    setup = [began, *parameters.get("setup", ()), f"export PYTHONPATH={shlex.quote(str(code))} PYTHONSAFEPATH=1"]
    made = ArrayExecutor(folder, tag, tasks)
    # srun would be another process that a signal can kill
    made.update_parameters(**{**parameters, "setup": setup, "use_srun": not tasks.persistent})
    return made


def require_folder(folder: Path) -> None:
    """Raise ValueError if the path has characters that SLURM's file name patterns or PYTHONPATH would misread."""
    for character in str(folder):
        if character in "%\\:" or not character.isprintable():
            raise ValueError(
                f"{grammar.quoted_value(folder)}: SLURM needs a run directory without {character!a} in its path"
            )
