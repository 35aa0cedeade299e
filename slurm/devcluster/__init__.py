"""A real SLURM cluster on one machine, for tests. It starts in seconds and keeps all its files in one directory.

    slurm/devcluster/install.sh                     once: installs Debian's packages, starts no system service
    python -m slurm.devcluster up                   starts munged, MariaDB, slurmdbd, slurmctld, two slurmd
    eval "$(python -m slurm.devcluster env)"        sbatch, squeue and sacct then use this cluster
    python -m slurm.devcluster down                 ends its processes and removes its directory

In Python, `with Cluster(folder, Settings(nodes=1)) as cluster:` starts the cluster and takes it down after the block.
It is taken down even if the Python process is killed. The cluster needs root on Linux (Debian 12, SLURM 22.05), but
neither systemd nor cgroups.
"""

from slurm.devcluster.cluster import Cluster
from slurm.devcluster.config import Settings
from slurm.devcluster.processes import wait_until
from slurm.devcluster.requirements import unmet_requirement

__all__ = ["Cluster", "Settings", "unmet_requirement", "wait_until"]
