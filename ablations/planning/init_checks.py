"""Whether a trial can start from the weights that it names, before anything trains: they fit, and nothing leaks."""

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
from vitcore.training import init_from, transfer

GO_ON = ("finished", "interrupted", "running")  # what may be started from, once it has been trained to its end


def check(config: Config, parent: Config | None) -> None:
    """Raises ConfigError where the weights of the trial `parent`, or those of the file that is named, do not fit."""
    if parent is not None:
        refuse_leak(config, parent)
        transfer.check(config, parent)
    elif config.init_from != init_from.NONE and not init_from.is_trial(config.init_from):
        transfer.check(config, shapes(config.init_from, init_from.fingerprint(config.init_from)["sha256"]))


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


def ancestors(config: Config, runs: Path) -> list[Job]:
    """The trials in `runs` that it starts from, farthest first, from the nearest whose weights are there.

    What lost its weights is trained again, and what was interrupted goes on. Raises ConfigError where a trial is not
    there or cannot be started from.
    """
    found: list[Job] = []
    while init_from.is_trial(config.init_from):
        trial = store.trial(runs, config.init_from)
        state = trial.state()
        if state.status not in GO_ON:
            raise ConfigError(f"init_from={config.init_from}: {state.status} in {runs}: a finished trial, or a file")
        parent = Config(**trial.config()["config"])
        check(config, parent)
        found.insert(0, Job(trial.id, parent.model_dump(), "train", ""))
        if state.status == "finished" and state.weights.exists():
            break
        if trial_id(parent) != trial.id:
            raise ConfigError(
                f"init_from={trial.id}: its weights are not in {runs}, and today it would be another trial: its data "
                "or the code of its parts changed"
            )
        config = parent
    else:
        check(config, None)
    return [replace(job, parents=called(found[:place])) for place, job in enumerate(found)]


def called(before: Sequence[Job]) -> dict[str, str]:
    """What a job is told of those that it starts from: nearest first, what each is called."""
    return {job.id: f"trial {job.id}" for job in reversed(before)}
