"""What `torch.optim` lacks: schedule-free AdamW, and averages of the weights."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.optim.optimizer import ParamsT


class Average:
    """An exponential moving average a <- d a + (1 - d) w of the weights w, updated after each step.

    After t steps, d = min(decay, (1 + t) / (10 + t)), so that initial values are soon forgotten, as in
    tf.train.ExponentialMovingAverage. Floating-point buffers are averaged too. Integer buffers, and masks with
    infinities, are copied.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        weights = model.state_dict()
        self.names = list(weights)
        self.live = list(weights.values())
        self.mean = [tensor.clone() for tensor in self.live]
        self.copied = [not (tensor.is_floating_point() and tensor.isfinite().all()) for tensor in self.live]

    def rate(self, steps: int) -> float:
        """Return 1 - d after `steps` steps."""
        return 1 - min(self.decay, (1 + steps) / (10 + steps))

    @torch.no_grad()
    def update(self, rate: float | Tensor) -> None:
        """Move the average toward the weights by the fraction `rate`, which is a tensor if a CUDA graph reads it."""
        mean, live = list[Tensor](), list[Tensor]()
        for averaged, current, copied in zip(self.mean, self.live, self.copied, strict=True):
            if copied:
                averaged.copy_(current)
            else:
                mean.append(averaged)
                live.append(current)
        if isinstance(rate, Tensor):
            torch._foreach_lerp_(mean, live, [rate] * len(mean))
        else:
            torch._foreach_lerp_(mean, live, rate)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Replace the model's weights with their average during the block."""
        current = [tensor.clone() for tensor in self.live]
        torch._foreach_copy_(self.live, self.mean)
        try:
            yield
        finally:
            torch._foreach_copy_(self.live, current)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(zip(self.names, self.mean, strict=True))

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        torch._foreach_copy_(self.mean, [tensors[name] for name in self.names])


class AveragedTeacher(Average):
    """The moving average of a student's parameters, held by a copy of the student that teaches it. Buffers are copied.

    rate_of: the number of steps -> 1 - d after these steps.
    """

    def __init__(self, student: nn.Module, rate_of: Callable[[int], float]) -> None:
        super().__init__(student, 0.0)
        self.rate_of = rate_of
        self.teacher = copy.deepcopy(student).requires_grad_(False).eval()
        self.mean = list(self.teacher.state_dict().values())  # the teacher's own tensors
        parameters = {name for name, _ in student.named_parameters()}
        self.copied = [name not in parameters for name in self.names]

    def rate(self, steps: int) -> float:
        return self.rate_of(steps)


class ScheduleFreeAdamW(optim.Optimizer):
    """Schedule-free AdamW (arXiv 2405.15682, Algorithm 1) for parameters that hold y between steps.

    z takes AdamW's steps without momentum, with weight decay proportional to y. x is the average of z. Gradients are
    computed at y = (1 - b1) z + b1 x. A step's weight in the average is the square of the highest learning rate so far,
    as in the authors' code (https://github.com/facebookresearch/schedule_free). Each group needs the key
    `weight_decay`.
    """

    def __init__(self, groups: ParamsT, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no caller gives a closure
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.advance(parameter, parameter.grad, group)

    def advance(self, y: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        lr = group["lr"]
        state = self.state[y] or self.begin(y)
        state["step"] += 1
        state["highest"].clamp_(min=lr)
        state["weight_sum"] += state["highest"] ** 2
        weight = (state["highest"] ** 2 / state["weight_sum"]).item()  # of the newest z in x
        state["square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        scale = (state["square"] / (1 - beta2 ** state["step"].item())).sqrt_().add_(group["eps"])
        update = (gradient / scale).add_(y, alpha=group["weight_decay"])
        y.lerp_(state["z"], weight).add_(update, alpha=lr * (beta1 * (1 - weight) - 1))
        state["z"].sub_(update, alpha=lr)

    def begin(self, y: Tensor) -> dict[str, Tensor]:
        zero = torch.zeros((), dtype=torch.float64)  # on the CPU: no step waits for the device
        self.state[y] = {
            "z": y.clone(),
            "square": torch.zeros_like(y),
            "step": zero.clone(),
            "highest": zero.clone(),
            "weight_sum": zero.clone(),
        }
        return self.state[y]

    def x(self, y: nn.Parameter) -> Tensor:
        """Return the average x that is evaluated and saved for the parameter y."""
        return y.lerp(self.state[y].get("z", y), 1 - 1 / self.defaults["betas"][0])


class Averaged(Average):
    """The averaged weights x of a schedule-free optimizer, with the interface of an exponential moving average."""

    def __init__(self, model: nn.Module, optimizer: ScheduleFreeAdamW) -> None:
        self.optimizer = optimizer
        self.parameters = dict(model.named_parameters())
        weights = model.state_dict()
        self.names = list(weights)
        self.live = list(weights.values())

    @property
    @torch.no_grad()
    def mean(self) -> list[Tensor]:  # type: ignore[override]  # a property, not an attribute
        mean = []
        for name, live in zip(self.names, self.live, strict=True):
            if name in self.parameters:
                live = self.optimizer.x(self.parameters[name])
            mean.append(live)
        return mean

    def rate(self, steps: int) -> float:
        return 0.0

    def update(self, rate: float | Tensor) -> None:
        """Do nothing, because the optimizer updates the average."""

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Do nothing, because the average follows from the parameters and the optimizer's state."""
