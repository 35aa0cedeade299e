"""Configs of settings, the training budget that all arms share (steps, epochs or FLOPs), and changes that save FLOPs.

The number of steps of each arm is chosen to meet the budget. A longer run is never evaluated midway instead, because
its learning rate would not have decayed.
"""

import json
from collections.abc import Collection, Iterator
from functools import lru_cache

from commonfloor.options import ConfigError
from results.store.schemas import Settings
from vitcore.analysis.cost import measure
from vitcore.config import Config, merge
from vitcore.data.lookup import describe
from vitcore.model.stem import patch_sizes
from vitcore.settings import size_name

TOLERANCE = 0.02  # maximum relative error from rounding to whole steps
MEANT = {"steps": "steps", "epochs": "epochs", "flops": "training FLOPs"}


def matched_steps(budget: str, reference: Config, config: Config) -> int:
    """Return the number of steps that gives `config` the budget of `reference`.

    Raises ValueError if no whole number of steps is within 2% of that budget. Also raises the errors of `measure`.
    """
    if budget == "steps":
        return reference.steps
    spent = epoch_fraction if budget == "epochs" else training_flops
    exact = reference.steps * spent(reference) / spent(config)
    steps = max(1, round(exact))
    if abs(steps - exact) > TOLERANCE * exact:
        raise ValueError(
            f"budget={budget}: the same {MEANT[budget]} as the baseline's are {exact:.2f} steps, and no whole number "
            f"is within {TOLERANCE:.0%}: give more steps"
        )
    return steps


def epoch_fraction(config: Config) -> float:
    """Return the fraction of an epoch that one step covers: the batch size over the number of images trained on."""
    train = describe(config.data).train_size * (1 - config.val_fraction) * config.data_fraction
    return config.batch / train


def training_flops(config: Config) -> int:
    """Return the FLOPs of one training step: 6 x the multiply-adds of a forward pass x the batch size.

    A backward pass costs twice as much as a forward pass. If steps draw their patch size at random, the FLOPs are
    averaged over the patch sizes.
    """
    each = [measure(config.model_copy(update={"patch": size})).flops for size in patch_sizes(config)]
    return 3 * round(sum(each) / len(each)) * config.batch


def remaining_flops(config: Config, varied: Collection[str]) -> Iterator[tuple[float, str]]:
    """Yield (remaining fraction of training FLOPs, `key=value`) for each cheaper setting, if valid and not `varied`."""
    whole = measure(config).flops * config.steps
    patch = 1 if config.model else config.patch
    height, width = (max(patch, side // 2 // patch * patch) for side in config.image_shape)
    cheaper: dict[str, int | str] = {"image_size": size_name((height, width)), "steps": max(1, config.steps // 2)}
    if not config.model:
        cheaper["patch"] = 2 * patch
    for key in cheaper.keys() - set(varied):
        try:
            other = Config(**merge(config.model_dump(), {key: cheaper[key]}))
        except ConfigError:
            continue  # for example, if the patch size does not divide the image size
        yield measure(other).flops * other.steps / whole, f"{key}={cheaper[key]}"


def config_of(settings: Settings) -> Config:
    """Return the config with resolved settings. Raises ConfigError if they are not valid."""
    return validated(json.dumps(settings, sort_keys=True))


@lru_cache(maxsize=4096)  # planning asks several times about each arm, and validation takes a millisecond
def validated(text: str) -> Config:
    return Config(**json.loads(text))
