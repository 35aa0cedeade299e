"""Conversion of weights between timm's block classes, which join different parameters in one matrix.

Names are timm's. In the common form, `mlp.fc1` has gate and value, and a parallel block has `mlp.fc1` and `attn.qkv`.
"""

from __future__ import annotations

import torch
from torch import Tensor

Weights = dict[str, Tensor]


def separated(weights: Weights, hidden: int) -> Weights:
    """Return weights with the joint input projections of parallel blocks split. hidden: the MLP's hidden width."""
    found: Weights = {}
    for name, values in weights.items():
        if ".in_proj." in name:
            found[name.replace("in_proj", "mlp.fc1")] = values[:hidden]
            found[name.replace("in_proj", "attn.qkv")] = values[hidden:]
        else:
            found[name.replace("mlp_bias", "mlp.fc1.bias")] = values
    return found


def joined(weights: Weights) -> Weights:
    """Return weights with the input projections of parallel blocks joined: the inverse of `separated`."""
    found: Weights = {}
    for name, values in weights.items():
        qkv = weights.get(name.replace("mlp.fc1", "attn.qkv"))
        if ".mlp.fc1." in name and qkv is not None:
            found[name.replace("mlp.fc1", "in_proj")] = torch.cat([values, qkv])
        elif ".attn.qkv." not in name:
            inside = name.startswith("blocks.")  # the attention pooling has an MLP of its own
            found[name.replace("mlp.fc1.bias", "mlp_bias") if inside else name] = values
    return found


def packed(weights: Weights) -> Weights:
    """Return the weights with gate and value of each SwiGLU MLP joined in one matrix, gate first."""
    found: Weights = {}
    for name, values in weights.items():
        if "mlp.fc1_g." in name:
            found[name.replace("fc1_g", "fc1")] = torch.cat([values, weights[name.replace("fc1_g", "fc1_x")]])
        elif "mlp.fc1_x." not in name:
            found[name] = values
    return found
