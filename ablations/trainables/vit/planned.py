"""What vitcore knows of a trial before it is trained. This module loads torch.

The number of steps of each arm is chosen to meet a study's budget. A longer run is never evaluated midway instead,
because its learning rate would not have decayed.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch

from ablations.trainables.vit.data import describe_data, enlargement_notes
from commonfloor.messages import joined_names
from commonfloor.options import ConfigError
from results.store.schemas.base import Settings
from results.store.schemas.metrics import Metric, readable_name
from vitcore.analysis.cost import measure
from vitcore.analysis.evals import EVAL, find, spellings
from vitcore.analysis.other_images import OtherImages
from vitcore.config import Config, merge
from vitcore.data import lookup, splits
from vitcore.data.test_sets import find_test_set
from vitcore.identity import identity as config_identity
from vitcore.model.stem import patch_sizes
from vitcore.runtime.compile_cache import compiles
from vitcore.runtime.device import compute_settings, device_of
from vitcore.runtime.device import hardware as device_name
from vitcore.settings import size_name
from vitcore.training.distributed import ALONE
from vitcore.training.evaluation import METRICS
from vitcore.training.objectives import OBJECTIVE
from vitcore.training.parents import NONE, file_sha256, is_trial, parent_of, weights_file
from vitcore.training.pretrained import (
    InitialWeights,
    check_start,
    check_teacher,
    read_start,
    teacher_for,
    untrained_teacher,
)
from vitcore.training.state import Training
from vitcore.variants import VARIANTS

WARM_UP, STEPS = 5, 50  # of a measurement
TOLERANCE = 0.02  # maximum relative error from rounding to whole steps
MEANT = {"steps": "steps", "epochs": "epochs", "flops": "training FLOPs"}


def config_of(settings: Settings) -> Config:
    """Return the config with resolved settings. Raises ConfigError if they are not valid."""
    return validated(json.dumps(settings, sort_keys=True))


@lru_cache(maxsize=4096)  # planning asks several times about each arm, and validation takes a millisecond
def validated(text: str) -> Config:
    return Config(**json.loads(text))


def values(key: str) -> list[Any]:
    if key not in VARIANTS:
        raise ValueError(f"{key}: all: only {joined_names(VARIANTS)} have entries to sweep")
    return list(VARIANTS[key])


def resolve_recipe(recipe: dict[str, Any], own: Settings) -> Settings:
    """Return a recipe's settings with the defaults of a trial's data, such as the image size, but its own data."""
    plain = Config(**merge(recipe, {"data": own["data"]})).model_dump()
    return plain | {"data": recipe.get("data", own["data"])}


def meet_budget(name: str, reference: Settings, settings: dict[str, Any]) -> dict[str, Any]:
    if name == "steps" and "epochs" not in settings:
        return settings
    base = config_of(reference)
    steps = base.steps
    if name != "steps":
        spent = epoch_fraction if name == "epochs" else training_flops
        exact = steps * spent(base) / spent(Config(**settings))
        steps = max(1, round(exact))
        if abs(steps - exact) > TOLERANCE * exact:
            raise ValueError(
                f"budget={name}: the same {MEANT[name]} as the baseline's are {exact:.2f} steps, and no whole number "
                f"is within {TOLERANCE:.0%}: give more steps"
            )
    return merge(settings, {"steps": steps})


def epoch_fraction(config: Config) -> float:
    train = lookup.describe(config.data).train_size * (1 - config.val_fraction) * config.data_fraction
    return config.batch / train


def training_flops(config: Config) -> int:
    """Return the FLOPs of one training step, three forward passes, averaged over patch sizes that steps draw."""
    each = [measure(config.model_copy(update={"patch": size})).flops for size in patch_sizes(config)]
    return 3 * round(sum(each) / len(each)) * config.batch


def cheaper(settings: Settings, varied: Collection[str]) -> Iterator[tuple[float, str]]:
    """See Trainable. The time is taken to be in proportion to training FLOPs."""
    config = Config(**settings)
    whole = measure(config).flops * config.steps
    patch = 1 if config.model else config.patch
    height, width = (max(patch, side // 2 // patch * patch) for side in config.image_shape)
    changes: dict[str, int | str] = {"image_size": size_name((height, width)), "steps": max(1, config.steps // 2)}
    if not config.model:
        changes["patch"] = 2 * patch
    for key in changes.keys() - set(varied):
        try:
            other = Config(**merge(config.model_dump(), {key: changes[key]}))
        except ConfigError:
            continue  # for example, if the patch size does not divide the image size
        yield measure(other).flops * other.steps / whole, f"{key}={changes[key]}"


def identity(settings: Settings) -> Settings:
    return config_identity(config_of(settings))


def describe(settings: Settings) -> Settings:
    config = config_of(settings)
    described = asdict(measure(config))
    described["train_flops"] = training_flops(config) * config.steps
    if config.objective == "classification":
        described["chance"] = 1 / config.classes
    return described


def summary(settings: Settings, recipe: str, recipe_text: str, has_stages: bool) -> str:
    config = config_of(settings)
    size = "trained at {} x {} pixels".format(*config.image_shape)
    length = "" if has_stages else f", {config.steps:,} steps of {config.batch} images"
    model = (
        config.model or f"A ViT of width {config.width} and depth {config.depth} with patches of {config.patch} pixels"
    )
    if recipe_text:
        return f"{recipe_text.strip().rstrip('.')}. {model}, {size}{length}."
    about = describe_data(settings)
    images = f"{about.train:,} images to train on and {about.test:,} to test on"
    if about.folds:
        images = f"{about.train + about.test:,} images in {about.folds} folds"
    what = f"{about.name}: {images}, {about.classes:,} classes"
    return f"{what}. {model}, {size}{length}; all else as in the recipe {recipe}."


def metrics(trials: Sequence[Settings]) -> list[Metric]:
    predicted = {OBJECTIVE[settings["objective"]].predicted for settings in trials}
    about = predicted.pop() if len(predicted) == 1 else ""
    metrics = []
    for name, kind in METRICS.items():
        label = f"{readable_name(name)} of {about}" if about else ""
        metrics.append(Metric(name=name, label=label, **kind))
    return metrics


def metrics_of(eval_name: str) -> list[Metric]:
    entry = find(eval_name)
    metrics = []
    for name, kind in entry.metrics.items():
        label = f"{kind['label']}{entry.label_suffix}" if "label" in kind else ""
        metrics.append(Metric(**{**kind, "name": entry.with_value(name), "eval": eval_name, "label": label}))
    return metrics


def known_evals() -> list[str]:
    return [spelled for entry in EVAL.values() for name in entry.metrics for spelled in spellings(name, entry)]


def check_eval(name: str, settings: Settings) -> None:
    entry = find(name)
    entry.check(config_of(settings))
    if isinstance(entry, OtherImages) and entry.data:
        check_test_images(entry.data)


@cache
def check_test_images(name: str) -> None:
    """Raise ConfigError if a folder of test images has a broken one. Packs are checked as they are read."""
    find_test_set(name).fingerprint()


def eval_caveats(names: Sequence[str], settings: Settings) -> list[str]:
    caveats = []
    for entry in map(find, names):
        if not isinstance(entry, OtherImages):
            continue
        if entry.size:
            caveats += [f"In evaluations, {note}." for note in enlargement_notes(settings["data"], entry.size)]
        elif entry.data:
            scored = len(find_test_set(entry.data).class_names)
            classes = settings["classes"]
            if scored < classes:
                caveats.append(f"On {entry.data}, only {scored:,} of {classes:,} classes compete for the prediction.")
    return caveats


def hardware(settings: Settings) -> tuple[bool, str]:
    config = config_of(settings | {"seed": 0})
    return device_of(config) == "cuda", device_name(config)


def step_seconds(settings: Settings, data_dir: Path | None, teacher: Settings | None) -> float:
    config = Config(**settings)
    if config.gpus > 1:
        raise ConfigError(f"--probe measures steps of one process, and gpus={config.gpus}")
    short = with_steps(config, WARM_UP + STEPS)
    with compute_settings(config):
        images = splits.load(short, data_dir).to(torch.device(device_of(config)))
        model = untrained_teacher(Config(**teacher), images) if teacher else teacher_for(config, images, ALONE, None)
        training = Training(short, images, teacher=model)
        before = seconds_after(training, WARM_UP)
        return (seconds_after(training, STEPS) - before) / STEPS


def with_steps(config: Config, steps: int) -> Config:
    """Return the config with `steps` training steps, compiled if the original config would be."""
    compile_ = compiles(config, device_of(config))
    return Config(**merge(config.model_dump(), {"steps": steps, "compile": compile_}))


def seconds_after(training: Training, steps: int) -> float:
    for _ in range(steps):
        training.advance()
    with training.off_the_clock():
        return training.seconds


def check_trial(settings: Settings, parent_settings: Settings | None) -> None:
    """See Trainable. Without a parent, a file in init_from is checked for its fit, and a teacher's file is not."""
    config = config_of(settings)
    splits.check(config)
    if parent_settings is not None:
        parent = config_of(parent_settings)
        check_no_leak(config, parent)
        if parent_of(config) == "teacher":
            check_teacher(config, parent)
        else:
            check_start(config, parent)
    elif config.init_from != NONE and not is_trial(config.init_from):
        start = read_shapes(config.init_from, file_sha256("init_from", weights_file(config.init_from)))
        start.check(config)
        check_start(config, start.weights)


@cache  # every arm of a plan is checked, often with the same file
def read_shapes(value: str, sha256: str) -> InitialWeights:
    """Return what init_from names, with meta tensors. sha256: the file's checksum, a part of the cache key."""
    start = read_start(value)
    return start._replace(weights={name: tensor.to("meta") for name, tensor in start.weights.items()})


def check_no_leak(config: Config, parent: Config) -> None:
    """Raise ConfigError if both configs use folds of the same data but differ in data_seed."""
    about = lookup.describe(config.data)
    is_same_data = about.fingerprint == lookup.describe(parent.data).fingerprint
    if about.folds and is_same_data and config.data_seed != parent.data_seed:
        link = parent_of(config)
        raise ConfigError(
            f"data_seed={config.data_seed}: {link}={getattr(config, link)} was trained on images that this trial "
            f"tests on; set data_seed={parent.data_seed}"
        )
