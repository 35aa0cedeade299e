"""Out of memory: the same work in smaller pieces."""

from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")

# What says so besides torch.OutOfMemoryError, which is a RuntimeError too: the CPU's allocator, the CUDA runtime and
# the libraries above it.
SIGNS = (
    "out of memory",
    "can't allocate memory",
    "Cannot allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)


class OutOfMemory(RuntimeError):
    """The smallest piece that may be does not fit: one image, unless they are tied to each other."""


def out_of_memory(error: BaseException) -> bool:
    """Whether smaller pieces may help."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)


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
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # blocks of the sizes that no longer occur
