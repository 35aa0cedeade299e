"""Counts the cores, GPUs and nodes that this process may use, on its machine or in its SLURM job."""

import os
import re
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

DEVICES = Path("/dev")
NAMED = re.compile(r"\+?\d|GPU-|MIG-")  # a GPU in CUDA_VISIBLE_DEVICES; not -1, nor SLURM's NoDevFiles

CONTROL = {"": "memory.events", "memory": "memory.oom_control"}  # where control groups of version 2, and of 1, say it


def cores() -> int:
    """Count the usable cores: the smallest of CPU affinity, SLURM's allocation and the control group's quota."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    available = min(available, int(os.environ.get("SLURM_CPUS_PER_TASK", available)))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(available, int(quota) // int(period))) if quota != "max" else available
    except (OSError, ValueError):
        return available


def gpus() -> list[str]:
    """List the usable GPUs as CUDA_VISIBLE_DEVICES names them, up to the first invalid entry, as CUDA reads it.

    If it is not set they count from 0: in a container, the numbers of device files may start elsewhere.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return list(takewhile(NAMED.match, map(str.strip, visible.split(","))))
    return [str(number) for number, _ in enumerate(DEVICES.glob("nvidia[0-9]*"))]


def default_workers(ranks: int, gpus: int, cores: int) -> int:
    """Return the default number of concurrent trials, of `ranks` GPUs each, or as many processes without GPUs."""
    return gpus // ranks if gpus else max(1, cores // ranks)


def oom_kills() -> int:
    """Count the processes of this control group that the kernel has killed so far because memory ran out."""
    count = 0
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers in CONTROL:
                count += oom_kills_in(Path("/sys/fs/cgroup", controllers, group.lstrip("/"), CONTROL[controllers]))
    return count


def oom_kills_in(file: Path) -> int:
    """Return the kill count in a control group's file; 0 if there is none (older kernels)."""
    with suppress(OSError, ValueError):
        return int(dict(line.split() for line in file.read_text().splitlines()).get("oom_kill", 0))
    return 0


def nodes() -> int:
    """Return the number of nodes of this SLURM job. A trial on several GPUs takes an equal share of each."""
    return int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))
