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
    """Compute the eval `name` of a finished trial and write it to the trial's directory.

    number: replaces the number in the eval's name, if given. code: the code digest to record. Raises ValueError if the
    eval is unknown or does not apply to the model. Also raises it if weights or data are missing or damaged. Raises
    OSError if a file cannot be read or written.
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
