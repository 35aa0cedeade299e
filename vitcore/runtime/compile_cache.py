"""torch.compile for processes that train many models, and its cache on disk."""

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
GRAPHS = 10_000  # of one function: PyTorch compiles 8 by itself, and would leave a worker's ninth arm as it is
LONG = 1_000  # steps, from which on a GPU earns the minute that compiling takes


def compiles(config: Config, device: str) -> bool:
    """Tell whether the model is compiled on `device`, cuda or cpu; by default on a GPU for many steps."""
    if config.compile != "auto":
        return config.compile
    return device == "cuda" and config.steps >= LONG and len(config.patches) == 1  # each size would be compiled


def compiled(model: nn.Module, backend: str = "inductor", attention: str = "pinned") -> Callable[..., Any]:
    """`model`, sharing its weights, with a graph for each shape of batch, whatever was compiled before it.

    Otherwise PyTorch takes a second shape as a sign that there will be more, and what a trial computes, to the last
    bits, would be another matter after other trials. Evaluations, of several shapes each, are better left to `model`.

    attention: as the config has it. A graph keeps the kernels it was compiled with, and PyTorch looks for it, in this
    process and in the cache on disk, by other things.
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
    """Keep compiled code in the user's own cache folder, unless TORCHINDUCTOR_CACHE_DIR names another.

    PyTorch unpickles and loads what it finds there, so nobody else may write to it. Its own default is a folder in /tmp
    with a predictable name.
    """
    guessable = os.path.join(tempfile.gettempdir(), "torchinductor_")
    if os.environ.get(CACHE, guessable).startswith(guessable):
        os.environ[CACHE] = str(private_folder(cache_home() / "vit-ablations") / "compiled" / processor())


def cache_home() -> Path:
    """$XDG_CACHE_HOME, by default ~/.cache."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    return Path(configured) if configured.startswith("/") else Path.home() / ".cache"


def private_folder(path: Path) -> Path:
    """Create `path` with mode 0700 if missing.

    Raises ValueError if it is another user's, a link, no folder, or writable by others; OSError.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise ValueError(
            f"{path}: holds code to run, so it must be your own folder and writable to you alone (chmod 700)"
        )
    return path


@cache
def processor() -> str:
    """8 hex digits for a kind of CPU: code that was compiled for one may use instructions that another lacks."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(f"{platform.machine()} {features}".encode()).hexdigest()[:8]
