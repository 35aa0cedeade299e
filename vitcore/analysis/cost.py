"""The cost of a model in parameters and FLOPs, computed on the meta device without allocating the model."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Literal

import torch
from torch.utils.flop_counter import FlopCounterMode

from vitcore.analysis.model_cost import Cost
from vitcore.model.build import RATES, meta_model
from vitcore.model.initialization import Drawn, drawn
from vitcore.model.position import POSITION, Position
from vitcore.model.vit import ViT
from vitcore.sizes import ARCHITECTURE

if TYPE_CHECKING:
    from vitcore.config import Config

Bias = Literal["", "fixed", "learned"]

# The fields that a model's cost depends on.
MODEL = ("image_size", "channels", "classes", "model", *ARCHITECTURE, "options", *RATES.values(), "objective")
measured: dict[str, Cost] = {}  # the arms of a study often share a model
drawings: dict[str, dict[str, Drawn] | None] = {}
biases: dict[str, Bias] = {}


def measure(config: Config) -> Cost:
    """Return the cost of the model of `config`, measured once for equal models.

    Raises ConfigError if a reference model lacks a kind of dropout that is set. timm may raise other errors.
    """
    if (key := model_key(config)) not in measured:
        measured[key] = count(config)
    return measured[key]


def remember(config: Config, cost: Cost) -> None:
    """Store the cost of a model that another process measured, for later calls of `measure`."""
    measured.setdefault(model_key(config), cost)


def initial_weights(config: Config) -> dict[str, Drawn] | None:
    """Return the size, shape and initial distribution of each parameter, by name; None for a reference model."""
    if (key := model_key(config)) not in drawings:
        model, _ = meta_model(config)
        drawings[key] = drawn(model) if isinstance(model, ViT) else None
    return drawings[key]


def bias_kind(config: Config) -> Bias:
    """Return the kind of bias on the attention logits: "learned", "fixed", or "" (none, or a reference model)."""
    if config.model:
        return ""
    if (key := model_key(config)) not in biases:
        small = config.model_copy(update={"image_size": 2 * config.patch})
        q = torch.zeros(1, config.heads, math.prod(small.grid), config.width // config.heads, requires_grad=True)
        bias = POSITION[config.position](small).bias(q, 0, small.grid)
        biases[key] = "" if bias is None else "learned" if bias.requires_grad else "fixed"
    return biases[key]


def model_key(config: Config) -> str:
    """Return the settings that a model's cost depends on, as JSON, which is the key of the stored results."""
    return json.dumps([getattr(config, name) for name in MODEL], sort_keys=True)


def count(config: Config) -> Cost:
    model, images = meta_model(config)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(images)
    params, flops = sum(parameter.numel() for parameter in model.parameters()), counter.get_total_flops()
    if not isinstance(model, ViT):
        return Cost(params, flops, tokens=None, class_token=None, attention_bias=None)
    tokens = math.prod(config.grid) + model.prefix
    biased = type(model.position).bias is not Position.bias  # a variant overrides the sites that it needs
    return Cost(params, flops, tokens, model.class_token is not None, biased)
