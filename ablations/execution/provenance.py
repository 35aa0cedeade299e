"""Where a number comes from: the code, the versions and the machine, recorded with every attempt."""

import hashlib
import os
import platform
import socket
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results import store

if TYPE_CHECKING:
    from vitcore.config import Config

HOME = Path(__file__).parents[2]
PACKAGES = ("ablations", "results", "slurm", "vitcore")
VERSIONS = ("numpy", "scikit-learn", "timm", "torch", "torchvision")


@cache
def sources(home: Path = HOME) -> str:
    """Digest of the packages' own sources, or of those in a snapshot."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((home / package).rglob("*.py")):
            digest.update(str(path.relative_to(home)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def code(plugins: dict[str, str]) -> str:
    """What a failure counts against: the sources and the loaded plugins."""
    return "+".join([sources(), *sorted(plugins.values())])


@cache
def revision() -> str | None:
    """The git revision, marked where the checkout differs from it; None outside of a checkout."""
    if not (HOME / ".git").exists():
        return None
    command = ["git", "-C", str(HOME), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


@cache
def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in VERSIONS:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def environment(config: "Config", device: str, accelerator: str, plugins: dict[str, str]) -> dict[str, Any]:
    """What env.json holds. `device` is the hardware's name, `accelerator` cuda or cpu."""
    return {
        "schema": store.SCHEMA,
        "started": store.now(),
        "code": code(plugins),
        "revision": revision(),
        "plugins": {Path(path).name: digest for path, digest in plugins.items()},
        "host": socket.gethostname(),
        **({"node": node} if (node := os.environ.get("SLURMD_NODENAME")) else {}),  # as SLURM calls it
        "device": device,
        "accelerator": accelerator,
        "threads": config.threads,
        "ranks": config.gpus,
        **computed(config, accelerator),
        **versions(),
    }


def computed(config: "Config", accelerator: str) -> dict[str, Any]:
    """By which kernels, where there is a choice: each gives other last bits."""
    import torch  # late: commands that train nothing do without

    from vitcore.runtime.attention_backend import named

    found = {"compile": config.compile, "attention": named(config, accelerator)}
    found["matmul_precision"] = torch.get_float32_matmul_precision()
    if accelerator == "cuda":  # by default of convolutions alone
        allowed = {"products": torch.backends.cuda.matmul.allow_tf32, "convolutions": torch.backends.cudnn.allow_tf32}
        found["tf32"] = " and ".join(name for name, yes in allowed.items() if yes) or "none"
    return found
