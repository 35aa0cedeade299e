"""Submission of any list of tasks to SLURM, each task exactly once.

The package imports submitit on first use, and knows nothing about models.
"""

from slurm.profiles.profile import Profile
from slurm.queries.queue import QueuedJob
from slurm.submission.arrays import Tasks, send

__all__ = ["Profile", "QueuedJob", "Tasks", "send"]
