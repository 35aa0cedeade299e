"""What the optimiser sees: parameter groups, and the optimisers. One class and one line of OPTIMIZER each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import Field
from torch import nn

from vitcore.config import Options as NoOptions
from vitcore.variant import Variant

if TYPE_CHECKING:
    from vitcore.config import Config

Groups = list[dict[str, Any]]


def optimizer(model: nn.Module, config: Config) -> torch.optim.Optimizer:
    """The optimiser of `config`, with weight decay on matrices alone."""
    named = list(model.named_parameters())
    groups = [
        {"params": [p for name, p in named if decays(name, p)], "weight_decay": config.weight_decay},
        {"params": [p for name, p in named if not decays(name, p)], "weight_decay": 0.0},
    ]
    return OPTIMIZER[config.optimizer].make(groups, config)


def decays(name: str, parameter: nn.Parameter) -> bool:
    """Matrices and convolutions do; biases, norms, position tables and the class token do not."""
    return parameter.ndim >= 2 and name != "class_token" and not name.startswith("position.")


class Optimizer(Variant):
    """Makes PyTorch's optimiser, one fused kernel for all parameters where there is one."""

    slot = "optimizer"

    @classmethod
    def make(cls, groups: Groups, config: Config) -> torch.optim.Optimizer:
        """`groups`: parameters with their weight decay. The training sets the learning rate before each step."""
        raise NotImplementedError


class AdamW(Optimizer):
    """Adam with decoupled weight decay (arXiv 1711.05101)."""

    numerics = 1

    @classmethod
    def make(cls, groups: Groups, config: Config) -> torch.optim.Optimizer:
        return torch.optim.AdamW(groups, lr=config.lr, fused=True)


class Adam(Optimizer):
    """Adam (arXiv 1412.6980); weight decay is part of the gradient (L2)."""

    numerics = 1

    @classmethod
    def make(cls, groups: Groups, config: Config) -> torch.optim.Optimizer:
        return torch.optim.Adam(groups, lr=config.lr, fused=True)


class SGD(Optimizer):
    """Stochastic gradient descent with momentum, as arXiv 2010.11929 fine-tunes (B.1.1); weight decay is L2."""

    numerics = 1

    class Options(NoOptions):
        """`momentum`: of the paper."""

        momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9

    @classmethod
    def make(cls, groups: Groups, config: Config) -> torch.optim.Optimizer:
        momentum = config.options_of(cls.slot, cls.Options).momentum
        return torch.optim.SGD(groups, lr=config.lr, momentum=momentum, fused=True)


OPTIMIZER: dict[str, type[Optimizer]] = {"adamw": AdamW, "adam": Adam, "sgd": SGD}
