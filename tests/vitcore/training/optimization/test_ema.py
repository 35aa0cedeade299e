"""Averaged weights: the formula, independent of torch's own; what is evaluated, kept and resumed."""

from collections.abc import Callable
from functools import partial

import pytest
import safetensors.torch
import torch
import trainings
from torch import nn

from vitcore.data.splits import load
from vitcore.training.loop import Training
from vitcore.training.optimization.ema import Average

tiny = partial(trainings.tiny, steps=12)


class Counting(nn.Module):
    """A module with a parameter, and buffers that are and are not whole numbers, as a batch norm has."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def move(self, step: int) -> None:
        with torch.no_grad():
            self.norm.weight.fill_(step)
            self.norm.running_mean.fill_(10.0 * step)  # type: ignore[union-attr,operator]
            self.norm.num_batches_tracked.fill_(step)  # type: ignore[union-attr,operator]


@pytest.mark.parametrize("read", [float, torch.tensor])
def test_average_equals_its_formula(read: Callable[[float], float | torch.Tensor]) -> None:
    """A running mean in plain floats, warm-up included; buffers too; whole numbers are the newest."""
    model = Counting()
    average, expected = Average(model, 0.9), 1.0
    for step in range(1, 300):
        model.move(step)
        average.update(read(average.share(step)))
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    state = average.state_dict()
    assert state["norm.weight"].tolist() == pytest.approx([expected] * 3, rel=1e-5)
    assert state["norm.num_batches_tracked"] == 299
    assert state["norm.running_mean"][0] == pytest.approx(expected * 10, rel=1e-4)


def test_averaged_weights_are_evaluated_and_kept() -> None:
    """Validation, test and the file are of the average; the weights that train are another thing."""
    config = tiny(ema=0.99)
    data = load(config)
    training = Training(config, data)
    for _ in range(8):
        training.advance()
    live = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
    loss, correct = training.score(data.val)
    assert all(torch.equal(tensor, live[name]) for name, tensor in training.model.state_dict().items())
    kept = safetensors.torch.load(training.weights())
    assert not torch.equal(kept["head.weight"], live["head.weight"])
    plain = Training(tiny(), data)
    plain.model.load_state_dict(kept)
    again, same = plain.score(data.val)
    assert loss == again
    assert (correct == same).all()
