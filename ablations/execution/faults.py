"""What an exception means for a trial: is it the code's, the input's or the machine's, and does the process survive it.

The signs are what PyTorch, the CUDA libraries and the kernel write. Where several fit, the first counts.
"""

import errno
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

BUG, INPUT, MEMORY, MACHINE = "bug", "input", "memory", "machine"
FRAMES = 3  # innermost ones that make two tracebacks the same

MACHINE_ERRORS = {
    getattr(errno, name)
    for name in (
        *("ENOSPC", "EDQUOT", "EIO", "ESTALE", "EROFS", "EREMOTEIO", "ENOTCONN", "ENODEV", "ENXIO"),
        *("ETIMEDOUT", "ECONNRESET", "ECONNREFUSED", "ECONNABORTED", "EHOSTDOWN", "EHOSTUNREACH", "ENETUNREACH"),
    )
    if hasattr(errno, name)
}
MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
INPUT_FILES = {
    "config.py",
    "data.py",
    "datasets.py",
    "imagefolder.py",
    "pack.py",
    "worker.py",
}  # whose ValueErrors are told users


@dataclass(frozen=True)
class Fault:
    """kind: one of BUG, INPUT, MEMORY, MACHINE. fatal: the process's CUDA context is lost, another one must go on."""

    kind: str
    fatal: bool = False


LOST, PASSING = Fault(MACHINE, fatal=True), Fault(MACHINE)
# sign: what it means
SIGNS = {
    r"device-side assert|CUDA_KERNEL_ASSERT|Assertion .* failed": Fault(BUG, fatal=True),
    r"\bECC\b|\bNVLink\b": LOST,
    r"fallen off the bus|GPU is lost|\bXid\b|Unable to determine the device handle": LOST,
    r"CUDA error: invalid (argument|configuration argument)": Fault(BUG),
    r"no kernel image is available|not compiled with CUDA|invalid device ordinal": Fault(INPUT),
    r"\bNCCL\b|\bnccl[A-Z]\w*Error\b|collective operation timeout": LOST,
    r"CUDA( driver)? error|\bCUDA_ERROR_\w+": LOST,
    r"\bCU(BLAS|SOLVER|SPARSE|FFT)_(STATUS_)?(NOT_INITIALIZED|EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)": LOST,
    r"\bCUDNN_STATUS_(NOT_INITIALIZED|EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)": LOST,
    r"No CUDA GPUs are available|Found no NVIDIA driver|driver version is insufficient": LOST,
    r"DataLoader worker .*(killed by signal|exited unexpectedly)|Bus error": PASSING,
    r"No space left on device|Disk quota exceeded|Input/output error|Stale file handle": PASSING,
    r"Read-only file system|Remote I/O error|Transport endpoint": PASSING,
    r"Connection (reset|refused|closed)|timed out": PASSING,
}


class RankLost(RuntimeError):
    """Another process of the trial ended before the training did.

    What it said: its exception, judged where it was raised; or nothing, which is the machine's fault.
    node: SLURM's name of where it was, "" where that is not known; None: where this process is.
    """

    def __init__(
        self, said: str, fault: Fault = LOST, where: Sequence[str] = (), trace: str = "", node: str | None = None
    ) -> None:
        super().__init__(said)
        self.fault, self.where, self.trace, self.node = fault, list(where), trace, node


def classify(error: BaseException) -> Fault:
    from vitcore.options import ConfigError  # late: pydantic and torch, which `ablate status` does without
    from vitcore.runtime.memory import OutOfMemory, out_of_memory

    if isinstance(error, RankLost):
        return error.fault
    if isinstance(error, OutOfMemory) or out_of_memory(error):
        return Fault(MEMORY)
    if isinstance(error, (ConfigError, *MISSING)):
        return Fault(INPUT)
    if isinstance(error, OSError) and error.errno in MACHINE_ERRORS:
        return Fault(MACHINE)
    if type(error) is ValueError and place(error.__traceback__)[-1:] and innermost(error) in INPUT_FILES:
        return Fault(INPUT)
    if isinstance(error, RuntimeError | OSError):
        for sign, fault in SIGNS.items():
            if re.search(sign, str(error)):
                return fault
    return Fault(BUG)


def line(error: BaseException) -> str:
    """What it says, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def innermost(error: BaseException) -> str:
    """The file that raised it."""
    return place(error.__traceback__)[-1].partition(":")[0]


def place(trace: TracebackType | None) -> list[str]:
    """The innermost frames, as file:function:line: with the type, what makes two tracebacks the same."""
    frames = traceback.extract_tb(trace)[-FRAMES:]
    return [f"{Path(frame.filename).name}:{frame.name}:{frame.lineno}" for frame in frames]


def where(error: BaseException) -> list[str]:
    if isinstance(error, RankLost) and error.where:
        return error.where
    return [type(error).__name__, *place(error.__traceback__)]
