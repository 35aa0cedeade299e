"""Evals computed: from the winner's weights, whether it finished just now or long ago."""

import hashlib
from pathlib import Path
from typing import Any

from results import evals, store
from vitcore.config import Config
from vitcore.evaluate import at_size, restored, seen_by
from vitcore.fewshot import few_shot
from vitcore.train import torch_threads
from vitcore.vit import ViT

Json = dict[str, Any]


def evaluate(trial: store.Trial, name: str, data_dir: Path | None, code: str) -> None:
    """Computes and writes one eval of a finished trial.

    Raises ValueError where the weights or the data are not there, or where the model does not take the images.
    """
    config = Config(**trial.config()["config"])
    payload = weights(trial)
    with torch_threads(config.threads):
        content, arrays = compute(name, restored(config, payload), data_dir)
    evals.write(trial, name, hashlib.sha256(payload).hexdigest(), {**content, "code": code}, arrays)


def weights(trial: store.Trial) -> bytes:
    """The winner's weights. Raises ValueError where they were not kept, or are damaged."""
    state = trial.state()
    assert state.attempt is not None
    assert state.result is not None
    path = state.attempt / "weights.safetensors"
    try:
        payload = path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"trial {trial.id}: its weights were not kept, and evals need them ({path})") from None
    if hashlib.sha256(payload).hexdigest() != state.result["weights_sha256"]:
        raise ValueError(f"{path}: damaged (its checksum is not the result's)")
    return payload


def compute(name: str, model: ViT, data_dir: Path | None) -> tuple[Json, evals.Arrays | None]:
    """The eval's JSON: metrics, notes, details; and its arrays, where it has any."""
    if name == "fewshot":
        found = few_shot(model, seen_by(model, data_dir))
        return {"metrics": found.metrics, "notes": found.notes, "draws": found.draws}, None
    size = int(name.removeprefix("test@"))
    return {"metrics": at_size(model, size, data_dir), "notes": []}, None
