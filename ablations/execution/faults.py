"""Classifies exceptions: a bug, bad input, too little memory or a machine fault; and whether the process survives.

SIGNS are messages of PyTorch, the CUDA libraries and the kernel. The first that matches counts.
"""

import errno
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

BUG, INPUT, MEMORY, MACHINE = "bug", "input", "memory", "machine"
FRAMES = 3  # two tracebacks are the same if these innermost frames are

MACHINE_ERRORS = {
    getattr(errno, name)
    for name in (
        *("ENOSPC", "EDQUOT", "EIO", "ESTALE", "EROFS", "EREMOTEIO", "ENOTCONN", "ENODEV", "ENXIO"),
        *("ETIMEDOUT", "ECONNRESET", "ECONNREFUSED", "ECONNABORTED", "EHOSTDOWN", "EHOSTUNREACH", "ENETUNREACH"),
    )
    if hasattr(errno, name)
}
MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
INPUT_MODULES = ("vitcore.config", "vitcore.data", "ablations.execution.worker")  # their ValueErrors are for users


@dataclass(frozen=True)
class Fault:
    """A kind of fault: BUG, INPUT, MEMORY or MACHINE. fatal: the CUDA context is lost and the process must end."""

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
    """The loss of another rank before the training ended: its exception, or a machine fault if it reported none.

    node: SLURM's name of its node, "" if unknown; None: this process's node.
    """

    def __init__(
        self, said: str, fault: Fault = LOST, where: Sequence[str] = (), trace: str = "", node: str | None = None
    ) -> None:
        super().__init__(said)
        self.fault, self.where, self.trace, self.node = fault, list(where), trace, node


def classify(error: BaseException) -> Fault:
    """Return the kind of fault that an exception stands for."""
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
    if type(error) is ValueError and f"{raising_module(error)}.".startswith(tuple(f"{one}." for one in INPUT_MODULES)):
        return Fault(INPUT)
    if isinstance(error, RuntimeError | OSError):
        for sign, fault in SIGNS.items():
            if re.search(sign, str(error)):
                return fault
    return Fault(BUG)


def one_line(error: BaseException) -> str:
    """Return the exception's type and message on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def raising_module(error: BaseException) -> str:
    """Return the name of the module that raised an exception; "" if it has no traceback."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return str(frames[-1].f_globals.get("__name__", "")) if frames else ""


def innermost_frames(trace: TracebackType | None) -> list[str]:
    """Return the innermost frames as file:function:line, innermost last."""
    frames = traceback.extract_tb(trace)[-FRAMES:]
    return [f"{Path(frame.filename).name}:{frame.name}:{frame.lineno}" for frame in frames]


def fault_location(error: BaseException) -> list[str]:
    """Return type and innermost frames: equal for two exceptions with the same cause."""
    if isinstance(error, RankLost) and error.where:
        return error.where
    return [type(error).__name__, *innermost_frames(error.__traceback__)]
