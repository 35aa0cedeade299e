"""A step of the optimiser: all parameters of a group in one call of PyTorch's fused kernels.

Bit by bit what `torch.optim` does with them. What it does around them is a part of a small model's step that shows, and
its first use imports torch._dynamo, for which a small trial would wait as long as for many steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

Groups = list[dict[str, Any]]
State = dict[str, Tensor]
Kernel = Callable[..., None]


class Updates(Protocol):
    """What a training asks of an optimiser; those of `torch.optim` have it too.

    param_groups: parameters, `lr` and `weight_decay`. state: what is kept of each parameter that had a gradient.
    """

    param_groups: Groups
    state: Any

    def step(self) -> object:
        """Moves every parameter that has a gradient."""

    def zero_grad(self) -> None:
        """Takes the gradients away."""


class Fused:
    """An optimiser with one fused kernel for all parameters of a group."""

    def __init__(self, groups: Groups, lr: float) -> None:
        self.param_groups = [{"lr": lr, **group} for group in groups]
        self.state: defaultdict[Tensor, State] = defaultdict(dict)

    def zero_grad(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            if moved:
                self.update(group, moved, [parameter.grad for parameter in moved])

    def update(self, group: Mapping[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        """Of one group, those that have gradients."""
        raise NotImplementedError


class FusedAdam(Fused):
    """Adam, or with `torch._fused_adamw_` as its kernel AdamW. Keeps `step`, `exp_avg` and `exp_avg_sq`."""

    def __init__(self, groups: Groups, kernel: Kernel, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, lr)
        self.kernel, self.betas, self.eps = kernel, betas, eps
        self.counts: dict[int, list[Tensor]] = {}  # of each group

    def update(self, group: Mapping[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        states = [self.state[parameter] or self.begin(parameter) for parameter in parameters]
        self.kernel(
            parameters,
            gradients,
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            self.counted(id(group), states),
            lr=group["lr"],
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=group["weight_decay"],
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )

    def begin(self, parameter: Tensor) -> State:
        self.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
        return self.state[parameter]

    def counted(self, group: int, states: Sequence[State]) -> list[Tensor]:
        """The count of each parameter's steps, this one with them.

        They become parts of one tensor: adding to fifty small ones takes longer than the update of a small model.
        """
        parts = self.counts.get(group, [])
        if not same(parts, (state["step"] for state in states)):
            parts = self.counts[group] = list(torch.stack([state["step"] for state in states]).unbind())
            for state, part in zip(states, parts, strict=True):
                state["step"] = part
        whole = parts[0]._base
        assert whole is not None
        whole.add_(1)
        return parts


def same(parts: Sequence[Tensor], others: Iterable[Tensor]) -> bool:
    """Whether these are the very same tensors."""
    return [id(part) for part in parts] == [id(other) for other in others]


class FusedSGD(Fused):
    """Stochastic gradient descent. Keeps `momentum_buffer`, where there is momentum."""

    def __init__(self, groups: Groups, lr: float, momentum: float, nesterov: bool) -> None:
        super().__init__(groups, lr)
        self.momentum, self.nesterov = momentum, nesterov

    def update(self, group: Mapping[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        torch._fused_sgd_(
            parameters,
            gradients,
            [self.buffer(parameter) for parameter in parameters] if self.momentum else [],
            weight_decay=group["weight_decay"],
            momentum=self.momentum,
            lr=group["lr"],
            dampening=0.0,
            nesterov=self.nesterov,
            maximize=False,
            is_first_step=False,  # on a buffer of zeros any step is as the first
        )

    def buffer(self, parameter: Tensor) -> Tensor:
        if not self.state[parameter]:
            self.state[parameter] = {"momentum_buffer": torch.zeros_like(parameter)}
        return self.state[parameter]["momentum_buffer"]


@torch.no_grad()
def clip(parameters: Iterable[Tensor], bound: float) -> None:
    """Gradients scaled to a norm of at most `bound` over all of them: `torch.nn.utils.clip_grad_norm_`, bit by bit."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    torch._foreach_mul_(gradients, (bound / (norm + 1e-6)).clamp(max=1.0))
