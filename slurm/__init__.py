"""Submission of any list of tasks to SLURM, each exactly once.

The package imports submitit and knows nothing of models. Its public names load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurm.profiles.profile import Profile as Profile
    from slurm.queries.queue import QueuedJob as QueuedJob
    from slurm.submission.arrays import Tasks as Tasks
    from slurm.submission.arrays import send as send

HOME = {
    "Profile": "slurm.profiles.profile",
    "QueuedJob": "slurm.queries.queue",
    "Tasks": "slurm.submission.arrays",
    "send": "slurm.submission.arrays",
}


def __getattr__(name: str) -> Any:
    if name not in HOME:
        raise AttributeError(f"module 'slurm' has no attribute {name!r}")
    return getattr(import_module(HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(HOME)
