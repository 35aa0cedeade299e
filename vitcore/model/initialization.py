"""Initial values, one rule for all arms: those of google-research/vision_transformer (models_vit.py).

Each parameter is drawn on the CPU from a generator of its own, keyed by (seed, name): removing a part leaves
the values of all others as they were, and no device changes them.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

Draw = Callable[[Tensor, Generator], Any]
Drawn = tuple[int, str]  # how many values a parameter has; what is done to draw them


@torch.no_grad()
def initialise(model: nn.Module, seed: int, init: str, width: int) -> None:
    """Draw every parameter of a model of this width, bare tables as INIT[init].

    A parameter on the meta device has no values and is left alone.
    """
    scale = INIT[init]
    for module in model.modules():
        if isinstance(module, Initial):
            module.draw_table = normal(scale.bias if module.tables_are_biases else scale.table(width))
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            continue
        owner, own_name = nearest_owner(model, name)
        values = torch.empty_like(parameter, device="cpu")
        owner.initial(own_name, values, generator(seed, name))
        parameter.copy_(values)


def generator(seed: int, name: str) -> Generator:
    """Return a generator for one parameter: a pure function of (seed, name)."""
    key = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return Generator().manual_seed(int.from_bytes(key[:8], "big") >> 1)


def nearest_owner(model: nn.Module, name: str) -> tuple[Any, str]:
    """Return the innermost Initial around a parameter, and the parameter's name inside it."""
    path = name.split(".")
    for depth in range(len(path) - 1, -1, -1):
        module = model.get_submodule(".".join(path[:depth]))
        if isinstance(module, Initial):
            return module, ".".join(path[depth:])
    raise AssertionError(f"nothing says how {name} is drawn")


def drawn(model: nn.Module) -> dict[str, Drawn]:
    """Return how each parameter of a model on the meta device is initialized.

    Parameters of one name that are drawn alike have the same initial values at the same seed: the generator's key is
    (seed, name), and what is done with it is written down here, operation by operation, without doing it. Where
    nothing is done on the meta device, as by lecun_normal, the class that draws stands for it.
    """
    found = {}
    for name, parameter in model.named_parameters():
        owner, own_name = nearest_owner(model, name)
        values = torch.empty_like(parameter, device="meta")
        with torch.no_grad(), Operations() as operations:
            owner.initial(own_name, values, generator(0, name))
        how = "; ".join(operations.written) or type(owner).__qualname__
        found[name] = parameter.numel(), f"{tuple(parameter.shape)}: {how}"
    return found


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own __init_subclass__ has no types
    """Record what changes meta tensors: the operations, their numbers, and the shapes of their tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # nor has this
        self.written: list[str] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Skip torch.compile, as vitcore.analysis.cost.Flops does."""
        return False

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = {name: value for name, value in (kwargs or {}).items() if name != "generator"}  # it has no meta kernel
        if operation._schema.is_mutable:
            given = [tuple(one.shape) if isinstance(one, Tensor) else one for one in (*args, *named.values())]
            self.written.append(f"{operation} {given}")
        return operation(*args, **named)


class Initial(nn.Module):
    """A module that says how its parameters, and those of the modules inside it, are drawn."""

    draws: Mapping[str, Draw] = {}  # parameters of this module that are not drawn by the rule of their layer
    draw_table: Draw  # how a bare table is drawn, by an entry of INIT
    tables_are_biases = False  # of the attention's logits

    def initial(self, name: str, values: Tensor, generator: Generator) -> None:
        """Fill `values`, the parameter called `name` in this module: by `draws`, else by the rule of its layer.

        A linear layer is Xavier uniform with bias zero, as models_vit.py calls its attention and Dense. A convolution
        is LeCun normal (flax's default), a norm one and zero. A bare table, such as of positions, follows `init`.
        """
        owner = self.get_submodule(name.rpartition(".")[0])
        draw = self.draws.get(name) or rule_of(owner, name.rpartition(".")[2]) or self.draw_table
        draw(values, generator)


def rule_of(owner: nn.Module, name: str) -> Draw | None:
    """Return how the layer `owner` initializes its own parameter `name`; None for a bare table."""
    if isinstance(owner, nn.LayerNorm | nn.RMSNorm | nn.GroupNorm | nn.BatchNorm2d):
        return ones if name == "weight" else zeros
    if isinstance(owner, nn.Linear | nn.Conv2d) and name == "bias":
        return zeros
    if isinstance(owner, nn.Linear):
        return xavier_uniform
    if isinstance(owner, nn.Conv2d):
        return lecun_normal
    return None


def zeros(values: Tensor, generator: Generator) -> None:
    values.zero_()


def ones(values: Tensor, generator: Generator) -> None:
    values.fill_(1.0)


def normal(std: float) -> Draw:
    return lambda values, generator: values.normal_(0.0, std, generator=generator)


def constant(value: float) -> Draw:
    return lambda values, generator: values.fill_(value)


def stacked(count: int, draw: Draw) -> Draw:
    """Draw each of `count` projections by itself: one fan over the whole stack would shrink them."""

    def draw_each(values: Tensor, generator: Generator) -> None:
        for projection in values.chunk(count):
            draw(projection, generator)

    return draw_each


def xavier_uniform(values: Tensor, generator: Generator) -> None:
    """Draw from U(-a, a) with a^2 = 6 / (fan_in + fan_out)."""
    nn.init.xavier_uniform_(values, generator=generator)


def lecun_normal(values: Tensor, generator: Generator) -> None:
    """Draw from a normal cut at two deviations, of variance 1 / fan_in once cut (jax's lecun_normal).

    Values beyond the cut are drawn again, as nn.init.trunc_normal_ does in PyTorch 2.14; 2.11 gives other values.
    """
    if values.is_meta:
        return
    std = math.sqrt(1 / values[0].numel()) / 0.87962566103423978
    values.normal_(0.0, std, generator=generator)
    while (beyond := values.abs() > 2 * std).any():
        values.copy_(torch.where(beyond, torch.empty_like(values).normal_(0.0, std, generator=generator), values))


@dataclass(frozen=True)
class Scale:
    """The deviation of bare tables in a model of some width, and of those that are biases of the attention's logits."""

    table: Callable[[int], float]
    bias: float


# How bare tables, as of positions, are drawn; all else is the same in the three.
#   unit-positions  normal(1): the scale of the patches that they are added to and of the queries that read them, and
#                   about that of sinusoidal positions. With the paper's, narrow models learn their positions late or
#                   never (ablations/recipes/digits.yaml has the numbers).
#   paper           normal(0.02), "from BERT", which used it at width 768 (vit_jax/models_vit.py)
#   big-vision      normal(1 / sqrt(D)), D the model's width (google-research/big_vision, models/vit.py); it has no
#                   biases of logits: 0.02, as Swin's
INIT: dict[str, Scale] = {
    "unit-positions": Scale(lambda width: 1.0, bias=1.0),
    "paper": Scale(lambda width: 0.02, bias=0.02),
    "big-vision": Scale(lambda width: width**-0.5, bias=0.02),
}
