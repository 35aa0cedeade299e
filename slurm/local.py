"""A task on this machine, as a background process of submitit's LocalExecutor."""

import os
import shlex
import sys
from contextlib import chdir

from submitit import LocalExecutor

from slurm import task
from slurm.arrays import JobArray, setup_lines


def start(array: JobArray) -> int:
    """Start one task of an array on this machine, and return the id of its process, which passes on SIGTERM.

    submitit's files are private.
    """
    logs = array.folder / "logs"
    logs.mkdir(mode=0o700, parents=True)
    # submitit's own `setup` starts nothing where `sh` is bash: it takes the shell's id for the job's
    shell = ["sh", "-c", " && ".join([*visible_gpus(), *setup_lines(array), 'exec "$0" "$@"'])]
    # -P: the task imports the copied code and not files of its working directory
    executor = LocalExecutor(logs, python=shlex.join([*shell, *array.profile.prefix, sys.executable, "-P"]))
    executor.update_parameters(
        timeout_min=array.profile.minutes, gpus_per_node=array.profile.gpus, stderr_to_stdout=True
    )
    with chdir(array.code.parent):  # as in SLURM's jobs; submitit's process imports files of its working directory
        return int(executor.submit(task.run, array.function, array.arguments).job_id)


def visible_gpus() -> list[str]:
    """Return the shell line for the GPUs that this process may use. Without one, submitit numbers them from 0."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [] if visible is None else [f"export CUDA_VISIBLE_DEVICES={shlex.quote(visible)}"]
