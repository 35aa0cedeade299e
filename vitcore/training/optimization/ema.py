"""The exponential moving average of the weights, which is evaluated and saved (arXiv 1703.01780)."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """An exponential moving average a <- d a + (1 - d) w of the weights w, updated after each step.

    After t steps, d = min(decay, (1 + t) / (10 + t)), so that initial values are soon forgotten, as in
    tf.train.ExponentialMovingAverage. Floating-point buffers are averaged too, and integer buffers are copied.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        weights = model.state_dict()
        self.names = list(weights)
        self.live = list(weights.values())
        self.mean = [tensor.clone() for tensor in self.live]

    def rate(self, steps: int) -> float:
        """Return 1 - d after `steps` steps."""
        return 1 - min(self.decay, (1 + steps) / (10 + steps))

    @torch.no_grad()
    def update(self, rate: float | Tensor) -> None:
        """Move the average toward the weights by the fraction `rate`, which is a tensor if a CUDA graph reads it."""
        mean, live = list[Tensor](), list[Tensor]()
        for averaged, current in zip(self.mean, self.live, strict=True):
            if averaged.is_floating_point():
                mean.append(averaged)
                live.append(current)
            else:
                averaged.copy_(current)
        if isinstance(rate, Tensor):
            torch._foreach_lerp_(mean, live, [rate] * len(mean))
        else:
            torch._foreach_lerp_(mean, live, rate)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Replace the model's weights with their average during the block."""
        current = [tensor.clone() for tensor in self.live]
        copy_tensors(self.mean, self.live)
        try:
            yield
        finally:
            copy_tensors(current, self.live)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(zip(self.names, self.mean, strict=True))

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        copy_tensors([tensors[name] for name in self.names], self.mean)


@torch.no_grad()
def copy_tensors(source: Sequence[Tensor], target: Sequence[Tensor]) -> None:
    for values, tensor in zip(source, target, strict=True):
        tensor.copy_(values)
