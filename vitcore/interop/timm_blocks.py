"""Conversion of weights between timm's block classes, which join different parameters in one matrix.

All names are timm's. The common form has the names of timm's `Block`, with gate and value of an MLP in one matrix.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

Weights = dict[str, Tensor]

PARALLEL = {  # names in Block: names in ParallelScalingBlock
    "norm1": "in_norm",
    "attn.proj": "attn_out_proj",
    "attn.q_norm": "q_norm",
    "attn.k_norm": "k_norm",
    "mlp.fc2": "mlp_out_proj",
    "ls1": "ls",
}


def separated(weights: Weights, hidden: int) -> Weights:
    """Return the weights of timm's parallel blocks under the names of `Block`. hidden: the MLP's hidden width."""
    back = {theirs: ours for ours, theirs in PARALLEL.items()}
    found: Weights = {}
    for name, values in weights.items():
        start, rest = of_block(name)
        module, _, kind = rest.rpartition(".")
        if start and module == "in_proj":
            found[f"{start}mlp.fc1.{kind}"], found[f"{start}attn.qkv.{kind}"] = values[:hidden], values[hidden:]
        elif start and rest == "mlp_bias":
            found[f"{start}mlp.fc1.bias"] = values
        else:
            found[f"{start}{back.get(module, module)}.{kind}" if start else name] = values
    return found


def joined(weights: Weights) -> Weights:
    """Return the weights of `Block` under the names of timm's parallel block, the inverse of `separated`."""
    found: Weights = {}
    for name, values in weights.items():
        start, rest = of_block(name)
        module, _, kind = rest.rpartition(".")
        if not start:
            found[name] = values
        elif module == "mlp.fc1":
            qkv = weights.get(f"{start}attn.qkv.{kind}")
            key = "mlp_bias" if qkv is None else f"in_proj.{kind}"
            found[start + key] = values if qkv is None else torch.cat([values, qkv])
        elif module != "attn.qkv":
            found[f"{start}{PARALLEL.get(module, module)}.{kind}"] = values
    return found


def packed(weights: Weights) -> Weights:
    """Return the weights with gate and value of each SwiGLU MLP concatenated in one matrix, the gate first."""
    found: Weights = {}
    for name, values in weights.items():
        if "mlp.fc1_g." in name:
            found[name.replace("fc1_g", "fc1")] = torch.cat([values, weights[name.replace("fc1_g", "fc1_x")]])
        elif "mlp.fc1_x." not in name:
            found[name] = values
    return found


def of_block(name: str) -> tuple[str, str]:
    """Split a parameter name into its block's prefix ('blocks.3.', or '' outside of blocks) and the rest."""
    match = re.match(r"blocks\.\d+\.", name)
    return (match[0], name[match.end() :]) if match else ("", name)
