"""The CPU of this machine. Importing this module does not import torch."""

import platform
from contextlib import suppress
from pathlib import Path


def processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "cpu"
