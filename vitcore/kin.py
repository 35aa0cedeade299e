"""What trials may differ in and still have their steps in common: trained as one, or of one pace. Loads no torch."""

from collections.abc import Mapping
from typing import Any

# Kin may be trained as one (vitcore.fused): neither the forward pass, nor the loss, nor the kind of optimiser reads it.
KIN = frozenset(
    {
        *("seed", "data_seed", "data_fraction", "val_fraction"),
        *("lr", "weight_decay", "warmup", "schedule", "steps", "evaluations"),
        *("init", "head_init", "init_from"),
    }
)
# Nor does a step's time, or its memory, depend on these, though it computes something else.
PACE = KIN | {"layer_decay", "weight_decay_on", "label_smoothing"}
# What a group of kin cannot be.
PLAIN = {"gpus": 1, "micro_batch": 0, "compile": False}


def common(config: Mapping[str, Any], free: frozenset[str] = KIN) -> dict[str, Any]:
    """The part of a resolved config that trials share which differ in `free` alone."""
    return {name: value for name, value in config.items() if name not in free}
