"""What a machine needs to run a cluster: programs, root and free ports."""

import os
import random
import shutil
import socket
from collections.abc import Iterable

PROGRAMS = {"munged": "munge", "sbatch": "slurm-wlm", "slurmctld": "slurm-wlm", "slurmd": "slurm-wlm"}
ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server", "mariadb-install-db": "mariadb-server"}
# Debian keeps daemons outside of a user's PATH.
PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])
# Below the ephemeral ports (from 32768), so that the port of a daemon that is down stays free.
PORTS = range(10000, 32000)


def unmet_requirement(accounting: bool = True) -> str:
    """Return why this machine cannot run a cluster, or "" if it can. accounting: whether the cluster needs slurmdbd."""
    needed = PROGRAMS | ACCOUNTING if accounting else PROGRAMS
    missing = sorted({package for program, package in needed.items() if not shutil.which(program, path=PATH)})
    if missing:
        return f"not installed: {' '.join(missing)} (Debian; tests/devcluster/install.sh installs them)"
    if os.geteuid() != 0:
        return "not root: SLURM's daemons start jobs for others"
    return ""


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive free ports. Raises RuntimeError if none are found."""
    for _ in range(1000):
        first = random.SystemRandom().randrange(PORTS.start, PORTS.stop - count)
        if not ports_in_use(range(first, first + count)):
            return first
    raise RuntimeError(f"no {count} free ports in a row between {PORTS.start} and {PORTS.stop}")


def ports_in_use(ports: Iterable[int]) -> list[int]:
    found = []
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as SLURM does: old connections do not count
            try:
                probe.bind(("", port))
            except OSError:
                found.append(port)
    return found
