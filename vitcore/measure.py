"""What a model costs before it is built: parameters and FLOPs, on the meta device."""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

import torch

from vitcore.config import ARCHITECTURE, Config
from vitcore.model import build
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
    """Runs one image through the model on the meta device."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        model = build(config).eval()
        images = torch.empty(1, config.channels, config.image_size, config.image_size)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(images)
    params, flops = sum(parameter.numel() for parameter in model.parameters()), counter.get_total_flops()
    if not isinstance(model, ViT):
        return Cost(params, flops, tokens=None, class_token=None)
    return Cost(params, flops, math.prod(config.grid) + model.prefix, model.class_token is not None)
