"""Checking before training that initial weights fit, and that they have not seen the test images."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from ablations.planning.jobs import Job
from results import store
from vitcore.config import Config
from vitcore.data.lookup import describe
from vitcore.identity import trial_id
from vitcore.options import ConfigError
from vitcore.training import distillation, init_from, transfer
from vitcore.training.teacher import parent_of

GO_ON = ("finished", "interrupted", "running")  # states of trials that others may start from once they have finished


def check(config: Config, parent: Config | None) -> None:
    """Raises ConfigError if the weights of the parent trial, or of the file in init_from, do not fit."""
    if parent is not None:
        check_no_leak(config, parent)
        (distillation if parent_of(config) == "teacher" else transfer).check(config, parent)
    elif config.init_from != init_from.NONE and not init_from.is_trial(config.init_from):
        transfer.check(config, read_shapes(config.init_from, init_from.fingerprint(config.init_from)["sha256"]))


@cache  # a plan asks for every arm
def read_shapes(path: str, sha256: str) -> transfer.Weights:
    """The weights in a file as meta tensors. Raises ConfigError. sha256: part of the cache key."""
    return {name: tensor.to("meta") for name, tensor in transfer.read(path).items()}


def check_no_leak(config: Config, parent: Config) -> None:
    """Raises ConfigError if the parent trained on this trial's test images: another data_seed of the same folds."""
    about = describe(config.data)
    if about.folds and about.fingerprint == describe(parent.data).fingerprint and config.data_seed != parent.data_seed:
        raise ConfigError(
            f"data_seed={config.data_seed}: {named_parent(config)} was trained on images that this tests: "
            f"{parent.data_seed}, as there"
        )


def ancestors(config: Config, runs: Path) -> list[Job]:
    """The jobs in `runs` that a config starts from, oldest first, back to the nearest one that has weights.

    Trials without weights are trained again; interrupted ones are resumed. Raises ConfigError if a trial is missing
    or cannot be started from.
    """
    found: list[Job] = []
    while link := parent_of(config):
        trial = store.trial(runs, getattr(config, link))
        state = trial.state()
        if state.status not in GO_ON:
            raise ConfigError(f"{named_parent(config)}: {state.status} in {runs}: a finished trial, or a file")
        parent = Config(**trial.config())
        check(config, parent)
        found.insert(0, Job(trial.id, parent.model_dump(), "train", ""))
        if state.status == "finished" and state.weights.exists():
            break
        if trial_id(parent) != trial.id:
            raise ConfigError(
                f"{named_parent(config)}: its weights are not in {runs}, and today it would be another trial: its data "
                "or the code of its parts changed"
            )
        config = parent
    else:
        check(config, None)
    return [replace(job, parents=parent_names(found[:place])) for place, job in enumerate(found)]


def named_parent(config: Config) -> str:
    """The setting that names its parent, with the trial's id."""
    return f"{(link := parent_of(config))}={getattr(config, link)}"


def parent_names(before: Sequence[Job]) -> dict[str, str]:
    """Parent id -> name, nearest first."""
    return {job.id: f"trial {job.id}" for job in reversed(before)}
