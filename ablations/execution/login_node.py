"""Login nodes are shared: what trains here keeps to two processes."""

import os
import shutil

MOST = 2


def here() -> bool:
    """Whether this is a login node: jobs can be submitted from it, and this process is in none."""
    return shutil.which("sbatch") is not None and not os.environ.get("SLURM_JOB_ID")


def told(wanted: int) -> str:
    """Why there are fewer workers than `wanted`, and how to get them."""
    return (
        f"a login node (there is sbatch, and no allocation): {MOST} trials at a time instead of {wanted}; "
        "for more: `ablate submit`, or this command inside an allocation (salloc, srun)"
    )
