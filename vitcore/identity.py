"""What makes two trials the same trial: the id is a hash of the resolved config.

Left out are fields at their neutral value (so that adding a field orphans no result), how it runs, and paths.
Data enter by fingerprint, parts by their `numerics`. Golden ids are pinned in tests/test_identity.py.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from vitcore.config import Config
from vitcore.data import describe
from vitcore.parts import PARTS

HOW_IT_RUNS = frozenset({"device", "threads", "micro_batch"})

# The behaviour before the field existed. Frozen: independent of the default, never changed.
NEUTRAL: dict[str, Callable[[Config], Any]] = {
    "data_fraction": lambda config: 1.0,
    "data_seed": lambda config: config.seed,
    "label_smoothing": lambda config: 0.0,
    "evaluations": lambda config: 10,
    "options": lambda config: {},
}

# Raised when a change alters what the rest of vitcore computes; 1 is neutral, as for a field.
NUMERICS = {"encoder": 1, "training": 1, "initialisation": 1}


def identity(config: Config) -> dict[str, Any]:
    """The fields that make the trial what it is, as plain JSON values."""
    fields = {
        name: value
        for name, value in (dict(config) | {"options": options(config)}).items()
        if name not in HOW_IT_RUNS and not (name in NEUTRAL and value == NEUTRAL[name](config))
    }
    fields["data"] = describe(config.data).fingerprint
    fields["parts"] = {slot: parts[getattr(config, slot)].version() for slot, parts in PARTS.items()}
    raised = {name: number for name, number in NUMERICS.items() if number != 1}
    return fields | ({"numerics": raised} if raised else {})


def options(config: Config) -> dict[str, Any]:
    """The options of the chosen variants that are not at their neutral value."""
    neutral = {
        f"{slot}.{option}": value
        for slot, parts in PARTS.items()
        for option, value in parts[getattr(config, slot)].neutral_options().items()
    }
    return {key: value for key, value in config.options.items() if key not in neutral or value != neutral[key]}


def digest(fields: dict[str, Any]) -> str:
    """12 hex digits of the canonical JSON of `fields`."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def trial_id(config: Config) -> str:
    """The name of the trial's folder: equal configs have equal ids, however they were spelt."""
    return digest(identity(config))


def arm_key(config: Config) -> str:
    """What the trials of one arm share: the identity without the seeds."""
    fields = identity(config)
    return digest({name: value for name, value in fields.items() if name not in ("seed", "data_seed")})
