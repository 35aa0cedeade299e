"""torch.compile for a process that trains many models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

GRAPHS = 10_000  # of one function: PyTorch compiles 8 by itself, and would leave a worker's ninth arm as it is


def compiled(model: nn.Module, backend: str = "inductor", attention: str = "pinned") -> Callable[..., Any]:
    """`model`, sharing its weights, with a graph for each shape of batch, whatever was compiled before it.

    Otherwise PyTorch takes a second shape as a sign that there will be more, and what a trial computes, to the last
    bits, would be another matter after other trials. Evaluations, of several shapes each, are better left to `model`.

    attention: as the config has it. A graph keeps the kernels it was compiled with, and PyTorch looks for it, in this
    process and in the cache on disk, by other things.
    """
    import torch._dynamo  # late: it takes seconds to load

    if torch.compiler.config.cache_key_tag != (tag := f"attention={attention}"):
        torch._dynamo.reset()
        torch.compiler.config.cache_key_tag = tag

    torch._dynamo.config.recompile_limit = GRAPHS
    torch._dynamo.config.accumulated_recompile_limit = GRAPHS
    return torch.compile(model, backend=backend, dynamic=False)
