"""What this process may use of its machine, or of its job of SLURM's: cores, GPUs, nodes."""

import os
import re
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

DEVICES = Path("/dev")
NAMED = re.compile(r"\+?\d|GPU-|MIG-")  # a GPU in CUDA_VISIBLE_DEVICES; not -1, nor SLURM's NoDevFiles

CONTROL = {"": "memory.events", "memory": "memory.oom_control"}  # where control groups of version 2, and of 1, say it


def cores() -> int:
    """The cores that this process may use: affinity, what SLURM gave to the task, and the control group's quota."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    available = min(available, int(os.environ.get("SLURM_CPUS_PER_TASK", available)))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(available, int(quota) // int(period))) if quota != "max" else available
    except (OSError, ValueError):
        return available


def gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; CUDA stops at the first that is none.

    Where it is not set they count from 0, whatever the numbers of their device files: a container may have some.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return list(takewhile(NAMED.match, map(str.strip, visible.split(","))))
    return [str(number) for number, _ in enumerate(DEVICES.glob("nvidia[0-9]*"))]


def at_once(ranks: int, gpus: int, cores: int) -> int:
    """How many trials run here at once by default, of `ranks` GPUs each, or of as many processes without GPUs."""
    return gpus // ranks if gpus else max(1, cores // ranks)


def memory_kills() -> int:
    """How many processes of this one's control group the kernel has ended so far because its memory ran out."""
    count = 0
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers in CONTROL:
                count += killed_of(Path("/sys/fs/cgroup", controllers, group.lstrip("/"), CONTROL[controllers]))
    return count


def killed_of(file: Path) -> int:
    """What a control group's file says of it; nothing where there is none, or an older kernel's, which says nothing."""
    with suppress(OSError, ValueError):
        return int(dict(line.split() for line in file.read_text().splitlines()).get("oom_kill", 0))
    return 0


def nodes() -> int:
    """Those of this job of SLURM's. A trial of several GPUs takes its share on each."""
    return int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))
