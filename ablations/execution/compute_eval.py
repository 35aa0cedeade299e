"""Compute evals from the weights of finished trials."""

import hashlib
from pathlib import Path

from ablations.trainables.trainable import Trainable
from commonfloor.files import MEMORY, read_bytes
from results import store
from results.store import eval_files


def compute_eval(
    trainable: Trainable, trial: store.Trial, name: str, data_dir: Path | None, code: str, number: int | None = None
) -> None:
    """Compute an eval of a finished trial and write it. number: replaces the number in its name.

    Raises ValueError if the eval does not apply, or if weights or data are missing or damaged.
    """
    payload = winner_weights(trial)
    result = trainable.compute_eval(name, trial.config(), payload, number, data_dir)
    content = {"metrics": result.metrics, "notes": result.notes, **result.details, "code": code}
    eval_files.write(trial, name, hashlib.sha256(payload).hexdigest(), content, result.arrays)


def winner_weights(trial: store.Trial) -> bytes:
    """Return a finished trial's weights in safetensors format. Raises ValueError if they are missing or damaged."""
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
