"""The choice of the attention kernel from the config and the device.

By default, PyTorch chooses. On a GPU, its choice depends on whether a bias is fixed, learned or absent. Kernels differ
in rounding and speed. Of the fused kernels, only the memory-efficient one computes the gradient of a bias (torch 2.14,
derivatives.yaml). `attention=pinned` uses this kernel in all arms, or unfused products for unsupported head widths.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch.nn.attention import SDPBackend, sdpa_kernel

from vitcore.analysis.cost import bias_kind
from vitcore.settings import Settings

FREE = "PyTorch's choice"
PRODUCTS = "softmax between two products"  # as computed by vitcore.model.self_attention.attend
NAMES = {SDPBackend.EFFICIENT_ATTENTION: "memory-efficient", SDPBackend.MATH: "math"}
ALIGNED = {"float32": 4, "bf16": 8}  # the memory-efficient kernel requires head widths of a multiple of 16 bytes


def allowed_kernels(config: Settings, device: str) -> list[SDPBackend]:
    """Return the kernels that attention may use on "cuda" or "cpu", by preference, or [] if PyTorch chooses."""
    if device != "cuda" or config.attention == "fastest":
        return []
    if not config.model and (config.width // config.heads) % ALIGNED[config.precision]:
        return [SDPBackend.MATH]
    return [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]  # MATH: for inputs that the first does not support


def use_kernels(config: Settings, device: str) -> AbstractContextManager[Any]:
    kernels = allowed_kernels(config, device)
    return sdpa_kernel(kernels, set_priority=True) if kernels else nullcontext()


def kernel_name(config: Settings, device: str) -> str:
    """Return the name of the attention kernel on "cuda" or "cpu", for a trial's record."""
    kernels = allowed_kernels(config, device)
    if kernels and not config.attention_dropout:
        return NAMES[kernels[0]]
    if config.attention_dropout and not config.model:
        return PRODUCTS
    bias = bias_kind(config)
    if device == "cpu":
        name = PRODUCTS if bias == "learned" else FREE  # PyTorch uses the same kernel with and without a mask
        if config.precision == "bf16" and not config.model:
            return f"{name} in float32"
        return name
    if bias:
        return f"{FREE} with a {bias} bias"
    return FREE
