"""Attention softmax(q k^T / sqrt(d_h) + bias) v, by PyTorch's fused kernel or by two matrix products."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def softmax_of(q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
    """Return the attention weights (..., T, T) for queries and keys (..., T, d_h), with `bias` added to the logits."""
    logits: Tensor = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    return (logits if bias is None else logits + bias).softmax(dim=-1)


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Return the output of attention (B, H, T, d_h) for queries, keys and values (B, H, T, d_h).

    bias: added to the logits, in a shape that expands to (B, H, T, T), or None. On a CPU, a learned bias takes two
    matrix products, because no fused kernel computes its gradient and PyTorch's fallback copies q and k once more. A
    CPU computes bf16 tensors in float32, because the gradient of its kernel is many times slower in bf16.
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
