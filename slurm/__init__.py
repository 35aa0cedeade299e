"""Submission of any list of tasks to SLURM, each task exactly once.

The package imports submitit on first use, and knows nothing about models.
"""

from slurm.arrays import Tasks, send
from slurm.profile import Profile
from slurm.queue import QueuedJob

__all__ = ["Profile", "QueuedJob", "Tasks", "send"]
