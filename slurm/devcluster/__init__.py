"""A real SLURM on one machine: started in seconds, private to its directory, gone without a trace.

    slurm/devcluster/install.sh                     once: Debian's packages; starts no system service
    python -m slurm.devcluster up                   munged, MariaDB, slurmdbd, slurmctld and two slurmd
    eval "$(python -m slurm.devcluster env)"        from here on sbatch, squeue and sacct speak to it
    python -m slurm.devcluster down

In Python, `with Cluster(folder, Settings(nodes=1)) as cluster:` starts it, and takes it down even if the process is
killed. It needs root on Linux (Debian 12, SLURM 22.05), no systemd, no cgroups, and only the standard library.
"""

from slurm.devcluster.cluster import Cluster
from slurm.devcluster.requirements import Unavailable, unmet
from slurm.devcluster.settings import Settings
from slurm.devcluster.waiting import until

__all__ = ["Cluster", "Settings", "Unavailable", "unmet", "until"]
