"""Handling out-of-memory errors by smaller pieces of work, and the memory that images may take."""

import ctypes
import gc
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import torch

from vitcore.runtime.memory_limits import host_limits, process_limits

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
    """The smallest possible piece of work does not fit into memory."""


def out_of_memory(error: BaseException) -> bool:
    """Tell whether an error means that memory ran out, so that smaller micro-batches may help."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    signs = (*SIGNS, NO_PRIMITIVE) if any(process_limits()) else SIGNS  # without one there is always room for code
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


def shrinking(work: Callable[[int], Result], size: int, indivisible: str = "") -> tuple[Result, int]:
    """Run `work(size)`, halving the size each time memory runs out; return the result and the size that fits.

    Raises OutOfMemory at size 1, or at once if `indivisible` says why the work cannot be divided.
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
    """Keep freed memory in this process for its next tensors.

    glibc returns blocks of 32 MB and more to the kernel, which has to zero their pages again. Other C libraries have no
    such setting.
    """
    with suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 2**30)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def release() -> None:
    """Return the GPU's cached blocks to other processes, if any GPU was used."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch leaves it unannotated
        gc.collect()  # a compiled model refers to itself and holds its tensors until then
        torch.cuda.empty_cache()


def capacity(device: torch.device) -> float:
    """Return the bytes of the device's memory that this process may use."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    return min(host_limits())


def room(device: torch.device) -> float:
    """Return the bytes of images that may stay in memory: a quarter of a GPU's, or of a core's share."""
    return SHARE * capacity(device) / (1 if device.type == "cuda" else host_cores())


def host_cores() -> int:
    """Return the cores that this process may use, where the system tells (macOS does not)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
