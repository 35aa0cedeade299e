"""The parameters and FLOPs of a model and of its parts, counted without allocating a large model."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from commonfloor.options import ConfigError
from vitcore.model.block import Block
from vitcore.model.build import RATES, Model, OtherModel, freeze, meta_model, zero_model
from vitcore.model.initialization import Drawn, describe_draws
from vitcore.model.position import POSITION, acts_at
from vitcore.model.vit import ViT
from vitcore.runtime.host import Cost
from vitcore.settings import Settings
from vitcore.sizes import ARCHITECTURE

Bias = Literal["", "fixed", "learned"]

# The fields that a model's cost depends on, and the slots whose options it depends on.
MODEL = ("image_size", "channels", "classes", "model", *ARCHITECTURE, *RATES.values(), "objective")
measured: dict[str, Cost] = {}  # caches: the arms of a study often share a model
drawings: dict[str, dict[str, Drawn] | None] = {}


def measure(config: Settings) -> Cost:
    """Return the cost of the model of `config`. Equal models are measured only once.

    Raises ConfigError if a model lacks a kind of dropout that is set, or gives no logits. It may raise other errors.
    """
    key = model_key(config)
    if key not in measured:
        model, images = zero_model(config)
        drawings[key] = draws_of(model)
        measured[key] = count_cost(model, images)
    return measured[key]


def remember(config: Settings, cost: Cost) -> None:
    """Store the cost of a model that another process measured, for later calls to `measure`."""
    measured.setdefault(model_key(config), cost)


def initial_weights(config: Settings) -> dict[str, Drawn] | None:
    """Return how each parameter is initialized, as `describe_draws` does, or None for a model that is no ViT."""
    key = model_key(config)
    if key not in drawings:
        drawings[key] = draws_of(meta_model(config)[0])
    return drawings[key]


def trained_params(config: Settings) -> int:
    """Return the number of parameters that training changes."""
    model = meta_model(config)[0]
    freeze(model, config.trainable)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def draws_of(model: Model) -> dict[str, Drawn] | None:
    return describe_draws(model) if isinstance(model, ViT) else None


def bias_kind(config: Settings) -> Bias:
    """Return the kind of the position embedding's bias: "learned", "fixed", or "" for none or no ViT."""
    if config.model:
        return ""
    small = config.model_copy(update={"image_size": 2 * config.patch})
    q = torch.zeros(1, config.heads, math.prod(small.grid), config.width // config.heads, requires_grad=True)
    bias = POSITION[config.position](small).bias(q, 0, small.grid)
    if bias is None:
        return ""
    return "learned" if bias.requires_grad else "fixed"


def model_key(config: Settings) -> str:
    """Return the key under which a model's results are stored: the settings that its cost depends on, as JSON."""
    options = {name: value for name, value in config.options.items() if name.partition(".")[0] in MODEL}
    return json.dumps([options, *(getattr(config, name) for name in MODEL)], sort_keys=True)


class FlopCounter(TorchDispatchMode):
    """A mode that counts FLOPs by PyTorch's formulas. FlopCounterMode imports torch._dynamo, which takes a second."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch's
        self.flops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.flops += formula(*args, **(kwargs or {}), out_val=out)
        return out


def count_cost(model: Model, images: Tensor) -> Cost:
    """Return the cost of a model for an image (1, C, H, W)."""
    # Unfused attention, because the counter does not know the CPU's fused kernel.
    with FlopCounter() as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        outputs = model(images)
    if isinstance(model, OtherModel):
        check_logits(outputs, model.config)
        return Cost(model.params, counter.flops, tokens=None, class_token=None, attention_bias=None)
    params = sum(parameter.numel() for parameter in model.parameters())
    tokens = math.prod(model.config.grid) + model.prefix
    biased = acts_at(type(model.position), "bias")
    return Cost(params, counter.flops, tokens, model.class_token is not None, biased)


def check_logits(outputs: Any, config: Settings) -> None:
    """Raise ConfigError unless a model's outputs for one image are logits (1, classes)."""
    shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
    if shape != (1, config.classes):
        raise ConfigError(f"model={config.model}: gives {shape} for an image, not logits (1, classes={config.classes})")


@dataclass(frozen=True)
class PartCost:
    """The parameters of one part of the model, and its FLOPs for one image."""

    part: str
    shape: list[int]  # shape of its output without the batch axis; [] if it has no output of its own
    params: int
    flops: int  # a multiply-add counts as 2


@torch.no_grad()
def summary(config: Settings) -> list[PartCost]:
    """Return the cost of each part of `ViT(config)`, without allocating the model. config: without a reference model.

    Parts without parameters and FLOPs are left out. FLOPs of a position embedding inside the attention count there.
    """
    with torch.device("meta"):
        model = ViT(config)
        images = torch.empty(1, config.channels, *config.image_shape)
    names = {module: name for name, module in named_parts(model)}
    shapes: dict[str, list[int]] = {}

    def note(module: nn.Module, inputs: Any, output: Tensor) -> None:
        shapes[names[module]] = list(output.shape[1:])

    for module in names:
        module.register_forward_hook(note)
    with FlopCounterMode(display=False) as counter:
        model(images)
    flops = {name.removeprefix("ViT."): sum(ops.values()) for name, ops in counter.get_flop_counts().items()}
    rows = []
    for module, name in names.items():
        params = sum(parameter.numel() for parameter in module.parameters())
        inside = (count for child, count in flops.items() if child.rpartition(".")[0] == name)
        rows.append(PartCost(name, shapes.get(name, []), params, flops.get(name) or sum(inside)))
    direct = model.named_parameters(recurse=False)
    rows[1:1] = [PartCost(name, list(parameter.shape[1:]), parameter.numel(), 0) for name, parameter in direct]
    rest = counter.get_total_flops() - sum(row.flops for row in rows)
    if rest:  # products outside every part
        rows.append(PartCost("other", [], 0, rest))
    return [row for row in rows if row.params or row.flops]


def named_parts(model: ViT) -> Iterator[tuple[str, nn.Module]]:
    yield "stem", model.stem
    yield "position", model.position
    yield "encoder.embedding_norm", model.encoder.embedding_norm
    for layer, block in enumerate(model.encoder.blocks):
        yield from parts_inside(f"encoder.blocks.{layer}", block)
    yield "encoder.norm", model.encoder.norm
    yield "pool", model.pool
    yield "head", model.head


def parts_inside(path: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield (name, part) for the parts of a block and of the blocks that are its further branches."""
    for name, part in module.named_children():
        if isinstance(part, nn.ModuleList | Block):
            yield from parts_inside(f"{path}.{name}", part)
        else:
            yield f"{path}.{name}", part
