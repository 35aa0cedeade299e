"""Completion and validation of a Settings, including its variants, their options and its sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from vitcore.analysis.cost import measure
from vitcore.data.lookup import describe
from vitcore.model.build import check_micro_batch, check_patch
from vitcore.model.initialization import INIT
from vitcore.model.pooling import POOLING, Pooling
from vitcore.model.position import POSITION, check_patches_may_leave
from vitcore.model.self_attention import SELF_ATTENTION
from vitcore.model.stem import patch_sizes
from vitcore.options import ConfigError
from vitcore.settings import Settings
from vitcore.sizes import REFERENCE, is_architectural
from vitcore.training.distributed import check_ranks
from vitcore.training.objectives import OBJECTIVE
from vitcore.training.parents import LINKS, NONE, is_trial, normalized
from vitcore.unknown_keys import joined_names, spelling_hint, unknown_key
from vitcore.variants import VARIANTS

PATCHES = 2**16  # largest number of patches per image; the size of attention maps is its square


def complete_parts(config: Settings) -> None:
    """Check and complete a new Settings in place, before it is shared; raise ConfigError if its settings do not fit."""
    put = partial(object.__setattr__, config)  # the record is frozen
    if not config.model:
        check_sizes(config)
    images = describe(config.data).train_size * (1 - config.val_fraction)
    if config.data_fraction * images < 1:
        raise ConfigError(f"data_fraction={config.data_fraction}: less than one of {images:,.0f} training images")
    for key in LINKS:
        put(key, normalized(key, getattr(config, key)))
    if config.model and config.init_from != "none":
        raise ConfigError(f"init_from={config.init_from}: model={config.model} has other parts: none")
    for key in config.options:
        if key.partition(".")[0] not in VARIANTS:
            spelled = f": options are spelled {', '.join(VARIANTS)} + '.name'"
            raise ConfigError(unknown_key(key, [*type(config).model_fields, *config.shorthands], spelled))
    # A reference model leaves only some slots open.
    slots = [slot for slot in VARIANTS if not (config.model and is_architectural(slot))]
    chosen = {slot: VARIANTS[slot][getattr(config, slot)] for slot in slots}
    records = {slot: config.options_of(slot, variant.Options) for slot, variant in chosen.items()}
    dumped = ((slot, record.model_dump(mode="json").items()) for slot, record in records.items())
    put("options", {f"{slot}.{option}": value for slot, values in dumped for option, value in values})
    if config.model:
        check_reference(config)
    else:
        put("position_at", place_of_position(config))
    for slot, variant in chosen.items():
        config.options.update({f"{slot}.{option}": value for option, value in variant.canonical(config).items()})
        variant.check(config)
    check_combinations(config)


def check_combinations(config: Settings) -> None:
    """Raise ConfigError if settings that are valid by themselves do not fit together."""
    check_teacher(config)
    if config.patch_dropout and not config.model:
        check_patches_may_leave(config, rate := f"patch_dropout={config.patch_dropout}")
        if config.objective == "masked-patch":
            raise ConfigError(f"{rate}: objective=masked-patch predicts patches, which have to be there: 0")
    if len(patch_sizes(config)) > 1:
        check_patches(config)
    if config.micro_batch:
        check_micro_batch(config)
    if config.gpus > 1:
        check_ranks(config)


def check_sizes(config: Settings) -> None:
    width, heads, patch, size = config.width, config.heads, config.patch, config.image_size
    for part, number, whole, total in (("heads", heads, "width", width), ("patch", patch, "image_size", size)):
        if total % number:
            allowed = joined_names(divisors(total, number))
            raise ConfigError(f"{part}={number} does not divide {whole}={total}: one of {allowed}")
    if (patches := (size // patch) ** 2) > PATCHES:
        raise ConfigError(f"patch={patch} of image_size={size}: {patches:,} patches an image: at most {PATCHES:,}")
    if round(width * config.mlp_ratio) < 1:
        least = f"more than {0.5 / width:g}, so that the MLP is not empty"
        raise ConfigError(f"mlp_ratio={config.mlp_ratio}: of width={width}: {least}")


def check_variant_names(values: Mapping[str, Any], fields: Iterable[str]) -> None:
    """Raise ConfigError for an unknown variant, or one in a wrong place: `swiglu=true`, or a value of `attention`."""
    if str(kind := values.get("attention")) in SELF_ATTENTION:
        raise ConfigError(f"attention={kind}: 'fastest' or 'pinned', the kernel; did you mean self_attention={kind}?")
    for key in values.keys() - set(fields):
        for slot in (slot for slot, variants in VARIANTS.items() if key in variants):
            raise ConfigError(unknown_key(key, otherwise=f": it is a value of {slot}; did you mean {slot}={key}?"))
    named: dict[str, Iterable[str]] = {**VARIANTS, "init": INIT}
    for field, known in named.items():
        if field in values and (name := values[field]) not in tuple(known):
            hint = spelling_hint(name, known) + ("; a plug-in's needs --plugin FILE" if field in VARIANTS else "")
            raise ConfigError(f"{field}={name}: one of {joined_names(known)}{hint}")


def check_teacher(config: Settings) -> None:
    if config.teacher != NONE and config.objective != "classification":
        raise ConfigError(f"teacher={config.teacher}: objective={config.objective} has no classes to teach: none")
    if is_trial(config.teacher) and is_trial(config.init_from):
        raise ConfigError(f"teacher={config.teacher}: init_from={config.init_from} is a trial too: one of both")
    if not config.options.get("objective.token"):
        return
    if config.model:
        raise ConfigError(f"objective.token=True: model={config.model} has no such token: False")
    if POOLING[config.pool].gather is not Pooling.gather:
        raise ConfigError(f"objective.token=True: pool={config.pool} reads every layer's class token alone: False")


def place_of_position(config: Settings) -> str:
    """Return the site of the position embedding, by default the first that its variant allows.

    The site is "" for `position=none`, even if `position_at` is set, and for a variant without a choice of sites.
    Raises ConfigError if the variant does not allow `position_at`.
    """
    places = POSITION[config.position].places
    known = list(dict.fromkeys(place for kind in POSITION.values() for place in kind.places))
    if config.position_at and config.position_at not in known:
        hint = spelling_hint(config.position_at, known)
        raise ConfigError(f"position_at={config.position_at}: one of {joined_names(places or known)}{hint}")
    if config.position == "none" or not (config.position_at or places):
        return ""
    if config.position_at and config.position_at not in places:
        allowed = f"one of {joined_names(places)}" if places else "it has no choice of place"
        raise ConfigError(f"position_at={config.position_at}: position={config.position}: {allowed}")
    return config.position_at or places[0]


def check_patches(config: Settings) -> None:
    patches = patch_sizes(config)
    sizes = f"stem.patches={patches}"
    if not OBJECTIVE[config.objective].labels:
        raise ConfigError(f"{sizes}: objective={config.objective} predicts patches of one size: []")
    for size in patches:
        try:
            check_patch(config, size)
        except ConfigError as error:
            raise ConfigError(f"{sizes}: {error}") from None


def divisors(number: int, near: int) -> list[int]:
    """Return the divisors of `number` that are nearest to `near`, at most 8, in ascending order."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    every = {*small, *(number // d for d in small)}
    return sorted(sorted(every, key=lambda d: (abs(d - near), d))[:8])


def check_reference(config: Settings) -> None:
    import timm  # late: takes seconds

    name = config.model.removeprefix(REFERENCE)
    if not timm.is_model(name):
        known = spelling_hint(name, timm.list_models())
        raise ConfigError(f"model={config.model}: timm {timm.__version__} has no such model{known}")
    if "." in name:
        raise ConfigError(f"model={config.model}: without the name of weights: timm/{name.partition('.')[0]}")
    if config.layer_decay != 1:
        raise ConfigError(f"layer_decay={config.layer_decay}: the layers of model={config.model} are not known: 1")
    try:
        measure(config)
    except ConfigError:
        raise
    except Exception as error:  # whatever building or running a timm model raises
        images = f"image_size={config.image_size}, channels={config.channels}"
        raise ConfigError(f"model={config.model} does not take {images}: {' '.join(str(error).split())}") from error
