"""The CPU of this machine. Importing this loads no torch."""

import platform
from contextlib import suppress
from pathlib import Path


def processor() -> str:
    """Return the CPU's model name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "cpu"
