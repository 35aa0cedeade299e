"""A task on this machine, as a background process of submitit's LocalExecutor."""

import shlex
import sys

from submitit import LocalExecutor

from slurm import task
from slurm.arrays import JobArray, setup_lines


def start(array: JobArray) -> int:
    """Start one task of an array on this machine and return the id of its process. submitit's files are private."""
    logs = array.folder / "logs"
    logs.mkdir(mode=0o700, parents=True)
    # -P: the task imports the copied code and not files of its working directory
    executor = LocalExecutor(logs, python=shlex.join([*array.profile.prefix, sys.executable, "-P"]))
    executor.update_parameters(
        timeout_min=array.profile.minutes,
        gpus_per_node=array.profile.gpus,
        setup=setup_lines(array),
        stderr_to_stdout=True,
    )
    return int(executor.submit(task.run, array.function, array.arguments).job_id)
