"""Initial values of parameters, mostly as in google-research/vision_transformer (models_vit.py).

Each parameter is drawn on the CPU by its own random generator, which is seeded by (seed, name). Therefore, removing a
part of the model leaves the values of other parameters unchanged. Values do not depend on the device. INIT has the
rules for bare tables: parameters outside linear layers, convolutions and norms, such as learned positions.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn

from vitcore.keyed_random import seed_of
from vitcore.variant import Variant

Draw = Callable[[Tensor, Generator], Any]
Drawn = tuple[int, str]  # the number of a parameter's values, and a text that describes its shape and distribution


@torch.no_grad()
def initialize(model: nn.Module, seed: int, init: str, width: int) -> None:
    """Draw the initial values of every parameter of a model in place, except on the meta device.

    init: the name of an entry of INIT, which says how bare tables are drawn. width: the model's width.
    """
    table_std, bias_std = INIT[init](width)
    for module in model.modules():
        if isinstance(module, Initial):
            module.draw_table = normal(bias_std if module.tables_are_biases else table_std)
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            continue
        owner, own_name = nearest_owner(model, name)
        generator = Generator().manual_seed(seed_of(seed, name))
        values = torch.empty_like(parameter, device="cpu")
        owner.initial(own_name, values, generator)
        parameter.copy_(values)


def nearest_owner(model: nn.Module, name: str) -> tuple[Any, str]:
    """Return (innermost Initial module that contains the parameter `name`, the parameter's name inside it)."""
    path = name
    while path:
        path = path.rpartition(".")[0]
        module = model.get_submodule(path)
        if isinstance(module, Initial):
            return module, name.removeprefix(f"{path}.")
    raise AssertionError(f"nothing says how {name} is drawn")


def describe_draws(model: nn.Module) -> dict[str, Drawn]:
    """Return parameter name -> (number of values, text that describes its shape and distribution).

    Parameters with equal names and entries get equal initial values from equal seeds.
    """
    described = {}
    for name, parameter in model.named_parameters():
        owner, own_name = nearest_owner(model, name)
        how = repr(owner.draw_of(own_name))
        if type(owner).initial is not Initial.initial:  # the distribution may depend on options
            how = f"{type(owner).__qualname__} {getattr(owner, 'options', '')}"
        described[name] = parameter.numel(), f"{tuple(parameter.shape)}: {how}"
    return described


class Initial(nn.Module):
    """Base class of modules that draw the initial values of their parameters and of the layers inside them."""

    draws: Mapping[str, Draw] = {}  # parameter name -> how to draw it, an exception to the rules of `draw_of`
    draw_table: Draw  # how to draw a bare table; set by `initialize`
    tables_are_biases = False  # whether bare tables are biases of the attention logits

    def initial(self, name: str, values: Tensor, generator: Generator) -> None:
        """Fill `values` in place with the initial values of the parameter called `name` in this module."""
        self.draw_of(name)(values, generator)

    def draw_of(self, name: str) -> Draw:
        """Return the function that draws the parameter called `name` in this module.

        An entry of `draws` comes first. Otherwise, linear layers have Xavier uniform weights as in models_vit.py, and
        convolutions LeCun normal ones as in flax. Norms are 1, biases 0, and `init` says how bare tables are drawn.
        """
        if name in self.draws:
            return self.draws[name]
        path, _, kind = name.rpartition(".")
        owner = self.get_submodule(path)
        if isinstance(owner, nn.LayerNorm | nn.RMSNorm | nn.GroupNorm | nn.BatchNorm2d):
            return ones if kind == "weight" else zeros
        if not isinstance(owner, nn.Linear | nn.Conv2d):
            return self.draw_table
        if kind == "bias":
            return zeros
        return xavier_uniform if isinstance(owner, nn.Linear) else lecun_normal


class Part(Variant, Initial):
    """Base class of the variants that are modules of the model and draw their own initial values."""


def normal(std: float) -> Draw:
    """Return a function that draws a parameter from a normal distribution of mean 0."""
    return partial(fill_normal, std=std)


def constant(value: float) -> Draw:
    """Return a function that fills a parameter with one value."""
    return partial(fill, value=value)


def stacked(count: int, draw: Draw) -> Draw:
    """Return a function that draws each of `count` stacked projections separately, as `draw` may depend on fan-out."""
    return partial(fill_stacked, count=count, draw=draw)


def fill_normal(values: Tensor, generator: Generator, std: float) -> None:
    values.normal_(0.0, std, generator=generator)


def fill(values: Tensor, generator: Generator, value: float) -> None:
    values.fill_(value)


def fill_stacked(values: Tensor, generator: Generator, count: int, draw: Draw) -> None:
    for projection in values.chunk(count):
        draw(projection, generator)


zeros = constant(0.0)
ones = constant(1.0)


def xavier_uniform(values: Tensor, generator: Generator) -> None:
    """Fill `values` in place with draws from U(-a, a), where a^2 = 6 / (fan_in + fan_out)."""
    nn.init.xavier_uniform_(values, generator=generator)


def lecun_normal(values: Tensor, generator: Generator) -> None:
    """Fill `values` in place with draws from a truncated normal of variance 1 / fan_in (jax's lecun_normal).

    `nn.init.trunc_normal_` gives other values in PyTorch 2.11 than in 2.14.
    """
    std = math.sqrt(1 / values[0].numel()) / 0.87962566103423978
    values.normal_(0.0, std, generator=generator)
    beyond = values.abs() > 2 * std
    while beyond.any():
        values.copy_(torch.where(beyond, torch.empty_like(values).normal_(0.0, std, generator=generator), values))
        beyond = values.abs() > 2 * std


# How bare tables such as learned position embeddings are drawn.
#   unit-positions  normal(1), about the scale of patch embeddings, queries and sinusoidal positions. With `paper`,
#                   narrow models learn their positions late or never (ablations/recipes/digits.yaml has the numbers).
#   paper           normal(0.02), "from BERT", which used it at width 768 (vit_jax/models_vit.py)
#   big-vision      normal(1 / sqrt(D)), where D is the model's width (google-research/big_vision, models/vit.py).
#                   Biases of logits, which big_vision lacks, are drawn from normal(0.02) as in Swin.
# Each maps the model's width to the standard deviation of tables, and of tables that are biases of attention logits.
INIT: dict[str, Callable[[int], tuple[float, float]]] = {
    "unit-positions": lambda width: (1.0, 1.0),
    "paper": lambda width: (0.02, 0.02),
    "big-vision": lambda width: (width**-0.5, 0.02),
}
