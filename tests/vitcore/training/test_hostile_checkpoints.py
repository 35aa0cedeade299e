"""Checkpoints and weights with a missing or wrong tensor are refused in one line."""

import io
import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor
from trainings import after

from vitcore import Config, train
from vitcore.analysis.restore import restore_model
from vitcore.data.splits import load
from vitcore.options import ConfigError
from vitcore.training.run import Memory
from vitcore.training.state import Training

CONFIG = Config(width=16, depth=1, heads=2, patch=4, pool="gap", steps=6, batch=8, ema=0.9, data_fraction=0.1)
SOME = 1 if os.environ.get("ABLATE_EVERY_MUTATION") else 17  # coprime with the six mutations of a tensor


def mutations(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, bytes]]:
    """Yield files without one of the tensors, or with one of another shape, dtype or value."""
    for name, tensor in tensors.items():
        wrong: dict[str, Tensor] = {
            "empty": torch.empty(0),
            "longer": torch.zeros(*tensor.shape, 3),
            "other kind": torch.zeros_like(tensor, dtype=torch.int32 if tensor.is_floating_point() else torch.float32),
            "negative": torch.full_like(tensor, -1),
            "huge": torch.full_like(tensor, 2**31),
        }
        yield f"no {name}", saved({key: value for key, value in tensors.items() if key != name})
        yield from ((f"{name}: {what}", saved({**tensors, name: value})) for what, value in wrong.items())
    torch.save(dict(tensors), buffer := io.BytesIO())
    broken = {"torn": saved(tensors)[:-9], "nothing": b"", "header": b"\xff" * 64, "pickle": buffer.getvalue()}
    yield from broken.items()


def saved(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save({name: tensor.clone() for name, tensor in tensors.items()})


@pytest.fixture(scope="module")
def run() -> Memory:
    """Return a run stopped after some steps, with the weights of its end."""
    train(CONFIG, run := Memory(), stop=after(3))
    train(CONFIG, end := Memory(checkpoints=dict(run.checkpoints)))
    return Memory(run.checkpoints, weights=end.weights)


def test_a_checkpoint_that_does_not_fit_is_one_line(run: Memory) -> None:
    """A missing or wrong tensor is named, unless the training can continue from it."""
    data, payload, bad, refused = load(CONFIG), run.checkpoint(), [], 0
    for what, content in itertools.islice(mutations(safetensors.torch.load(payload)), 0, None, SOME):
        training = Training(CONFIG, data)
        try:
            training.restore(content)
            training.advance()
        except ConfigError as error:
            refused += 1
            if "\n" in str(error) or not str(error).startswith("the trial's newest checkpoint: "):
                bad.append(f"{what}: {error}")
        except Exception as error:
            bad.append(f"{what}: {type(error).__name__}: {error}")
    assert not bad
    assert refused > 100 // SOME


def test_a_checkpoint_of_another_state_is_refused(run: Memory) -> None:
    """A checkpoint of earlier versions lacks two tensors and is read; one of the last step is refused."""
    tensors, training = safetensors.torch.load(run.checkpoint()), Training(CONFIG, load(CONFIG))
    training.restore(saved({key: tensors[key] for key in tensors.keys() - {"micro_batch", "suspicion"}}))
    for name in ("losses", "step", "seconds", "suspicion", "model.head.weight", "average.head.weight"):
        with pytest.raises(ConfigError, match="newest checkpoint"):
            training.restore(saved({key: tensors[key] for key in tensors.keys() - {name}}))
    payload = saved({**tensors, "step": torch.tensor(CONFIG.steps)})
    with pytest.raises(ConfigError, match=r"^the trial's newest checkpoint: 0 losses, step=6, micro_batch=8$"):
        train(CONFIG, Memory(checkpoints={CONFIG.steps: payload}))


def test_weights_that_do_not_fit_are_one_line(run: Memory) -> None:
    """Whatever `inspect` and evals read, also with a tensor too many."""
    tensors: dict[str, Any] = safetensors.torch.load(run.weights)
    for what, content in [*mutations(tensors), ("more", saved({**tensors, "evil": torch.zeros(1)}))]:
        harmless = what.endswith((": negative", ": huge"))  # numbers like others
        with nullcontext() if harmless else pytest.raises(ConfigError, match=r"\Aweights: .*\Z"):
            restore_model(CONFIG, content)
