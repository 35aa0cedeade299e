"""How much memory the step of one side takes, measured in a process of its own that does nothing else.

What counts is what the steps add to a process that holds the model and the images: activations, gradients, the
optimiser's averages.
"""

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ablations import plugins
from ablations.bench_images import images
from ablations.bench_rivals import KINDS, Rival
from ablations.probing import with_steps
from vitcore.config import Config
from vitcore.device import computing, device_of
from vitcore.train import Training

Json = dict[str, Any]
STEPS = 3
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Source:
    """Where such a process finds images and parts."""

    data_dir: Path | None = None
    random: bool = False
    plugins: tuple[Path, ...] = ()


def taken(config: Config, names: Iterable[str], source: Source) -> dict[str, int | None]:
    """Bytes that steps add at their peak, a side; None where the system does not tell. Raises ValueError.

    Nor is it told of what is compiled on the CPU: compiling takes more of the same memory.
    """
    compiling = [name for name, kind in KINDS.items() if kind.tuned and device_of(config) == "cpu"]
    return {name: None if name in compiling else one(config, name, source) for name in names}


def one(config: Config, name: str, source: Source) -> int | None:
    order = {
        "config": config.model_dump(),
        "name": name,
        "data_dir": str(source.data_dir) if source.data_dir else None,
        "random": source.random,
        "plugins": [str(file) for file in source.plugins],
    }
    command = [sys.executable, "-m", "ablations.bench_memory"]
    done = subprocess.run(command, input=json.dumps(order), capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"memory of {name}: {(done.stderr.strip().splitlines() or ['killed'])[-1]}")
    found: int | None = json.loads(done.stdout)
    return found


def measured(config: Config, name: str, source: Source) -> int | None:
    """The same, in this process."""
    config = with_steps(config, STEPS)
    with computing(config):
        data = images(config, source.data_dir, source.random)
        side = Rival(KINDS[name], config, data) if name in KINDS else Training(config, data)
        device = data.mean.device
        before = held(device)
        for _ in range(STEPS):
            side.advance()
        peak = highest(device)
    return None if before is None or peak is None else peak - before


def held(device: torch.device) -> int | None:
    """Bytes in use now; from here on their peak is new."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    if not RESET.exists():
        return None
    RESET.write_text("5")
    return resident("VmRSS")


def highest(device: torch.device) -> int | None:
    """The peak since then."""
    return torch.cuda.max_memory_allocated() if device.type == "cuda" else resident("VmHWM")


def resident(key: str) -> int | None:
    """Of this process, in bytes; None where the system has no such file."""
    if not STATUS.exists():
        return None
    found = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return 1024 * int(found[key].split()[0])


def main() -> None:
    order = json.load(sys.stdin)
    source = Source(Path(order["data_dir"]) if order["data_dir"] else None, order["random"])
    plugins.load([Path(file) for file in order["plugins"]])
    print(json.dumps(measured(Config(**order["config"]), order["name"], source)))


if __name__ == "__main__":
    main()
