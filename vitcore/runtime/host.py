"""The CPU and the memory that a process may use, and the memory that a trial needs."""

import os
import platform
import resource
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commonfloor.options import ConfigError

# The least number of values that an optimizer keeps for each parameter. Optimizers that are not listed may keep none.
MOMENTS = {"adamw": 2, "adam": 2, "schedule-free": 2, "lion": 1, "muon": 1}


@dataclass(frozen=True)
class Cost:
    """The cost of a model. The last three fields are None for a model of timm or of a plug-in."""

    params: int
    flops: int  # of one forward pass for one image; a multiply-add counts as 2
    tokens: int | None  # the length of the sequence, including prefix tokens, before patches are dropped
    class_token: bool | None  # whether the model has a class token
    attention_bias: bool | None  # whether the position embedding adds a bias to the attention logits


def least_bytes(config: Mapping[str, Any], cost: Cost) -> int:
    """Return a lower bound, in bytes, on the memory of a training step that processes one image at a time."""
    numbers = 2 + MOMENTS.get(config["optimizer"], 0) + bool(config["ema"])
    inputs = 0  # of the blocks, for one image
    if cost.tokens:
        inputs = cost.tokens * config["width"] * config["depth"]
    bytes_per_input = 2 if config["precision"] == "bf16" else 4
    return int(4 * numbers * cost.params + bytes_per_input * inputs)


def check_memory(config: Mapping[str, Any], cost: Cost, limit: float) -> None:
    """Raise ConfigError if even a lower bound on the memory of a trial exceeds `limit` bytes."""
    least = least_bytes(config, cost)
    if least > limit:
        settings = ("model",) if config.get("model") else ("width", "depth", "image_size")
        sizes = ", ".join(f"{key}={config[key]}" for key in settings)
        raise ConfigError(
            f"{sizes}: training needs {least / 1e9:,.1f} GB at least ({cost.params:,} parameters); "
            f"there are {limit / 1e9:,.1f} GB"
        )


def host_limits() -> Iterator[float]:
    """Yield the machine's memory and each limit on this process (ulimit -v and -d, control groups), in bytes."""
    yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield from process_limits()
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers in ("", "memory"):
                yield from group_limits(Path("/sys/fs/cgroup", controllers), Path(group))


def process_limits() -> Iterator[float]:
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY:
            yield limit


def group_limits(root: Path, group: Path) -> Iterator[float]:
    """Yield the memory limits in bytes of a control group and its parents. group: its path below the mount `root`."""
    for folder in (group, *group.parents):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):
                yield int((root / folder.relative_to("/") / name).read_text())


def host_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has_bf16() -> bool:
    """Return whether the processor has instructions for bf16. Processors other than x86 count as having them."""
    flags = cpu_line("flags")
    return not flags or "bf16" in flags


def processor() -> str:
    return cpu_line("model name").partition(":")[2].strip() or platform.processor() or "cpu"


def cpu_line(*names: str) -> str:
    """Return the first line of /proc/cpuinfo that begins with one of `names`, or "" if there is none."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(names):
                return line
    return ""
