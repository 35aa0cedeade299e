"""The cores, GPUs and nodes that this process may use, on this machine or in a SLURM job."""

import math
import os
import re
import shutil
import signal
import socket
import time
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

DEVICES = Path("/dev")
NAMED = re.compile(r"\+?\d|GPU-|MIG-")  # a GPU in CUDA_VISIBLE_DEVICES, but not -1 or SLURM's NoDevFiles
LOGIN_NODE_TRIALS = 2  # maximum concurrent trials on a login node, which users share
# cgroup controller -> the file that counts out-of-memory kills; "" stands for cgroups of version 2
CONTROL = {"": "memory.events", "memory": "memory.oom_control"}


def cores() -> int:
    """Return the number of usable CPU cores: the minimum of affinity, SLURM's allocation and the quota of cgroup v2."""
    available = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        available = len(os.sched_getaffinity(0))
    available = min(available, int(os.environ.get("SLURM_CPUS_PER_TASK", available)))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(available, int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or a quota of "max"
        return available


def gpus() -> list[str]:
    """Return the usable GPUs, as names for CUDA_VISIBLE_DEVICES.

    If the variable is not set, they are numbered from 0. Device files in a container may have other numbers.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return list(takewhile(NAMED.match, map(str.strip, visible.split(","))))
    return [str(number) for number, _ in enumerate(DEVICES.glob("nvidia[0-9]*"))]


def default_workers(ranks: int, gpus: int, cores: int) -> int:
    """Return the default number of concurrent trials. Each uses `ranks` GPUs, or as many cores if there are no GPUs."""
    if gpus:
        return gpus // ranks
    return max(1, cores // ranks)


def oom_kills() -> int:
    """Return the number of this control group's processes that the kernel killed for lack of memory; 0 if unknown."""
    count = 0
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            with suppress(OSError, ValueError, KeyError):
                file = Path("/sys/fs/cgroup", controllers, group.lstrip("/"), CONTROL[controllers])
                count += int(dict(pair.split() for pair in file.read_text().splitlines())["oom_kill"])
    return count


def ended_by(code: int) -> str:
    """Return how a process ended, given its exit code in Python: "status 1", "signal SIGKILL" or "signal 35"."""
    if code >= 0:
        return f"status {code}"
    with suppress(ValueError):  # most real-time signals have no name
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"


def nodes() -> int:
    return int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))


def process_name() -> str:
    """Return a name that no other process on any machine has now."""
    return f"{socket.gethostname()}:{os.getpid()}"


def seconds_left() -> float:
    """Return the time until SLURM ends this job, or infinity outside a job and in old versions of SLURM."""
    end = os.environ.get("SLURM_JOB_END_TIME", "")
    if not end.isdecimal() or not int(end):
        return math.inf
    return int(end) - time.time()


def stop_time(seconds: float) -> float:
    """Return when trials must save a checkpoint and stop, in seconds of the monotonic clock.

    seconds: the time until this process is killed. A tenth of it is kept, but at least 10 s and at most a minute.
    """
    return time.monotonic() + seconds - min(60.0, max(10.0, seconds / 10))


def is_login_node() -> bool:
    """Return whether this machine is a login node: sbatch is installed, and this process runs in no SLURM job."""
    return shutil.which("sbatch") is not None and not os.environ.get("SLURM_JOB_ID")
