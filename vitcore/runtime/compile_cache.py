"""torch.compile in a process that trains many models, and its cache on disk."""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from vitcore.config import Config

CACHE = "TORCHINDUCTOR_CACHE_DIR"
GRAPHS = 10_000  # most graphs of one function: by default PyTorch compiles 8, and would leave a ninth arm eager
LONG = 1_000  # steps from which the minute that compiling takes pays off on a GPU


def compiles(config: Config, device: str) -> bool:
    """Tell whether the model is compiled on `device`, cuda or cpu; by default on a GPU for many steps."""
    if config.compile != "auto":
        return config.compile
    return device == "cuda" and config.steps >= LONG and len(config.patches) == 1  # each size would be compiled


def compiled(model: nn.Module, backend: str = "inductor", attention: str = "pinned") -> Callable[..., Any]:
    """Return the compiled `model`, which shares its weights and has a graph for each shape of batch.

    By default, PyTorch compiles a second shape as a dynamic one, so a trial's last bits would depend on the trials
    before it. Evaluations have several shapes and are better left to `model`.

    attention: the setting of the config. It enters the key of the cache, because a graph keeps its attention kernels.
    """
    use_private_cache()
    import torch._dynamo  # late: it takes seconds to load

    if torch.compiler.config.cache_key_tag != (tag := f"attention={attention}"):
        torch._dynamo.reset()
        torch.compiler.config.cache_key_tag = tag

    torch._dynamo.config.recompile_limit = GRAPHS
    torch._dynamo.config.accumulated_recompile_limit = GRAPHS
    return torch.compile(model, backend=backend, dynamic=False)


def use_private_cache() -> None:
    """Keep compiled code in a private cache folder, unless TORCHINDUCTOR_CACHE_DIR names another.

    PyTorch unpickles and runs the files in it, so nobody else may write to it. PyTorch's default is a folder in /tmp
    with a predictable name. Raises ValueError if others may write to the folder.
    """
    guessable = os.path.join(tempfile.gettempdir(), "torchinductor_")
    if os.environ.get(CACHE, guessable).startswith(guessable):
        os.environ[CACHE] = str(private_folder(cache_home() / "vit-ablations") / "compiled" / instruction_set())


def cache_home() -> Path:
    """Return $XDG_CACHE_HOME, by default ~/.cache."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    return Path(configured) if configured.startswith("/") else Path.home() / ".cache"


def private_folder(path: Path) -> Path:
    """Return `path`, created with mode 0700 if missing.

    Raises ValueError if it is another user's, a link, no folder, or writable by others; OSError if it cannot be made.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise ValueError(
            f"{path}: holds code to run, so it must be your own folder and writable to you alone (chmod 700)"
        )
    return path


@cache
def instruction_set() -> str:
    """Return 8 hex digits for the instructions of this CPU: compiled code may not run on a CPU with others."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(f"{platform.machine()} {features}".encode()).hexdigest()[:8]
