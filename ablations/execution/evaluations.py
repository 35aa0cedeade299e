"""Evals computed: from the winner's weights, whether it finished just now or long ago."""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from results import store
from results.store import evals
from results.store.files import MEMORY, read_bytes
from vitcore.analysis.evaluate import at_size, restored, seen_by
from vitcore.analysis.fewshot import few_shot
from vitcore.analysis.interpret import IMAGES, inspect
from vitcore.config import Config
from vitcore.model.build import Model, Reference
from vitcore.runtime.device import computing

Json = dict[str, Any]
Computed = tuple[Json, evals.Arrays | None]  # metrics, notes, details; arrays, where there are any
Compute = Callable[[Model, Path | None], Computed]  # of the model, given where data lie


def evaluate(trial: store.Trial, name: str, data_dir: Path | None, code: str, compute: Compute | None = None) -> None:
    """Computes and writes one eval of a finished trial; by `compute`, if that is given, else as its name says.

    Raises ValueError where the weights or the data are not there, or where the model does not take the images.
    """
    config = Config(**trial.config()["config"])
    payload = weights(trial)
    with computing(config):
        content, arrays = (compute or by_name(name))(restored(config, payload), data_dir)
    evals.write(trial, name, hashlib.sha256(payload).hexdigest(), {**content, "code": code}, arrays)


def weights(trial: store.Trial) -> bytes:
    """The winner's weights. Raises ValueError where they were not kept, or are damaged."""
    state = trial.state()
    assert state.attempt is not None
    assert state.result is not None
    path = state.attempt / "weights.safetensors"
    try:
        payload = read_bytes(path, MEMORY)
    except FileNotFoundError:
        raise ValueError(f"trial {trial.id}: its weights were not kept, and they are needed ({path})") from None
    if hashlib.sha256(payload).hexdigest() != state.result["weights_sha256"]:
        raise ValueError(f"{path}: damaged (its checksum is not the result's): remove it, as if it had been lost")
    return payload


def by_name(name: str) -> Compute:
    if name == "fewshot":
        return probe
    if name == "inspect":
        return look
    return partial(at_another_size, size=int(name.removeprefix("test@")))


def probe(model: Model, data_dir: Path | None) -> Computed:
    found = few_shot(model, seen_by(model, data_dir))
    return {"metrics": found.metrics, "notes": found.notes, "draws": found.draws}, None


def at_another_size(model: Model, data_dir: Path | None, size: int) -> Computed:
    return {"metrics": at_size(model, size, data_dir), "notes": []}, None


def look(model: Model, data_dir: Path | None, images: int = IMAGES) -> Computed:
    """At most so many test images. Raises ValueError for a reference model, which has other parts inside."""
    if isinstance(model, Reference):
        raise ValueError(f"model={model.config.model}: what is looked into is a ViT of this package")
    inside = inspect(model, seen_by(model, data_dir), images)
    return {"metrics": {}, "notes": [], "asked": images, **inside.facts}, inside.arrays
