"""Detection of whether scancel ended the job of this process.

SLURM sends equal signals for scancel, preemption, the time limit and a requeue. slurmctld can distinguish them at once,
with or without accounting.
"""

import os

from slurm.queries.ask import ask


def cancelled() -> bool:
    """Return whether scancel ended this job.

    Raises NoSlurm if this machine has no SLURM. Raises Unreachable if SLURM does not answer, and Refused if it no
    longer knows the job.
    """
    array, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    job = f"{array}_{index}" if array else os.environ["SLURM_JOB_ID"]
    known = dict(word.partition("=")[::2] for word in ask("scontrol", "show", "job", job).stdout.split())
    return is_cancelled(known, os.environ.get("SLURM_RESTART_COUNT", "0"))


def is_cancelled(known: dict[str, str], starts: str) -> bool:
    """Return whether the output of `scontrol show job` shows that scancel ended the job.

    known: fields of the output by name. starts: number of restarts of the job when this process started.

    Other causes are visible in the fields. A time limit or a lost node sets Reason, preemption sets PreemptTime, and a
    requeue increments Restarts.
    """
    ended = known.get("JobState") in ("CANCELLED", "COMPLETING")
    unasked = known.get("PreemptTime", "None") == "None" and known.get("Restarts", "0") == starts
    return ended and unasked and known.get("Reason") == "None"
