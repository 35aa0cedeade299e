"""Out of memory: the same work in smaller pieces. And how much memory images may take."""

import ctypes
import gc
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import torch

Result = TypeVar("Result")
SHARE = 0.25  # of the memory, for images that stay in it
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h

# What says so besides torch.OutOfMemoryError, which is a RuntimeError too: the CPU's allocator, the CUDA runtime and
# the libraries above it.
SIGNS = (
    "out of memory",
    "can't allocate memory",
    "Cannot allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
NO_PRIMITIVE = "could not create a primitive"  # oneDNN's, where its code finds no room, and for errors of its own


class OutOfMemory(RuntimeError):
    """The smallest piece that may be does not fit: one image, unless they are tied to each other."""


def out_of_memory(error: BaseException) -> bool:
    """Whether smaller pieces may help."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    signs = (*SIGNS, NO_PRIMITIVE) if any(process_limits()) else SIGNS  # without one there is always room for code
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


def shrinking(work: Callable[[int], Result], size: int, indivisible: str = "") -> tuple[Result, int]:
    """`work(size)`, and the size at which it fitted: halved, from `size` on, each time that memory runs out.

    Raises OutOfMemory at 1, and at once where the work is `indivisible`, which says why.
    """
    while True:
        try:
            return work(size), size
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            if indivisible:
                raise OutOfMemory(f"out of memory at a batch of {size}: {indivisible}") from error
            if size == 1:
                raise OutOfMemory("out of memory at micro-batch 1") from error
        size //= 2  # after the except: only now are the tensors in the error's frames free
        gc.collect()  # and those of what refers to itself
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # blocks of the sizes that no longer occur


def keep_freed() -> None:
    """Memory that is freed stays with this process, for its next tensors.

    glibc gives blocks of 32 MB and more back to the kernel, which has to zero their pages when the next is asked for.
    Other C libraries have no such setting.
    """
    with suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 2**30)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def release() -> None:
    """Return the GPU's cached blocks, which other processes may need; do nothing where none was used."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch leaves it unannotated
        gc.collect()  # a compiled model refers to itself and holds its tensors until then
        torch.cuda.empty_cache()


def room(device: torch.device) -> float:
    """Bytes of images that may stay in the device's memory: a quarter of a GPU's; of the host's a quarter over all
    cores, for there may be a worker on each."""
    if device.type == "cuda":
        return SHARE * torch.cuda.get_device_properties(device).total_memory
    return SHARE * min(host_limits()) / len(os.sched_getaffinity(0))


def host_limits() -> Iterator[float]:
    """What the machine has, and what the process is allowed: by its limits, and by its control groups, as SLURM's."""
    yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield from process_limits()
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers in ("", "memory"):
                yield from group_limits(Path("/sys/fs/cgroup", controllers), Path(group))


def process_limits() -> Iterator[float]:
    """ulimit -v and -d, where they are set: of a process's addresses, and of those for its own data."""
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        if (limit := resource.getrlimit(kind)[0]) != resource.RLIM_INFINITY:
            yield limit


def group_limits(root: Path, group: Path) -> Iterator[float]:
    """Of a control group and those that it is in: version 2, or version 1."""
    for folder in (group, *group.parents):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):
                yield int((root / folder.relative_to("/") / name).read_text())
