"""What the optimiser sees: parameter groups, AdamW, the learning rate of each step."""

import math

from torch import nn
from torch.optim import AdamW

from vitcore.config import Config


def adamw(model: nn.Module, config: Config) -> AdamW:
    """AdamW (arXiv 1711.05101) with weight decay on matrices alone; one fused kernel for all parameters."""
    named = list(model.named_parameters())
    groups = [
        {"params": [p for name, p in named if decays(name, p)], "weight_decay": config.weight_decay},
        {"params": [p for name, p in named if not decays(name, p)], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=config.lr, fused=True)


def decays(name: str, parameter: nn.Parameter) -> bool:
    """Matrices and convolutions do; biases, norms, position tables and the class token do not."""
    return parameter.ndim >= 2 and name != "class_token" and not name.startswith("position.")


def learning_rate(step: int, config: Config) -> float:
    """Of step 0 .. steps - 1: linear warm-up to `lr`, then half a cosine that would reach 0 at `steps`."""
    warmup = round(config.warmup * config.steps)
    if step < warmup:
        return config.lr * (step + 1) / warmup
    return config.lr * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (config.steps - warmup)))
