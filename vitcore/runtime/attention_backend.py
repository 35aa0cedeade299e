"""Choose the kernel that computes attention: a rule on config and device.

By default PyTorch chooses. On a GPU it takes one kernel for attention alone, another one where something fixed is added
to the logits, and a third where that is learned: they differ in rounding, and in speed. The memory-efficient one is the
only fused one with the gradient of what is added (torch 2.14, derivatives.yaml); attention=pinned is that in all arms.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from torch.nn.attention import SDPBackend, sdpa_kernel

from vitcore.analysis.cost import bias_of

if TYPE_CHECKING:
    from vitcore.config import Config

FREE = "PyTorch's choice"
PRODUCTS = "softmax between two products"  # vitcore.model.encoder.attend
NAMES = {SDPBackend.EFFICIENT_ATTENTION: "memory-efficient", SDPBackend.MATH: "math"}
ALIGNED = {"float32": 4, "bf16": 8}  # the memory-efficient kernel takes heads of a multiple of it: 16 bytes


def pinned(config: Config, device: str) -> list[SDPBackend]:
    """Return the kernels to try on `device`, cuda or cpu, in this order; none: PyTorch chooses."""
    if device != "cuda" or config.attention == "fastest":
        return []
    if not config.model and (config.width // config.heads) % ALIGNED[config.precision]:
        return [SDPBackend.MATH]
    return [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]  # the second: for float64, or a part's own attention


def attending(config: Config, device: str) -> AbstractContextManager[Any]:
    """Compute attention within the block as the rule says."""
    backends = pinned(config, device)
    return sdpa_kernel(backends, set_priority=True) if backends else nullcontext()


def named(config: Config, device: str) -> str:
    """Return the name of the backend for a trial's record."""
    if (backends := pinned(config, device)) and not config.attention_dropout:
        return NAMES[backends[0]]
    if config.attention_dropout and not config.model:
        return PRODUCTS
    bias = bias_of(config)
    if device == "cpu":
        form = PRODUCTS if bias == "learned" else FREE  # one kernel, with a mask and without
        return f"{form} in float32" if config.precision == "bf16" and not config.model else form
    return f"{FREE} with a {bias} bias" if bias else FREE
