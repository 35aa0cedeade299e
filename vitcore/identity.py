"""The identity of a trial: the settings that its result depends on, from which the trial's id is hashed.

A field is left out at its neutral value, which stands for the behavior before the field existed, so that a new field
changes no id. A dataset enters as its fingerprint, and a variant as its version.
"""

import hashlib
import json

from commonfloor.options import JsonSettings
from vitcore.config import Config
from vitcore.data.lookup import describe
from vitcore.model.position import POSITION
from vitcore.settings import HOW_IT_RUNS
from vitcore.sizes import REFERENCE, is_architectural, is_reference, registered_digest
from vitcore.training.parents import LINKS, identifying_value
from vitcore.variants import chosen_variants

# Values that stand for the behavior before a field existed. Never change them, even if a default changes.
NEUTRAL: JsonSettings = {
    "data_fraction": 1.0, "evaluations": 10, "options": {},
    "model": "", "mlp": "gelu", "norm": "layer", "bias": "all", "block": "pre", "self_attention": "full",
    "embedding_norm": False, "final_norm": "before", "registers": 0, "head": "linear",
    "head_init": "zeros", "layer_scale": 0.0, "qk_norm": False, "init": "unit-positions",
    "optimizer": "adamw", "layer_decay": 1.0, "schedule": "cosine", "weight_decay_on": "matrices",
    "label_smoothing": 0.0, "dropout": 0.0, "attention_dropout": 0.0, "patch_dropout": 0.0, "drop_path": 0.0,
    "augment": "none", "augment_repeats": 1, "random_erasing": 0.0, "mixup": 0.0, "cutmix": 0.0, "ema": 0.0,
    "precision": "float32", "objective": "classification", "init_from": "none", "teacher": "none",
    "trainable": "all", "drop_path_by_layer": "linear", "random_erasing_fill": "constant", "mix_prob": 1.0,
    "mix_switch_prob": 0.5,
}  # fmt: skip

# Versions of code outside the variants. Increase a number when a change alters what the code computes. 1 is neutral.
NUMERICS = {"encoder": 1, "training": 1, "initialisation": 1}


def neutral_values(config: Config) -> JsonSettings:
    """Return field name -> neutral value, at which the field is left out. Some values depend on other fields."""
    places = POSITION[config.position].places
    neutral = {**NEUTRAL, "data_seed": config.seed, "position_at": next(iter(places), "")}
    # An option of something that is off has no effect, so any value is neutral.
    if not config.drop_path:
        neutral["drop_path_by_layer"] = config.drop_path_by_layer
    if not config.random_erasing:
        neutral["random_erasing_fill"] = config.random_erasing_fill
    if not (config.mixup or config.cutmix):
        neutral["mix_prob"] = config.mix_prob
    if not (config.mixup and config.cutmix):
        neutral["mix_switch_prob"] = config.mix_switch_prob
    return neutral


def identity(config: Config) -> JsonSettings:
    """Return name -> JSON value for the settings and versions that identify a trial; raise as `trial_id` does."""
    neutral = neutral_values(config)
    fields: JsonSettings = {}
    for name, value in (dict(config) | {"options": options(config)}).items():
        is_neutral = name in neutral and value == neutral[name]
        if name not in HOW_IT_RUNS and not is_neutral:
            fields[name] = value
    fields["data"] = describe(config.data).fingerprint
    for key in LINKS:
        if key in fields:
            fields[key] = identifying_value(key, getattr(config, key))
    versions: JsonSettings = {slot: variant.version(config) for slot, variant in chosen_variants(config).items()}
    if config.model:  # which has no part of this package, whatever the fields say
        fields = {name: value for name, value in fields.items() if not is_architectural(name)}
    if is_reference(config.model):
        digest = registered_digest(config.model.removeprefix(REFERENCE))
        if digest:
            versions["model"] = digest
    fields["parts"] = {slot: version for slot, version in versions.items() if slot in fields or version != 1}
    raised = {name: number for name, number in NUMERICS.items() if number != 1}
    if raised:
        fields["numerics"] = raised
    return fields


def options(config: Config) -> JsonSettings:
    """Return dotted key -> value for the chosen variants' options, without options at their neutral values."""
    neutral: dict[str, object] = {}
    for slot, variant in chosen_variants(config).items():
        for option, value in variant.neutral_options().items():
            neutral[f"{slot}.{option}"] = value
    return {key: value for key, value in config.options.items() if key not in neutral or value != neutral[key]}


def trial_id(config: Config) -> str:
    """Return the id of a trial, which is a hash of its identity. Equivalent configs have the same id.

    Raises ValueError or OSError if the data or a file of weights cannot be read, or a variant has no version.
    """
    text = json.dumps(identity(config), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
