"""Classify exceptions as bugs, invalid input, lack of memory or machine faults.

SIGNS maps patterns of error messages from PyTorch, the CUDA libraries and the kernel to faults. The first match counts.
"""

import errno
import re
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

BUG, INPUT, MEMORY, MACHINE = "bug", "input", "memory", "machine"
FRAMES = 3  # two tracebacks count as the same if they share this many innermost frames

MACHINE_ERRORS = {
    *("ENOSPC", "EDQUOT", "EIO", "ESTALE", "EROFS", "EREMOTEIO", "ENOTCONN", "ENODEV", "ENXIO"),
    *("ETIMEDOUT", "ECONNRESET", "ECONNREFUSED", "ECONNABORTED", "EHOSTDOWN", "EHOSTUNREACH", "ENETUNREACH"),
}
MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
CHECKED = ("ablations.execution.worker",)  # modules whose ValueErrors mean bad input


@dataclass(frozen=True)
class Fault:
    """The classification of an exception: BUG, INPUT, MEMORY or MACHINE."""

    kind: str
    fatal: bool = False  # whether the CUDA context is lost, so that the process must end
    says_all: bool = False  # whether the exception's message needs no type before it


LOST, PASSING = Fault(MACHINE, fatal=True), Fault(MACHINE)
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
    """Raised when another rank is lost before training ends.

    fault, where, trace: the classification, location and traceback that the lost rank reported. Without a report, the
    fault is LOST. node: SLURM's name of the lost rank's node; "" if unknown, None for the node of this process.
    """

    def __init__(
        self, said: str, fault: Fault = LOST, where: Sequence[str] = (), trace: str = "", node: str | None = None
    ) -> None:
        super().__init__(said)
        self.fault = fault
        self.where = list(where)
        self.trace = trace
        self.node = node


def classify(error: BaseException, of_trainable: Callable[[BaseException], Fault | None] = lambda error: None) -> Fault:
    """Return the fault behind an exception: a bug unless its type, place or message shows otherwise."""
    if isinstance(error, RankLost):
        return error.fault
    known_to_trainable = of_trainable(error)
    if known_to_trainable is not None:
        return known_to_trainable
    if isinstance(error, MemoryError):
        return Fault(MEMORY)
    if isinstance(error, MISSING) or (type(error) is ValueError and raised_in(error, CHECKED)):
        return Fault(INPUT)
    if isinstance(error, OSError) and errno.errorcode.get(error.errno or 0) in MACHINE_ERRORS:
        return Fault(MACHINE)
    if isinstance(error, RuntimeError | OSError):
        for sign, fault in SIGNS.items():
            if re.search(sign, str(error)):
                return fault
    return Fault(BUG)


def raised_in(error: BaseException, modules: Sequence[str]) -> bool:
    """Return whether an exception was raised in one of the modules, or in a module below one."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not frames:
        return False
    module = frames[-1].f_globals.get("__name__", "")
    return f"{module}.".startswith(tuple(f"{name}." for name in modules))


def fault_location(error: BaseException) -> list[str]:
    """Return an exception's type and innermost frames (file:function:line), or those that a lost rank reported."""
    if isinstance(error, RankLost) and error.where:
        return error.where
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    return [type(error).__name__, *(f"{Path(frame.filename).name}:{frame.name}:{frame.lineno}" for frame in frames)]
