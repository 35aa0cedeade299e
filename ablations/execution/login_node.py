"""Login nodes. They are shared, so local training uses at most two processes there."""

import os
import shutil

MOST = 2


def is_login_node() -> bool:
    """Return whether this is a login node: sbatch exists, and this process is in no job."""
    return shutil.which("sbatch") is not None and not os.environ.get("SLURM_JOB_ID")


def limit_notice(wanted: int) -> str:
    """Return the message that fewer than `wanted` trials run at a time, and how to get more."""
    return (
        f"a login node (there is sbatch, and no allocation): {MOST} trials at a time instead of {wanted}; "
        "for more: `ablate submit`, or this command inside an allocation (salloc, srun)"
    )
