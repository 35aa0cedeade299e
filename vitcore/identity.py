"""The identity of a trial: its id is a hash of the resolved config.

Fields at their neutral value are left out, so that adding a field orphans no result; so are paths and how a trial runs.
Data enter by fingerprint, parts by their `numerics`. Golden ids are pinned in tests/vitcore/test_identity.py.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from vitcore.config import Config
from vitcore.data.lookup import describe
from vitcore.model.position import POSITION
from vitcore.options import Settings
from vitcore.sizes import of_architecture
from vitcore.training.init_from import fingerprint
from vitcore.training.teacher import identified
from vitcore.variants import VARIANTS

HOW_IT_RUNS = frozenset({"device", "threads", "compile", "cuda_graph", "attention", "micro_batch", "gpus"})

# The behaviour before the field existed. Frozen: independent of the default, never changed.
NEUTRAL: dict[str, Callable[[Config], Any]] = {
    "data_fraction": lambda config: 1.0,
    "data_seed": lambda config: config.seed,
    "label_smoothing": lambda config: 0.0,
    "evaluations": lambda config: 10,
    "options": lambda config: {},
    "model": lambda config: "",
    "position_at": lambda config: first_place(config),
    "final_norm": lambda config: "before",
    "registers": lambda config: 0,
    "head": lambda config: "linear",
    "head_init": lambda config: "zeros",
    "layer_scale": lambda config: 0.0,
    "qk_norm": lambda config: False,
    "init": lambda config: "unit-positions",
    "mlp": lambda config: "gelu",
    "norm": lambda config: "layer",
    "bias": lambda config: "all",
    "block": lambda config: "pre",
    "self_attention": lambda config: "full",
    "token_merging": lambda config: 0,
    "embedding_norm": lambda config: False,
    "optimizer": lambda config: "adamw",
    "layer_decay": lambda config: 1.0,
    "schedule": lambda config: "cosine",
    "weight_decay_on": lambda config: "matrices",
    "dropout": lambda config: 0.0,
    "attention_dropout": lambda config: 0.0,
    "patch_dropout": lambda config: 0.0,
    "drop_path": lambda config: 0.0,
    "augment": lambda config: "none",
    "augment_repeats": lambda config: 1,
    "random_erasing": lambda config: 0.0,
    "random_erasing_fill": lambda config: "constant" if config.random_erasing else config.random_erasing_fill,
    "mixup": lambda config: 0.0,
    "cutmix": lambda config: 0.0,
    "mix_prob": lambda config: 1.0 if config.mixup or config.cutmix else config.mix_prob,
    "mix_switch_prob": lambda config: 0.5 if config.mixup and config.cutmix else config.mix_switch_prob,
    "ema": lambda config: 0.0,
    "precision": lambda config: "float32",
    "objective": lambda config: "classification",
    "init_from": lambda config: "none",
    "teacher": lambda config: "none",
}

# Raised when a change alters what the rest of vitcore computes; 1 is neutral, as for a field.
NUMERICS = {"encoder": 1, "training": 1, "initialisation": 1}


def identity(config: Config) -> Settings:
    """Return the fields that identify a trial, as plain JSON values."""
    fields = {
        name: value
        for name, value in (dict(config) | {"options": options(config)}).items()
        if name not in HOW_IT_RUNS and not (name in NEUTRAL and value == NEUTRAL[name](config))
    }
    fields["data"] = describe(config.data).fingerprint
    if "init_from" in fields:
        fields["init_from"] = fingerprint(config.init_from)
    if "teacher" in fields:
        fields["teacher"] = identified(config.teacher)
    versions: Settings = {slot: variants[getattr(config, slot)].version(config) for slot, variants in VARIANTS.items()}
    if config.model:  # which has no part of ours, whatever the fields say
        fields, versions = (without_architecture(mapping) for mapping in (fields, versions))
    fields["parts"] = {slot: version for slot, version in versions.items() if slot in fields or version != 1}
    raised = {name: number for name, number in NUMERICS.items() if number != 1}
    return fields | ({"numerics": raised} if raised else {})


def without_architecture(mapping: Settings) -> Settings:
    return {name: value for name, value in mapping.items() if not of_architecture(name)}


def first_place(config: Config) -> str:
    """Return the default site of the chosen position."""
    places = POSITION[config.position].places
    return places[0] if places else ""


def options(config: Config) -> Settings:
    """Return the options of the chosen variants that differ from their neutral value."""
    neutral = {
        f"{slot}.{option}": value
        for slot, variants in VARIANTS.items()
        for option, value in variants[getattr(config, slot)].neutral_options().items()
    }
    return {key: value for key, value in config.options.items() if key not in neutral or value != neutral[key]}


def digest(fields: Settings) -> str:
    """Return 12 hex digits of the sha256 of the canonical JSON of `fields`."""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def trial_id(config: Config) -> str:
    """Return the id of a trial: equal configs have equal ids, however they were spelled."""
    return digest(identity(config))


def arm_key(config: Config) -> str:
    """Return the identity without its seeds; all trials of an arm share this key."""
    return digest(unseeded(config))


def unseeded(config: Config) -> Settings:
    return {name: value for name, value in identity(config).items() if name not in ("seed", "data_seed")}


def trial_ids(
    config: Config,
    seeds: Iterable[int],
    data_seed: int | None,
    starts: Mapping[int, str] | None = None,
    key: str = "init_from",
) -> Iterator[str]:
    """Return the ids of a trial with each of these seeds.

    data_seed: if written in the config; None: equal to the seed, and so neutral. starts: seed -> the trial that the
    setting `key` names.
    """
    shared = unseeded(config)
    for seed in seeds:
        own = {} if data_seed in (None, seed) else {"data_seed": data_seed}
        start = {key: starts[seed]} if starts else {}
        yield digest({**shared, "seed": seed, **own, **start})
