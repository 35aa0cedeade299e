"""Submission of any list of equal tasks to SLURM, as job arrays. The package knows nothing about models."""

from slurm.arrays import JobArray, submit
from slurm.profile import Profile
from slurm.queue import QueuedJob

__all__ = ["JobArray", "Profile", "QueuedJob", "submit"]
