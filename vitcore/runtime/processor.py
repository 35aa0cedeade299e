"""The CPU of this machine. Reading this loads no torch."""

import platform
from contextlib import suppress
from pathlib import Path


def processor() -> str:
    """By its maker's name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "cpu"
