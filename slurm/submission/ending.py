"""Whether scancel ended the job of this process.

SLURM sends the same signals for scancel, preemption, the time limit and a requeue. slurmctld tells them apart at once,
with or without accounting.
"""

import os

from slurm.queries.ask import ask


def cancelled() -> bool:
    """Return whether scancel ended this job. Raises Unreachable, Refused or NoSlurm if SLURM cannot tell."""
    array, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    job = f"{array}_{index}" if array else os.environ["SLURM_JOB_ID"]
    known = dict(word.partition("=")[::2] for word in ask("scontrol", "show", "job", job).stdout.split())
    return is_cancelled(known, os.environ.get("SLURM_RESTART_COUNT", "0"))


def is_cancelled(known: dict[str, str], starts: str) -> bool:
    """Return whether fields of `scontrol show job` mean scancel. starts: the restart count of this process.

    A time limit and a lost node have a Reason, preemption has a PreemptTime, and a requeue one more restart.
    """
    ended = known.get("JobState") in ("CANCELLED", "COMPLETING")
    unasked = known.get("PreemptTime", "None") == "None" and known.get("Restarts", "0") == starts
    return ended and unasked and known.get("Reason") == "None"
