"""The identity of a trial: its id is a hash of the resolved config.

Fields at their neutral value are left out, so that adding a field orphans no result; so are paths and how a trial runs.
Data enter by fingerprint, parts by their `numerics`. Golden ids are pinned in tests/vitcore/test_identity.py.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping

from vitcore.config import Config
from vitcore.data.lookup import describe
from vitcore.model.position import POSITION
from vitcore.options import Settings
from vitcore.sizes import of_architecture
from vitcore.training.parents import LINKS, identified
from vitcore.variants import VARIANTS

HOW_IT_RUNS = frozenset({"device", "threads", "compile", "cuda_graph", "attention", "micro_batch", "gpus"})

# The behaviour before the field existed. Frozen: independent of the default, never changed.
NEUTRAL: Settings = {
    "data_fraction": 1.0, "evaluations": 10, "options": {},
    "model": "", "mlp": "gelu", "norm": "layer", "bias": "all", "block": "pre", "self_attention": "full",
    "token_merging": 0, "embedding_norm": False, "final_norm": "before", "registers": 0, "head": "linear",
    "head_init": "zeros", "layer_scale": 0.0, "qk_norm": False, "init": "unit-positions",
    "optimizer": "adamw", "layer_decay": 1.0, "schedule": "cosine", "weight_decay_on": "matrices",
    "label_smoothing": 0.0, "dropout": 0.0, "attention_dropout": 0.0, "patch_dropout": 0.0, "drop_path": 0.0,
    "augment": "none", "augment_repeats": 1, "random_erasing": 0.0, "mixup": 0.0, "cutmix": 0.0, "ema": 0.0,
    "precision": "float32", "objective": "classification", "init_from": "none", "teacher": "none",
}  # fmt: skip

# Raised when a change alters what the rest of vitcore computes; 1 is neutral, as for a field.
NUMERICS = {"encoder": 1, "training": 1, "initialisation": 1}


def neutral_values(config: Config) -> Settings:
    """Return the neutral value of every field that has one, including fields whose value depends on another."""
    places = POSITION[config.position].places
    mixes, mixes_both = config.mixup or config.cutmix, config.mixup and config.cutmix
    return {
        **NEUTRAL,
        "data_seed": config.seed,
        "position_at": places[0] if places else "",
        "random_erasing_fill": "constant" if config.random_erasing else config.random_erasing_fill,
        "mix_prob": 1.0 if mixes else config.mix_prob,
        "mix_switch_prob": 0.5 if mixes_both else config.mix_switch_prob,
    }


def identity(config: Config) -> Settings:
    """Return the fields that identify a trial, as plain JSON values."""
    neutral = neutral_values(config)
    fields = {
        name: value
        for name, value in (dict(config) | {"options": options(config)}).items()
        if name not in HOW_IT_RUNS and not (name in neutral and value == neutral[name])
    }
    fields["data"] = describe(config.data).fingerprint
    for key in LINKS:
        if key in fields:
            fields[key] = identified(key, getattr(config, key))
    versions: Settings = {slot: variants[getattr(config, slot)].version(config) for slot, variants in VARIANTS.items()}
    if config.model:  # a reference model has no part of ours, whatever the fields say
        fields, versions = (
            {name: value for name, value in mapping.items() if not of_architecture(name)}
            for mapping in (fields, versions)
        )
    fields["parts"] = {slot: version for slot, version in versions.items() if slot in fields or version != 1}
    raised = {name: number for name, number in NUMERICS.items() if number != 1}
    return fields | ({"numerics": raised} if raised else {})


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
    """Return the key that all trials of an arm share: a hash of the identity without its seeds."""
    return digest(unseeded(config))


def unseeded(config: Config) -> Settings:
    """Return the identity without its seeds."""
    return {name: value for name, value in identity(config).items() if name not in ("seed", "data_seed")}


def trial_ids(
    config: Config,
    seeds: Iterable[int],
    data_seed: int | None,
    starts: Mapping[int, str] | None = None,
    key: str = "init_from",
) -> Iterator[str]:
    """Return the ids of a trial with each of these seeds.

    data_seed: as written in the config; None: equal to the seed, and so neutral. starts: for each seed, the trial that
    the setting `key` names.
    """
    shared = unseeded(config)
    for seed in seeds:
        own = {} if data_seed in (None, seed) else {"data_seed": data_seed}
        start = {key: starts[seed]} if starts else {}
        yield digest({**shared, "seed": seed, **own, **start})
