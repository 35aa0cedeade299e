"""A real SLURM cluster on one machine, for tests. It starts in seconds and keeps all its files in one directory.

    tests/devcluster/install.sh             once: installs Debian's packages, starts no system service
    export PYTHONPATH=tests
    python -m devcluster up                 starts munged, MariaDB, slurmdbd, slurmctld, two slurmd
    eval "$(python -m devcluster env)"      sbatch, squeue and sacct then use this cluster
    python -m devcluster down               ends its processes and removes its directory

In Python, `with Cluster(folder, Settings(nodes=1)) as cluster:` starts the cluster and takes it down after the block.
It is taken down even if the Python process is killed. The cluster needs root on Linux (Debian 12, SLURM 22.05), but
neither systemd nor cgroups.
"""

from devcluster.cluster import Cluster
from devcluster.config import Settings
from devcluster.processes import wait_until
from devcluster.requirements import unmet_requirement

__all__ = ["Cluster", "Settings", "unmet_requirement", "wait_until"]
