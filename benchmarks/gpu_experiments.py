"""Changes that might make a step faster, measured beside the product's step by gpu.py.

An experiment is a config and what is done otherwise while its step is made, captured and taken. Its first losses must
equal those of the step as it is; one that cannot run, or computes something else, says why in the place of a ratio.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention

from benchmarks.process import Source
from benchmarks.rivals import CHECKED, TOLERANCE, Ours, losses, refuse_unequal, sensitive_config
from vitcore import Config
from vitcore.model import self_attention
from vitcore.model.position import Context
from vitcore.model.self_attention import SelfAttention, attend
from vitcore.runtime import device
from vitcore.training import batches, state, step
from vitcore.training.batches import Batch
from vitcore.training.step import TrainStep
from vitcore.training.step_graph import WARM_UP

Change = Callable[[], AbstractContextManager[Any]]
Inputs = tuple[Tensor, Tensor, Tensor, Tensor | None]


class Changed:
    def __init__(self, config: Config, change: Change = nullcontext) -> None:
        self.change = change
        with change():
            self.training = Ours(config, Source(random=True).images(config))
            self.losses = losses(self.training, max(CHECKED, WARM_UP + 3))
        self.train_step = self.training.train_step
        if "compile_failed" in self.train_step.facts:
            raise ValueError(f"not compiled: {self.train_step.facts['compile_failed']}")

    def advance(self) -> None:
        with self.change():  # a graph does not need it any more
            self.training.advance()


@dataclass(frozen=True)
class Experiment:
    """A change of a config's training step."""

    settings: dict[str, Any]
    change: Change = nullcontext
    update: dict[str, Any] = field(default_factory=dict)
    compiling: dict[str, Any] = field(default_factory=dict)

    def pair(self, name: str, config: Config) -> tuple[Changed, Changed]:
        """Return the product's step and the changed one. Raises ValueError if their first losses differ."""

        @contextmanager
        def change() -> Iterator[None]:
            with compiled_as(name, **self.compiling), self.change():
                yield

        today = Changed(config := sensitive_config(config))
        other = Changed(config.model_copy(update=self.update), change)
        refuse_unequal("the experiment", today.losses[:CHECKED], other.losses[:CHECKED], TOLERANCE[config.precision])
        return today, other


def flexible() -> AbstractContextManager[Any]:
    """Add a learned bias with FlexAttention's `score_mod`, in one compiled kernel."""
    return patch.object(self_attention, "attend", attend_flexibly)


def attend_flexibly(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Compute attention as `attend`. On a CPU, FlexAttention has no backward pass, so the gradient is of `attend`."""
    if bias is None:
        return attend(q, k, v, bias)
    each = 0 if len(bias) == 1 else 1  # whether each image has its own
    table = bias.float()  # its gradient is summed by atomic operations

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + table[b * each, h, i, j]

    if q.device.type != "cpu":
        return flex_attention(q, k, v, score_mod)
    ours = attend(q, k, v, bias)
    with torch.no_grad():
        theirs = flex_attention(q.detach(), k.detach(), v.detach(), score_mod)
    return ours + (theirs - ours.detach())


def three_products() -> AbstractContextManager[Any]:
    """Compute queries, keys and values by three products, whose gradients are not stacked."""
    return patch.object(SelfAttention, "inputs", inputs_of_three)


def inputs_of_three(self: SelfAttention, x: Tensor, context: Context) -> Inputs:
    B, T, _ = x.shape
    biases = (None,) * 3 if self.qkv.bias is None else self.qkv.bias.chunk(3)
    products = (F.linear(x, *own) for own in zip(self.qkv.weight.chunk(3), biases, strict=True))
    q, k, v = (part.view(B, T, self.heads, -1).transpose(1, 2) for part in products)
    q, k = context.rotate(self.q_norm(q), self.layer), context.rotate(self.k_norm(k), self.layer)
    return q, k, v, context.bias(q, self.layer)


def low_weights() -> AbstractContextManager[Any]:
    """Keep bf16 copies of matrices beside the optimizer's float32 ones, so that no forward pass casts them."""
    return patch.object(state, "TrainStep", LowWeights)


class LowWeights(TrainStep):
    """A step, without micro-batches, whose dense layers have bf16 copies of their weights."""

    def __init__(self, *how: Any) -> None:
        super().__init__(*how)
        dense = (module for module in self.model.modules() if isinstance(module, nn.Linear | nn.Conv2d))
        self.low = [module.weight for module in dense]
        self.masters = [nn.Parameter(weight.detach().clone()) for weight in self.low]
        masters = dict(zip(self.low, self.masters, strict=True))
        self.parameters[:] = [masters.get(own, own) for own in self.parameters]
        for group in self.optimizer.param_groups:
            group["params"] = [masters.get(own, own) for own in group["params"]]
        for weight in self.low:
            weight.data = weight.data.bfloat16()
        self.optimizer_state.verified = True  # no checkpoint is written, which could not hold the masters' state

    def backward(self, batch: Batch, size: int) -> Tensor:
        loss = super().backward(batch, size)
        for master, weight in zip(self.masters, self.low, strict=True):
            assert weight.grad is not None
            master.grad = weight.grad.float()
            weight.grad = None
        return loss

    def update(self, inputs: batches.Inputs, divisible: bool = True) -> Tensor:
        loss = super().update(inputs, divisible)
        with torch.no_grad():
            torch._foreach_copy_(self.low, list[Tensor](self.masters))
        return loss

    def changed_tensors(self) -> list[Tensor]:
        return [*super().changed_tensors(), *(master.detach() for master in self.masters)]


def kernel(backend: SDPBackend) -> Change:
    """Compute attention with one of PyTorch's kernels; on a CPU with matrix products."""

    def use_kernels(config: Config, kind: str) -> AbstractContextManager[Any]:
        return sdpa_kernel(backend if kind == "cuda" else SDPBackend.MATH)

    return lambda: patch.object(device, "use_kernels", use_kernels)


def compiled_as(name: str, **how: Any) -> AbstractContextManager[Any]:
    """Compile under another cache key, since PyTorch's cache does not see the change. On a CPU only trace."""

    def compiled(model: nn.Module, attention: str) -> Callable[..., Any]:
        torch._dynamo.reset()
        torch.compiler.config.cache_key_tag = name
        traced = next(model.parameters()).device.type == "cpu"
        return torch.compile(model, dynamic=False, **({"backend": "eager"} if traced else how))

    return patch.object(step, "compile_model", compiled)


SMALL = {"width": 192, "depth": 6, "heads": 3, "batch": 256}
LARGE = {"model": "S/16", "batch": 512, "augment": "none", "image_size": 224, "classes": 1000}
TOKENS = {
    65: {"width": 384, "depth": 12, "heads": 6, "pool": "cls", "batch": 256, "patch": 4},
    197: {"width": 384, "depth": 12, "heads": 6, "pool": "cls", "batch": 256, "patch": 16, "image_size": 224},
}
EXPERIMENTS = {
    **{
        f"flex-{position}-{tokens}": Experiment({**size, "position": position}, flexible)
        for tokens, size in TOKENS.items()
        for position in ("relative", "relative-bias")
    },
    "three-products": Experiment(LARGE, three_products),
    "bf16-weights": Experiment(LARGE, low_weights),
    "cudnn": Experiment(LARGE, kernel(SDPBackend.CUDNN_ATTENTION)),
    "flash": Experiment(LARGE, kernel(SDPBackend.FLASH_ATTENTION)),
    "ema": Experiment(SMALL, update={"ema": 0.999}),
    "max-autotune": Experiment(  # last: it compiles for minutes
        LARGE, update={"compile": True}, compiling={"mode": "max-autotune-no-cudagraphs"}
    ),
}
