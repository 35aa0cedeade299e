"""The table of all slots, with their base classes and variants, and the validation of a Config by its parts."""

import sys
import traceback
from collections.abc import Mapping
from functools import partial
from typing import Any

from commonfloor.messages import joined_names, spelling_hint, unknown_key
from commonfloor.options import ConfigError, JsonSettings
from vitcore.analysis.cost import measure
from vitcore.data.augment import AUGMENT, Augment
from vitcore.data.lookup import describe
from vitcore.model.block import BLOCK, Block
from vitcore.model.build import check_micro_batch, check_patch_sizes
from vitcore.model.classifier import Classifier
from vitcore.model.head import HEAD, Head
from vitcore.model.initialization import INIT, Part
from vitcore.model.mlp import MLP, FeedForward
from vitcore.model.norm import NORM, Norm
from vitcore.model.pooling import POOLING, Pooling
from vitcore.model.position import POSITION, Position, check_patches_may_leave, position_site
from vitcore.model.self_attention import SELF_ATTENTION, SelfAttention
from vitcore.model.stem import STEM, Stem
from vitcore.settings import Settings
from vitcore.sizes import MODEL, REFERENCE, is_architectural, is_reference
from vitcore.training.distributed import check_ranks
from vitcore.training.objectives import OBJECTIVE, Objective
from vitcore.training.optimizers import OPTIMIZER, Optimizer
from vitcore.training.parents import LINKS, check_links, normalized
from vitcore.training.schedules import SCHEDULE, Schedule
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
    Classifier: MODEL,
}
BASES: Mapping[str, type[Variant]] = {base.slot: base for base in SLOTS}
VARIANTS: Mapping[str, dict[str, type[Variant]]] = {base.slot: variants for base, variants in SLOTS.items()}
PARTS = tuple(slot for slot, base in BASES.items() if issubclass(base, Part))  # the slots of the model itself


def check_variant_names(values: Mapping[str, Any]) -> None:
    """Raise ConfigError for an unknown variant, or one in a wrong place, as in `swiglu=true`."""
    kernel = str(values.get("attention"))
    if kernel in SELF_ATTENTION:
        raise ConfigError(
            f"attention={kernel}: 'fastest' or 'pinned', the kernel; did you mean self_attention={kernel}?"
        )
    for key in values.keys() - Settings.model_fields.keys():
        for slot, variants in VARIANTS.items():
            if key in variants:
                raise ConfigError(unknown_key(key, otherwise=f": it is a value of {slot}; did you mean {slot}={key}?"))
    named: dict[str, Mapping[str, Any]] = {**VARIANTS, "init": INIT}
    del named["model"]  # which `merge` checks
    for field, names in named.items():
        value = values.get(field, next(iter(names)))
        if not isinstance(value, str) or value not in names:
            hint = spelling_hint(value, names)
            if field in ("position", "augment") and isinstance(value, list):
                hint = f"; together: {'+'.join(map(str, value))}"
            if field in VARIANTS:
                hint += "; a plug-in's needs --plugin FILE"
            raise ConfigError(f"{field}={value}: one of {joined_names(names)}{hint}")


def complete_parts(config: Settings) -> None:
    """Check and complete a new Config in place, before it is shared; raise ConfigError if its settings do not fit."""
    put = partial(object.__setattr__, config)  # the record is frozen
    check_variant_names(dict(config))
    put("augment", AUGMENT.canonical(config.augment))
    check_data_fraction(config)
    for key in LINKS:
        put(key, normalized(key, getattr(config, key)))
    check_links(config)
    put("options", complete_options(config))
    if not config.model:
        put("position_at", position_site(config))
    for slot, variant in chosen_variants(config).items():
        for option, value in variant.canonical(config).items():
            config.options[f"{slot}.{option}"] = value
        variant.check(config)
    if config.model:
        check_other_model(config)
    if config.patch_dropout and not config.model:
        check_patches_may_leave(config, f"patch_dropout={config.patch_dropout}")
    check_patch_sizes(config)
    check_micro_batch(config)
    if config.gpus > 1:
        check_ranks(config)


def chosen_variants(config: Settings) -> dict[str, type[Variant]]:
    """Return slot -> chosen variant: of training, and of the parts of a ViT or of a plug-in's whole model."""
    slots = [slot for slot in VARIANTS if not (config.model and is_architectural(slot))]
    if config.model not in MODEL:
        slots.remove("model")
    return {slot: VARIANTS[slot][getattr(config, slot)] for slot in slots}


def complete_options(config: Settings) -> JsonSettings:
    """Return all options of the chosen variants, including defaults; raise ConfigError if one is unknown or invalid."""
    chosen = chosen_variants(config)
    for key, value in config.options.items():
        slot = key.partition(".")[0]
        if slot == "model" and slot not in chosen:
            raise ConfigError(f"{key}={value}: only a plug-in's model has options: set model to one")
        if slot not in VARIANTS:
            spelled = f": options are spelled {', '.join(VARIANTS)} + '.name'"
            raise ConfigError(unknown_key(key, [*type(config).model_fields, *config.shorthands], spelled))
    options: JsonSettings = {}
    for slot, variant in chosen.items():
        record = config.options_of(slot, variant.Options)
        for option, value in record.model_dump(mode="json").items():
            options[f"{slot}.{option}"] = value
    return options


def check_data_fraction(config: Settings) -> None:
    images = describe(config.data).train_size * (1 - config.val_fraction)
    if not images:
        raise ConfigError(f"data={config.data}: has test images alone: it is for evals such as test@{config.data}")
    if config.data_fraction * images < 1:
        raise ConfigError(f"data_fraction={config.data_fraction}: less than one of {images:,.0f} training images")


def check_other_model(config: Settings) -> None:
    """Raise ConfigError if a model of timm or of a plug-in is unknown, or does not fit the other settings."""
    if is_reference(config.model):
        check_name_of_timm(config.model.removeprefix(REFERENCE))
    if OBJECTIVE[config.objective].has_own_model():
        raise ConfigError(f"model={config.model}: objective={config.objective} works only with this package's ViT")
    if config.trainable != "all":
        raise ConfigError(f"trainable={config.trainable}: the parts of model={config.model} are not known: all")
    if config.drop_path_by_layer != "linear":
        raise ConfigError(f"drop_path_by_layer={config.drop_path_by_layer}: model={config.model} has its own: linear")
    if config.layer_decay != 1:
        raise ConfigError(f"layer_decay={config.layer_decay}: the layers of model={config.model} are not known: 1")
    try:
        measure(config)
    except ConfigError:
        raise
    except Exception as error:  # whatever building or running the model raises
        images = f"image_size={config.image_size}, channels={config.channels}"
        reason = " ".join(str(error).split())
        line = line_of(error, MODEL.get(config.model))
        raise ConfigError(f"model={config.model} does not take {images}: {reason}{line}") from error


def line_of(error: Exception, model: type | None) -> str:
    """Return " [FILE:LINE]", the innermost line of the model's file in the traceback, or "" if there is none."""
    file = getattr(sys.modules.get(model.__module__), "__file__", "") if model else ""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f" [{file}:{lines[-1]}]" if lines else ""


def check_name_of_timm(name: str) -> None:
    import timm  # late: takes seconds

    if not timm.is_model(name):
        hint = spelling_hint(name, timm.list_models())
        raise ConfigError(f"model={REFERENCE}{name}: timm {timm.__version__} has no such model{hint}")
    if "." in name:
        raise ConfigError(f"model={REFERENCE}{name}: without the name of weights: timm/{name.partition('.')[0]}")
