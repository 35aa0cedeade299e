"""A GPU that is not there: on it PyTorch's fake tensors, which have no values; on the host real ones.

What would make the host wait for a GPU, had it one, is an error here: numbers read back, shapes that depend on numbers,
and copies from pageable memory. See torch.cuda.set_sync_debug_mode, which tells it of a real one.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

GPU = torch.device("cuda", 0)
aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default, aten._foreach_copy_.default}


class WaitsError(Exception):
    """The host would wait until the GPU is through with all that it was given."""


class PretendedGPU(TorchDispatchMode):
    """Tells host from GPU; `strict`: waiting is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.strict = False
        self.pinned: list[Tensor] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if not any(map(on_gpu, tensors)) and torch.device(kwargs.get("device") or "cpu").type == "cpu":
            with unset_fake_temporarily():
                return self.on_host(function, args, kwargs)
        if function is aten._fused_sgd_.default:
            return None  # in place; fake tensors do not know it
        if self.strict and self.waits(function, tensors, args, kwargs):
            raise WaitsError(str(function))
        try:
            return function(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise WaitsError(str(function)) from error

    def on_host(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Memory is as good as pinned once that was asked for."""
        if function is aten.is_pinned.default:
            return self.is_pinned(args[0])
        if function is aten._pin_memory.default:
            self.pinned.append(args[0].clone())
            return self.pinned[-1]
        return function(*args, **kwargs)

    def is_pinned(self, tensor: Tensor) -> bool:
        return any(tensor is one for one in self.pinned)

    def waits(self, function: Any, tensors: Sequence[Tensor], args: Any, kwargs: Any) -> bool:
        """Besides what fake tensors refuse by themselves."""
        if function in COPIES:
            source = tensors[-1]
            target = kwargs.get("device") or tensors[0].device
            if torch.device(target).type == source.device.type:
                return False
            asynchronous = kwargs.get("non_blocking") or (function is aten.copy_.default and args[2:] == (True,))
            return not (asynchronous and self.is_pinned(source))
        if function is aten.index.Tensor:
            return indices_wait(args[1])
        if function in (aten.index_put_.default, aten.index_put.default):
            return indices_wait(args[1], filled=args[2].numel() == 1)
        return False


def on_gpu(tensor: Tensor) -> bool:
    return tensor.device.type == GPU.type


def indices_wait(indices: Sequence[Tensor | None], filled: bool = False) -> bool:
    """Places on the host are copied; a mask is turned into places, unless what it hides is filled with one number."""
    there = [one for one in indices if one is not None]
    return any(not on_gpu(one) or (one.dtype == torch.bool and not filled) for one in there)


def backward(loss: Tensor) -> None:
    """Gradients of zero for all that the loss depends on: PyTorch's engine asks a GPU for its streams."""
    nodes, seen = [loss.grad_fn], set()
    while nodes:
        if (node := nodes.pop()) is None or node in seen:
            continue
        seen.add(node)
        nodes += [before for before, _ in node.next_functions]
        if isinstance(leaf := getattr(node, "variable", None), Tensor):
            leaf.grad = torch.zeros_like(leaf)


@contextmanager
def pretended() -> Iterator[PretendedGPU]:
    with (
        patch.object(Tensor, "backward", backward),
        FakeTensorMode(allow_non_fake_inputs=True),
        PretendedGPU() as gpu,
    ):
        yield gpu
