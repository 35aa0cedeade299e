"""Computes evals from the weights of a finished trial."""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from results import store
from results.store import evals
from results.store.files import MEMORY, read_bytes
from results.store.schemas import Settings
from vitcore.analysis.fewshot import few_shot
from vitcore.analysis.interpret import IMAGES, inspect
from vitcore.analysis.retest import TESTS, restored, seen_by
from vitcore.config import Config
from vitcore.model.build import Model, Reference
from vitcore.runtime.device import computing

Computed = tuple[Settings, evals.Arrays | None]  # metrics, notes, details; arrays, if any
Compute = Callable[[Model, Path | None], Computed]  # model, data_dir -> what was computed


def evaluate(trial: store.Trial, name: str, data_dir: Path | None, code: str, compute: Compute | None = None) -> None:
    """Compute and write one eval of a finished trial. compute: replaces the function that the name stands for.

    Raises ValueError if weights or data are missing, or if the model does not accept the images.
    """
    config = Config(**trial.config())
    payload = winner_weights(trial)
    with computing(config):
        content, arrays = (compute or eval_function(name))(restored(config, payload), data_dir)
    evals.write(trial, name, hashlib.sha256(payload).hexdigest(), {**content, "code": code}, arrays)


def winner_weights(trial: store.Trial) -> bytes:
    """Return the winner's weights as safetensors. Raises ValueError if they were not kept or are damaged."""
    state = trial.state()
    assert state.attempt is not None
    assert state.result is not None
    path = state.attempt / "weights.safetensors"
    try:
        payload = read_bytes(path, MEMORY)
    except FileNotFoundError:
        raise ValueError(f"trial {trial.id}: its weights were not kept, and they are needed ({path})") from None
    if hashlib.sha256(payload).hexdigest() != state.result.weights_sha256:
        raise ValueError(f"{path}: damaged (its checksum is not the result's): remove it, as if it had been lost")
    return payload


def eval_function(name: str) -> Compute:
    if name == "fewshot":
        return few_shot_eval
    if name == "inspect":
        return inspect_eval
    kind, number = evals.tested(name)
    return partial(test_eval, kind=kind, number=number)


def few_shot_eval(model: Model, data_dir: Path | None) -> Computed:
    found = few_shot(model, seen_by(model, data_dir))
    return {"metrics": found.metrics, "notes": found.notes, "draws": found.draws}, None


def test_eval(model: Model, data_dir: Path | None, kind: str, number: int) -> Computed:
    return {"metrics": TESTS[kind](model, number, data_dir), "notes": []}, None


def inspect_eval(model: Model, data_dir: Path | None, images: int = IMAGES) -> Computed:
    """Inspect a ViT on at most `images` test images. Raises ValueError for other models and for merged tokens."""
    if isinstance(model, Reference):
        raise ValueError(f"model={model.config.model}: only a ViT of this package can be inspected")
    if model.config.token_merging:
        raise ValueError(
            f"token_merging={model.config.token_merging}: only a ViT whose patches all stay is inspected: 0"
        )
    inside = inspect(model, seen_by(model, data_dir), images)
    return {"metrics": {}, "notes": [], "asked": images, **inside.facts}, inside.arrays
