"""What a model costs before it is built: parameters and FLOPs, on the meta device."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import torch

from vitcore.config import Config
from vitcore.vit import ViT


@dataclass(frozen=True)
class Cost:
    """`flops`: one forward pass of one image, 2 a multiply-add (products, convolutions, attention)."""

    params: int
    flops: int
    tokens: int
    class_token: bool


# What the model is made of: everything that its cost depends on.
MODEL = (
    "image_size",
    "channels",
    "classes",
    "width",
    "depth",
    "heads",
    "mlp_ratio",
    "patch",
    "position",
    "position_at",
    "pool",
    "final_norm",
    "registers",
    "stem",
    "head",
    "layer_scale",
    "qk_norm",
    "options",
)
measured: dict[str, Cost] = {}  # the arms of a study often share a model


def measure(config: Config) -> dict[str, Any]:
    """params, flops, tokens (the class token included), class_token; nothing is allocated."""
    key = json.dumps([getattr(config, name) for name in MODEL], sort_keys=True)
    if key not in measured:
        measured[key] = count(config)
    return asdict(measured[key])


def count(config: Config) -> Cost:
    """Runs one image through the model on the meta device."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        model = ViT(config).eval()
        images = torch.empty(1, config.channels, config.image_size, config.image_size)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(images)
    rows, columns = config.grid
    return Cost(
        params=sum(parameter.numel() for parameter in model.parameters()),
        flops=counter.get_total_flops(),
        tokens=rows * columns + model.prefix,
        class_token=bool(model.prefix),
    )
