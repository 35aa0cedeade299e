"""softmax(q k^T / sqrt(d_h) + bias) v: PyTorch's fused kernel, or two matrix products.

The products serve a learned bias on a CPU. Any bf16 on a CPU is computed in float32."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def softmax_of(q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
    """Return the weights (..., T, T) of q and k (..., T, d_h), written out."""
    logits: Tensor = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    return (logits if bias is None else logits + bias).softmax(dim=-1)


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Attention of q, k and v, each (B, H, T, d_h), with a bias that expands to (B, H, T, T).

    On a CPU no fused kernel has the gradient of a bias; two products copy q and k once less than PyTorch's fallback.
    The CPU kernel's gradient in bf16 takes many times as long as in float32, so bf16 is computed in float32.
    """
    if q.device.type == "cpu" and q.dtype == torch.bfloat16:
        with torch.autocast("cpu", enabled=False):
            return attend(q.float(), k.float(), v.float(), None if bias is None else bias.float())
    if bias is None or not bias.requires_grad or bias.device.type != "cpu":
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    B, H, T, d = q.shape
    q, k, v = (part.flatten(0, 1) for part in (q, k, v))  # (B H, T, d_h)
    logits = torch.baddbmm(bias.expand(B, H, T, T).flatten(0, 1), q, k.transpose(1, 2), alpha=d**-0.5)
    return torch.bmm(logits.softmax(dim=-1), v).view(B, H, T, d)
