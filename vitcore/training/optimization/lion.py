"""The Lion optimizer, whose update is the sign of an interpolated momentum (arXiv 2302.06675, Algorithm 2)."""

from __future__ import annotations

import torch
from torch import optim
from torch.optim.optimizer import ParamsT


class Lion(optim.Optimizer):
    """The Lion optimizer, with decoupled weight decay.

    With weights w, gradient g, momentum m (0 at first) and betas (b1, b2), a step is w <- w - lr (sign(b1 m + (1 - b1)
    g) + decay w), then m <- b2 m + (1 - b2) g.
    """

    def __init__(self, groups: ParamsT, lr: float, betas: tuple[float, float]) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            for parameter in parameters:
                self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
            momenta = [self.state[parameter]["momentum"] for parameter in parameters]
            gradients = [parameter.grad for parameter in parameters]
            beta1, beta2 = group["betas"]
            updates = torch._foreach_lerp(gradients, momenta, beta1)
            torch._foreach_sign_(updates)
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(parameters, updates, alpha=-group["lr"])
            torch._foreach_lerp_(momenta, gradients, 1 - beta2)
