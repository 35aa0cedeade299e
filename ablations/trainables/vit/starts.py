"""Check before training that initial weights and teachers fit, and were not trained on the test images."""

from functools import cache

from commonfloor.options import ConfigError
from vitcore.config import Config
from vitcore.data.lookup import describe
from vitcore.training.parents import NONE, file_sha256, is_trial, parent_of
from vitcore.training.pretrained import Weights, check_start, check_teacher, read_weights


def check(config: Config, parent: Config | None) -> None:
    """Raise ConfigError if initial weights or a teacher do not fit, or were trained on this trial's test images.

    parent: the config of the trial that `config` starts or learns from, or None if it names no trial. Without a parent,
    a file in init_from is checked only for its fit. A teacher's file is not checked.
    """
    if parent is not None:
        check_no_leak(config, parent)
        if parent_of(config) == "teacher":
            check_teacher(config, parent)
        else:
            check_start(config, parent)
    elif config.init_from != NONE and not is_trial(config.init_from):
        check_start(config, read_shapes(config.init_from, file_sha256("init_from", config.init_from)))


@cache  # every arm of a plan is checked, often with the same file
def read_shapes(path: str, sha256: str) -> Weights:
    """Return the weights in a file as meta tensors. sha256: the file's checksum, a part of the cache key."""
    return {name: tensor.to("meta") for name, tensor in read_weights(path).items()}


def check_no_leak(config: Config, parent: Config) -> None:
    """Raise ConfigError if both configs use folds of the same data but differ in data_seed."""
    about = describe(config.data)
    if about.folds and about.fingerprint == describe(parent.data).fingerprint and config.data_seed != parent.data_seed:
        raise ConfigError(
            f"data_seed={config.data_seed}: {parent_text(config)} was trained on images that this trial "
            f"tests on; set data_seed={parent.data_seed}"
        )


def parent_text(config: Config) -> str:
    link = parent_of(config)
    return f"{link}={getattr(config, link)}"
