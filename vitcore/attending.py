"""Which form of attention a config trains with on a device: what a trial's record says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitcore.measure import bias_of

if TYPE_CHECKING:
    from vitcore.config import Config

FREE = "PyTorch's choice"  # by its own rule, which takes other kernels for a bias, and again for a learned one
PRODUCTS = "softmax between two products"  # vitcore.encoder.attend


def named(config: Config, device: str) -> str:
    """The form that a training of `config` has on `device`, cuda or cpu."""
    bias = bias_of(config)
    if device == "cpu":
        return PRODUCTS if bias == "learned" else FREE  # one kernel, with a mask and without
    return f"{FREE} with a {bias} bias" if bias else FREE
