"""The memory of a trial: dividing work that does not fit, reusing and releasing memory, and the room for images."""

import ctypes
import gc
import math
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import torch

from vitcore.runtime.host import host_cores, host_limits, process_limits
from vitcore.settings import Settings

Result = TypeVar("Result")
IMAGE_FRACTION = 0.25  # largest fraction of the memory for images that stay in it
MOST_IMAGES = 512  # of an evaluation batch
MOST_BYTES = 2**26  # of an evaluation batch on a CPU: larger batches are no faster, and packs read several ahead
M_TRIM_THRESHOLD = -1  # constants of malloc.h
M_MMAP_THRESHOLD = -3

# Parts of messages by which the CPU's allocator, the CUDA runtime and CUDA's libraries report a lack of memory.
SIGNS = (
    "out of memory",
    "can't allocate memory",
    "Cannot allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
NO_PRIMITIVE = "could not create a primitive"  # oneDNN's message, for lack of memory and for other errors


class OutOfMemory(RuntimeError):
    """The error for work that does not fit into memory and cannot be divided further."""


def out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    if NO_PRIMITIVE in str(error):  # without a limit, it has another cause
        return any(process_limits())
    return any(sign in str(error) for sign in SIGNS)


def call_shrinking(work: Callable[[int], Result], size: int, indivisible: str = "") -> tuple[Result, int]:
    """Return (`work(size)`, size) for the first size that fits. The size is halved each time that memory runs out.

    indivisible: why the work cannot be divided, or "" if it can. Raises OutOfMemory if nothing smaller can be tried.
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
        size //= 2  # after the except clause, whose end frees the tensors in the error's frames
        gc.collect()  # frees tensors in reference cycles
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # frees cached blocks of sizes that no longer occur


def keep_freed() -> None:
    """Make glibc keep freed blocks of 32 MB and more for later tensors, because the kernel would zero new pages."""
    with suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 2**30)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def release() -> None:
    """Free this process's cached GPU memory for other processes, if it has used a GPU."""
    if torch.cuda.is_initialized():
        gc.collect()  # frees the tensors of compiled models, which refer to themselves
        torch.cuda.empty_cache()


def capacity(device: torch.device) -> float:
    """Return the bytes of memory that this process may use on `device`: a GPU's total, or the smallest host limit."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    return min(host_limits())


def image_memory(device: torch.device) -> float:
    """Return the bytes that images may occupy: a quarter of `capacity`, divided by the number of cores on a CPU."""
    memory = IMAGE_FRACTION * capacity(device)
    return memory if device.type == "cuda" else memory / host_cores()


def evaluation_batch(config: Settings, device: torch.device) -> int:
    """Return the number of images to evaluate at once: 512, on a CPU limited to 64 MiB in float32, but at least 1."""
    if device.type != "cpu":
        return MOST_IMAGES
    return max(1, min(MOST_IMAGES, MOST_BYTES // (4 * config.channels * math.prod(config.image_shape))))
