"""Faults: bugs, bad input, lack of memory and machine faults, told apart by real messages."""

import errno
import importlib.util
from functools import partial
from pathlib import Path

import pytest
import torch

from ablations import faults
from ablations.faults import BUG, INPUT, MACHINE, MEMORY
from ablations.trainables.vit import training
from ablations.trainables.vit.training import fault
from commonfloor.options import ConfigError
from vitcore import Config
from vitcore.data.builtin import read_batch
from vitcore.data.splits import load

CUDA = "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be"
MESSAGES = [
    # bugs: a repeated one ends the trial; an assertion on the device ends the process
    ("mat1 and mat2 shapes cannot be multiplied (128x64 and 32x10)", BUG, False),
    ("CUDA error: device-side assert triggered\n" + CUDA, BUG, True),
    ("Indexing.cu:1255: indexSelectSmallIndex: Assertion `srcIndex < srcSelectDimSize` failed.", BUG, True),
    ("CUDA error: invalid configuration argument\n" + CUDA, BUG, False),
    ("Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!", BUG, False),
    # input: no second attempt
    ("CUDA error: no kernel image is available for execution on the device\n" + CUDA, INPUT, False),
    ("CUDA error: invalid device ordinal\n" + CUDA, INPUT, False),
    # memory
    ("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.15 GiB", MEMORY, False),
    ("CUDA error: out of memory\n" + CUDA, MEMORY, False),
    ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", MEMORY, False),
    ("[enforce fail at alloc_cpu.cpp:75] DefaultCPUAllocator: can't allocate memory: you tried to", MEMORY, False),
    ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", MEMORY, False),
    # the machine
    ("CUDA error: uncorrectable ECC error encountered\n" + CUDA, MACHINE, True),
    ("CUDA error: an illegal memory access was encountered\n" + CUDA, MACHINE, True),
    ("CUDA driver error: unknown error", MACHINE, True),
    ("Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized: CUDA_ERROR_X", MACHINE, True),
    ("CUDA error: uncorrectable NVLink error detected during the execution\n" + CUDA, MACHINE, True),
    ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle, opa, opb)`", MACHINE, True),
    ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", MACHINE, True),
    ("cuFFT error: CUFFT_INTERNAL_ERROR", MACHINE, True),
    ("NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled cuda error, NCCL version 2.21.5", MACHINE, True),
    ("ncclSystemError: System call (e.g. socket, malloc) or external library call failed", MACHINE, True),
    ("[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)", MACHINE, True),
    ("Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost. Reboot the system", MACHINE, True),
    ("No CUDA GPUs are available", MACHINE, True),
    ("the GPU is lost: it was there when this worker began", MACHINE, True),
    ("DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that", MACHINE, False),
    ("unable to write to file </torch_4711_0>: No space left on device (28)", MACHINE, False),
    ("[Errno 104] Connection reset by peer", MACHINE, False),
]


@pytest.mark.parametrize(("message", "kind", "fatal"), MESSAGES)
def test_message_is_understood(message: str, kind: str, fatal: bool) -> None:
    found = faults.classify(RuntimeError(message), fault)
    assert (found.kind, found.fatal) == (kind, fatal)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (torch.OutOfMemoryError("anything"), MEMORY),
        (MemoryError(), MEMORY),
        (OSError(errno.ESTALE, "Stale file handle"), MACHINE),
        (OSError(errno.EIO, "Input/output error"), MACHINE),
        (OSError(errno.EROFS, "Read-only file system"), MACHINE),
        (OSError(errno.EINVAL, "Invalid argument"), BUG),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), INPUT),
        (ConfigError("heads=3 does not divide width=16"), INPUT),
        (ValueError("CUDA error: of a user's part"), BUG),
        (KeyError("x"), BUG),
    ],
)
def test_type_is_understood(error: Exception, kind: str) -> None:
    assert faults.classify(error, fault).kind == kind


def test_missing_and_damaged_data_are_input_and_a_parts_own_value_error_is_not(tmp_path: Path) -> None:
    """A ValueError is bad input only if our own modules for data and config raise it."""
    assert all(map(importlib.util.find_spec, (*faults.CHECKED, *training.CHECKED)))
    (tmp_path / "batch").write_bytes(b"damaged")
    readers = (partial(load, Config(data="cifar10"), tmp_path), partial(read_batch, tmp_path / "batch", "0" * 32))
    for read in readers:
        with pytest.raises(ValueError) as ours:
            read()
        assert faults.classify(ours.value, fault).kind == INPUT
    part = compile("raise ValueError", "vitcore/data/pack.py", "exec")
    for name in ("pack", "vitcore.database"):
        with pytest.raises(ValueError) as theirs:
            exec(part, {"__name__": name})
        assert faults.classify(theirs.value, fault).kind == BUG


def test_place_names_the_innermost_frames() -> None:
    def fall() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError) as fallen:
        fall()
    kind, *frames = faults.fault_location(fallen.value)
    assert kind == "KeyError"
    assert frames[-1].startswith("test_faults.py:fall:")
