"""Using torch.compile in a process that trains many models, with a private cache on disk."""

import hashlib
import os
import platform
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from vitcore.model.stem import patch_sizes
from vitcore.runtime.host import cpu_line
from vitcore.settings import Settings

CACHE = "TORCHINDUCTOR_CACHE_DIR"
GRAPHS = 10_000  # largest number of graphs per function; with PyTorch's default of 8, a ninth arm would stay eager
LONG = 2_000  # steps: on an H200, compiling took 14 s for all seeds of an arm and saved 2.1 ms per step


def compiles(config: Settings, device: str) -> bool:
    """Return whether the model is compiled on `device`, "cuda" or "cpu"."""
    if config.compile != "auto":
        return config.compile
    return device == "cuda" and config.steps >= LONG and len(patch_sizes(config)) == 1  # each size would compile anew


def compile_model(model: nn.Module, backend: str = "inductor", attention: str = "pinned") -> Callable[..., Any]:
    """Return a compiled version of `model` that shares its weights and has one graph per batch shape.

    With dynamic shapes, rounding would depend on earlier trials. attention: the setting, a part of the cache key.
    """
    use_private_cache()
    import torch._dynamo  # late: it takes seconds to load

    tag = f"attention={attention}"
    if torch.compiler.config.cache_key_tag != tag:
        torch._dynamo.reset()
        torch.compiler.config.cache_key_tag = tag

    torch._dynamo.config.recompile_limit = GRAPHS
    torch._dynamo.config.accumulated_recompile_limit = GRAPHS
    return torch.compile(model, backend=backend, dynamic=False)


def use_private_cache() -> None:
    """Keep compiled code, which PyTorch unpickles, in a private folder, unless TORCHINDUCTOR_CACHE_DIR names another.

    Raises OSError if the folder cannot be created, and ValueError if it is a link or others may write to it.
    """
    guessable = os.path.join(tempfile.gettempdir(), "torchinductor_")
    if not os.environ.get(CACHE, guessable).startswith(guessable):
        return
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not home.is_absolute():
        home = Path.home() / ".cache"
    path = home / "vit-ablations"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.lstat(path)
    if not stat.S_ISDIR(folder.st_mode) or folder.st_uid != os.geteuid() or folder.st_mode & 0o022:
        needed = "your own folder and writable to you alone (chmod 700)"
        raise ValueError(f"{path}: holds code to run, so it must be {needed}")
    os.environ[CACHE] = str(path / "compiled" / instruction_set())


@cache
def instruction_set() -> str:
    """Return an 8-digit hexadecimal hash of the CPU's architecture and extensions, on which compiled code depends."""
    return hashlib.sha256(f"{platform.machine()} {cpu_line('flags', 'Features')}".encode()).hexdigest()[:8]
