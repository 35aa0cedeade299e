"""Whether a trial can start from the weights that it names, before anything trains: they fit, and nothing leaks."""

from functools import cache
from pathlib import Path

from results import store
from vitcore import origin, transfer
from vitcore.config import Config, ConfigError
from vitcore.data import describe


def check(config: Config, parent: Config | None) -> None:
    """Raises ConfigError where the weights of the trial `parent`, or those of the file that is named, do not fit."""
    if parent is not None:
        refuse_leak(config, parent)
        transfer.check(config, parent)
    elif config.init_from != origin.NONE and not origin.is_trial(config.init_from):
        transfer.check(config, shapes(config.init_from, origin.fingerprint(config.init_from)["sha256"]))


@cache  # once a file: a plan asks for every arm
def shapes(path: str, sha256: str) -> transfer.Weights:
    """The weights in a file of this content, without their numbers. Raises ConfigError."""
    return {name: tensor.to("meta") for name, tensor in transfer.read(path).items()}


def refuse_leak(config: Config, parent: Config) -> None:
    """Raises ConfigError where each data seed tests other images and the parent's is another: it saw these."""
    about = describe(config.data)
    if about.folds and about.fingerprint == describe(parent.data).fingerprint and config.data_seed != parent.data_seed:
        raise ConfigError(
            f"data_seed={config.data_seed}: init_from={config.init_from} was trained on images that this tests: "
            f"{parent.data_seed}, as there"
        )


def check_trial(config: Config, runs: Path) -> None:
    """The same of a trial that is named by its id, which has to have finished. Raises ConfigError."""
    if not origin.is_trial(config.init_from):
        return check(config, None)
    trial = store.trial(runs, config.init_from)
    if (state := trial.state()).status != "finished":
        raise ConfigError(f"init_from={config.init_from}: {state.status} in {runs}: a finished trial, or a file")
    if not state.weights.exists():
        raise ConfigError(f"init_from={config.init_from}: its weights are gone from {runs}: another trial, or a file")
    check(config, Config(**trial.config()["config"]))
