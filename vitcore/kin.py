"""Kin: trials so much alike that they may be trained as one (vitcore.fused). Loads no torch."""

from collections.abc import Mapping
from typing import Any

# In what they may differ: nothing that the forward pass, the loss or the kind of optimiser reads.
FREE = frozenset(
    {
        *("seed", "data_seed", "data_fraction", "val_fraction"),
        *("lr", "weight_decay", "warmup", "schedule", "steps", "evaluations"),
        *("init", "head_init", "init_from"),
    }
)
# What a group cannot be.
PLAIN = {"gpus": 1, "micro_batch": 0, "compile": False}


def common(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a resolved config that kin share."""
    return {name: value for name, value in config.items() if name not in FREE}
