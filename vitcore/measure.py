"""What a model costs before it is built: parameters and FLOPs, on the meta device."""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from vitcore.config import ARCHITECTURE, Config
from vitcore.model import build
from vitcore.shapes import without_dynamo
from vitcore.vit import ViT


@dataclass(frozen=True)
class Cost:
    """`flops`: one forward pass of one image, 2 a multiply-add (products, convolutions, attention).

    `tokens`, with those before the patches, and `class_token` are None for a reference model.
    """

    params: int
    flops: int
    tokens: int | None
    class_token: bool | None


# What the model is made of: everything that its cost depends on, and whether it can be built.
MODEL = ("image_size", "channels", "classes", "model", *ARCHITECTURE, "options", "dropout", "drop_path")
measured: dict[str, Cost] = {}  # the arms of a study often share a model


def measure(config: Config) -> dict[str, Any]:
    """params, flops, tokens, class_token, as Cost has them; nothing is allocated."""
    key = json.dumps([getattr(config, name) for name in MODEL], sort_keys=True)
    if key not in measured:
        measured[key] = count(config)
    return asdict(measured[key])


def count(config: Config) -> Cost:
    """On the meta device. A part that asks for torch._dynamo itself gets it."""
    try:
        with without_dynamo():
            return counted(config)
    except (AttributeError, ImportError):
        return counted(config)


def counted(config: Config) -> Cost:
    """Runs one image through the model."""
    with torch.device("meta"):
        model = build(config).eval()
        images = torch.empty(1, config.channels, config.image_size, config.image_size)
    with Flops() as counter, torch.no_grad():
        model(images)
    params, flops = sum(parameter.numel() for parameter in model.parameters()), counter.total
    if not isinstance(model, ViT):
        return Cost(params, flops, tokens=None, class_token=None)
    return Cost(params, flops, math.prod(config.grid) + model.prefix, model.class_token is not None)


class Flops(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own __init_subclass__ has no types
    """Adds up what PyTorch's own formulas say of each operation, as its FlopCounterMode does.

    That one, at its first operation, imports torch._dynamo, which takes as long as importing torch.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # nor has this
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """PyTorch asks: nothing is compiled in here, so the operations need no shelter from it."""
        return False

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        value = operation(*args, **(kwargs or {}))
        if formula := flop_registry.get(operation._overloadpacket):
            self.total += formula(*args, **(kwargs or {}), out_val=value)
        return value
