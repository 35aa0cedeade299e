"""The table of all slots, with their base classes and their dictionaries of variants.

Trial ids, validation, plug-ins, contract tests and `ablate list --variants` read this table. Add a new variant in the
file of its slot, not in this file.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from vitcore.data.augmentation.augment import AUGMENT, Augment
from vitcore.model.block import BLOCK, Block
from vitcore.model.head import HEAD, Head
from vitcore.model.initialization import INIT, Part
from vitcore.model.mlp import MLP, FeedForward
from vitcore.model.norm import NORM, Norm
from vitcore.model.pooling import POOLING, Pooling
from vitcore.model.position import POSITION, Position
from vitcore.model.self_attention import SELF_ATTENTION, SelfAttention
from vitcore.model.stem import STEM, Stem
from vitcore.options import ConfigError, joined_names, spelling_hint, unknown_key
from vitcore.training.objectives import OBJECTIVE, Objective
from vitcore.training.optimization.optimizers import OPTIMIZER, Optimizer
from vitcore.training.optimization.schedules import SCHEDULE, Schedule
from vitcore.variant import Variant

SLOTS: Mapping[type[Variant], dict[str, Any]] = {
    Position: POSITION,
    Pooling: POOLING,
    Stem: STEM,
    Head: HEAD,
    FeedForward: MLP,
    Norm: NORM,
    Block: BLOCK,
    SelfAttention: SELF_ATTENTION,
    Objective: OBJECTIVE,
    Augment: AUGMENT,
    Optimizer: OPTIMIZER,
    Schedule: SCHEDULE,
}
BASES: Mapping[str, type[Variant]] = {base.slot: base for base in SLOTS}
VARIANTS: Mapping[str, dict[str, type[Variant]]] = {base.slot: variants for base, variants in SLOTS.items()}
PARTS = tuple(slot for slot, base in BASES.items() if issubclass(base, Part))  # the slots of the model itself


def check_variant_names(values: Mapping[str, Any], fields: Iterable[str]) -> None:
    """Raise ConfigError for an unknown variant, or one in a wrong place: `swiglu=true`, or a value of `attention`."""
    kernel = str(values.get("attention"))
    if kernel in SELF_ATTENTION:
        raise ConfigError(
            f"attention={kernel}: 'fastest' or 'pinned', the kernel; did you mean self_attention={kernel}?"
        )
    for key in values.keys() - set(fields):
        for slot, variants in VARIANTS.items():
            if key in variants:
                raise ConfigError(unknown_key(key, otherwise=f": it is a value of {slot}; did you mean {slot}={key}?"))
    named: dict[str, Iterable[str]] = {**VARIANTS, "init": INIT}
    for field, names in named.items():
        if field in values and values[field] not in tuple(names):
            hint = spelling_hint(values[field], names)
            if field in VARIANTS:
                hint += "; a plug-in's needs --plugin FILE"
            raise ConfigError(f"{field}={values[field]}: one of {joined_names(names)}{hint}")
