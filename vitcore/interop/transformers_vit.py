"""Conversion of Vision Transformers from and to transformers, with equal outputs.

This module does not import transformers: models and their classes come from the caller. Names of parameters are those
of transformers 5.
"""

import re
from typing import Any, NamedTuple

import torch

from commonfloor.messages import joined_names
from vitcore.config import Config, Values
from vitcore.interop.conversion import Patterns, Weights, check_alike, check_structure, convert, rename, square_side
from vitcore.model.mlp import MLP
from vitcore.model.norm import epsilon
from vitcore.model.vit import ViT
from vitcore.settings import Settings

# Pattern in this package's parameter names -> replacement that gives the name in transformers, without the body's
# prefix. `qkv` and `gate_up` stand for several matrices of transformers, and head.attention.q and .kv are one of them.
COMMON = {
    r"^stem\.": "embeddings.patch_embeddings.projection.",
    r"^encoder\.norm": "layernorm",
    r"^head\.hidden": "pooler.dense",
    r"^head\.distillation": "distillation_classifier",
    r"^head\.": "classifier.",
    r"attention\.out": "attention.o_proj",
    r"scale(\d)\.gamma": r"layer_scale\1.lambda1",
    r"mlp\.up": "mlp.fc1",
    r"mlp\.down": "mlp.fc2",
}
VIT: Patterns = {
    r"^encoder\.blocks": "layers",
    r"\.norm1": ".layernorm_before",
    r"\.norm2": ".layernorm_after",
    **COMMON,
}
DINOV2: Patterns = {r"^encoder\.blocks": "encoder.layer", **COMMON}
GATED: Patterns = {**DINOV2, r"mlp\.up": "mlp.gate_up", r"mlp\.down": "mlp.down_proj"}
CLIP: Patterns = {
    r"^head\.": "classifier.",
    r"^stem\.": "embeddings.patch_embedding.",
    r"^pool\.(q|kv)\.": r"head.attention.\1.",
    r"^pool\.out": "head.attention.out_proj",
    r"^pool\.norm": "head.layernorm",
    r"^pool\.up": "head.mlp.fc1",
    r"^pool\.down": "head.mlp.fc2",
    r"^pool\.": "head.",
    r"^encoder\.embedding_norm": "pre_layrnorm",
    r"^encoder\.norm": "post_layernorm",
    r"^encoder\.blocks": "encoder.layers",
    r"\.norm(\d)": r".layer_norm\1",
    r"\.attention\.qkv": ".self_attn.qkv",
    r"\.attention\.out\.": ".self_attn.out_proj.",
    r"mlp\.up": "mlp.fc1",
    r"mlp\.down": "mlp.fc2",
}
POOL = "head.attention."  # of SigLIP's pooling
NO_HEAD = 2  # classes of the head, which is then 0
PARTS = {"qkv": ("q_proj", "k_proj", "v_proj"), "gate_up": ("gate_proj", "up_proj")}
POSITIONS = ("embeddings.position_embeddings", "embeddings.position_embedding.weight")
TOKENS = (  # in the order of the sequence
    "embeddings.cls_token", "embeddings.class_embedding", "embeddings.distillation_token", "embeddings.register_tokens",
)  # fmt: skip
ACTIVATIONS = {"gelu": "gelu", "gelu_pytorch_tanh": "gelu-tanh", "quick_gelu": "quick-gelu"}


class ModelKind(NamedTuple):
    """What the models of a class of transformers have. body: prefix of the body's parameters. head: its last layer.

    settings: those that differ from a plain ViT's. unused: parameters that its outputs do not depend on.
    """

    patterns: Patterns
    body: str = ""
    head: str = ""
    settings: Values = {}
    unused: tuple[str, ...] = ("embeddings.mask_token",)
    pooler: bool = False  # whether the class takes `add_pooling_layer`


CLIP_HAS: Values = {"embedding_norm": True, "stem.bias": False}
CLIP_MEAN: Values = {**CLIP_HAS, "pool": "gap", "final_norm": "none"}
KINDS = {
    "ViTForImageClassification": ModelKind(VIT, "vit.", "classifier"),
    "ViTModel": ModelKind(VIT, pooler=True),
    "DeiTForImageClassification": ModelKind(VIT, "deit.", "classifier"),
    "DeiTForImageClassificationWithTeacher": ModelKind(VIT, "deit.", "cls_classifier", {"objective.token": True}),
    "DeiTModel": ModelKind(VIT, pooler=True),
    "Dinov2Model": ModelKind(DINOV2),
    "Dinov2WithRegistersModel": ModelKind(DINOV2, settings={"position.antialias": True}),
    "SiglipVisionModel": ModelKind(CLIP, settings={"pool": "map"}),
    "SiglipForImageClassification": ModelKind(CLIP, "vision_model.", "classifier", {"pool": "gap"}, ("head.",)),
    "CLIPVisionModel": ModelKind(CLIP, settings=CLIP_HAS),
    "CLIPVisionModelWithProjection": ModelKind(CLIP, "vision_model.", "visual_projection", CLIP_HAS),
    "CLIPForImageClassification": ModelKind(CLIP, "vision_model.", "classifier", CLIP_MEAN, ("post_layernorm.",)),
}


def from_transformers(model: Any) -> ViT:
    """Convert a vision model of transformers to a ViT with equal outputs and copied weights, without dropout.

    Logits are equal. A model without a classifier has equal `features`, and the ViT's head is zero. A token that is not
    pooled becomes a register. Raises a ValueError that names a part that this ViT lacks.
    """
    parts = [f".{name}" for name, module in model.named_children() if type(module).__name__ in KINDS]
    kind = kind_of(type(model), f"; its {parts[0]} is one of them" if parts else "")
    weights = own_weights(model, kind)
    config = config_of_transformers(model, weights)
    with torch.device("meta"):
        check_alike(model, transformers_model(config, type(model)))
    table = next(weights.pop(name) for name in POSITIONS if name in weights).view(-1, config.width)
    tokens = [weights.pop(name).view(-1, config.width) for name in TOKENS if name in weights]
    prefix = torch.cat([table[:0], *tokens])
    rows = len(table) - config.grid[0] * config.grid[1]  # number of positions of prefix tokens
    without = table.new_zeros(len(prefix) - rows, config.width)
    positions = torch.cat([table[:rows], without, table[rows:]])
    return convert(config, weights, patterns_of(kind, config), prefix, positions).train(model.training)


def to_transformers(model: ViT, kind_class: Any) -> Any:
    """Convert a ViT to a model of a class of transformers, such as ViTForImageClassification, without dropout.

    A class without a classifier leaves out the head. Raises a ValueError that names a setting of the ViT that the class
    lacks.
    """
    config = model.config
    kind = kind_of(kind_class)
    result = transformers_model(config, kind_class).to(model.head.weight)
    expected = own_weights(result, kind)
    check_structure(config, config_of_transformers(result, expected), kind_class.__name__)
    ours = dict(model.state_dict())
    table = ours.pop("position.table")
    class_row = ours.pop("position.class_row", table.new_zeros(config.width))
    tokens = [ours.pop(name)[0] for name in ("class_token", "registers", "objective.token") if name in ours]
    prefix = torch.cat([table[:0], *tokens])
    weights = {rename(name, patterns_of(kind, config)): values for name, values in ours.items()}
    for name in expected:
        count = expected[name].numel() // config.width
        if name in TOKENS:
            weights[name] = prefix[:count]
            prefix = prefix[count:]
        elif name in POSITIONS:
            rows = table.new_zeros(count - len(table), config.width)
            rows[:1] = class_row
            weights[name] = torch.cat([rows, table])
    if kind.head and "classifier.bias" not in expected and weights["classifier.bias"].any():
        raise ValueError(f"head.bias: {kind_class.__name__} has none: zeros")
    parts = split({name: weights[name] for name in expected})
    state = result.state_dict()
    for name, short in own_names(result, kind).items():
        state[name] = parts[short].view_as(state[name])
    result.load_state_dict(state)
    return result.train(model.training)


def kind_of(kind_class: type, hint: str = "") -> ModelKind:
    name = kind_class.__name__
    if name not in KINDS:
        raise ValueError(f"{name}: this ViT can be {joined_names(KINDS)}{hint}")
    return KINDS[name]


def patterns_of(kind: ModelKind, config: Settings) -> Patterns:
    return GATED if config.mlp == "swiglu" and kind.patterns is DINOV2 else kind.patterns


def config_of_transformers(model: Any, weights: Weights) -> Config:
    """Return the config of a ViT. weights: the result of `own_weights`."""
    kind = kind_of(type(model))
    about = getattr(model.config, "vision_config", model.config)
    if about.hidden_act not in ACTIVATIONS:
        raise ValueError(f"hidden_act={about.hidden_act!r}: this ViT has {', '.join(ACTIVATIONS)}")
    activation = ACTIVATIONS[about.hidden_act]
    hidden = next(values.shape[1] for name, values in weights.items() if re.search(r"\.(fc2|down_proj)\.weight", name))
    mlp: Values = {"mlp_ratio": hidden / about.hidden_size, "mlp.activation": activation}
    if getattr(about, "use_swiglu_ffn", False):
        mlp = {"mlp": "swiglu", "mlp.hidden": hidden}
    if kind.settings.get("pool") == "map":
        mlp = {**mlp, "pool.activation": activation}
    tokens = sum(weights[name].numel() // about.hidden_size for name in TOKENS if name in weights)
    read = (kind.settings.get("pool", "cls") == "cls") + kind.settings.get("objective.token", 0)
    settings: dict[str, Any] = {
        "image_size": side("image_size", about.image_size),
        "patch": side("patch_size", about.patch_size),
        "channels": about.num_channels,
        "classes": len(weights["classifier.weight"]) if "classifier.weight" in weights else NO_HEAD,
        "data_seed": 0,
        "width": about.hidden_size,
        "depth": about.num_hidden_layers,
        "heads": about.num_attention_heads,
        "norm.eps": about.layer_norm_eps,
        "bias": "all" if getattr(about, "qkv_bias", True) else "no-qkv",
        "layer_scale": getattr(about, "layerscale_value", 0.0),
        "registers": tokens - read,
        "position.antialias": False,
        "head": "mlp" if "pooler.dense.weight" in weights else "linear",
        **mlp,
        **kind.settings,
    }
    return Config(**settings)


def side(name: str, size: Any) -> int:
    return size if isinstance(size, int) else square_side(name, tuple(size))


def transformers_model(config: Settings, kind_class: Any) -> Any:
    """Return an untrained model of the class `kind_class` with the sizes of `config`."""
    gated = config.mlp == "swiglu"
    activations = {name: other_name for other_name, name in ACTIVATIONS.items()}
    hidden = MLP[config.mlp].hidden(config)
    arguments = {
        "image_size": config.square_side("the conversion to transformers"),
        "patch_size": config.patch,
        "num_channels": config.channels,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": hidden,
        "mlp_ratio": round(hidden / config.width * (3 / 2 if gated else 1)),
        "use_swiglu_ffn": gated,
        "hidden_act": activations[config.options.get("mlp.activation", "gelu")],
        "layer_norm_eps": epsilon(config),
        "qkv_bias": config.bias == "all",
        "layerscale_value": config.layer_scale or 1.0,
        "num_register_tokens": config.registers,
        "projection_dim": config.classes,
    }
    default = kind_class.config_class()
    vision = getattr(default, "vision_config", default)
    arguments = {name: value for name, value in arguments.items() if hasattr(vision, name)}
    if vision is not default:
        arguments = {"vision_config": arguments}
    pooler = {"add_pooling_layer": config.head == "mlp"} if kind_of(kind_class).pooler else {}
    return kind_class(kind_class.config_class(**arguments, num_labels=config.classes), **pooler)


def own_names(model: Any, kind: ModelKind) -> dict[str, str]:
    """Return parameter name -> name without the body's prefix, for parameters that the outputs depend on."""
    names = {}
    for name in model.state_dict():
        short = name.removeprefix(kind.body)
        if kind.head:
            short = short.replace(kind.head, "classifier")
        if not short.startswith(kind.unused):
            names[name] = short
    return names


def own_weights(model: Any, kind: ModelKind) -> Weights:
    """Return the weights by the names in `own_names`, with the matrices in PARTS joined."""
    state = model.state_dict()
    return joined({short: state[name] for name, short in own_names(model, kind).items()})


def joined(weights: Weights) -> Weights:
    """Return weights with each group of matrices in PARTS joined, and those of `nn.MultiheadAttention` split."""
    result = dict(weights)
    if "head.probe" in weights:
        result["head.probe"] = weights["head.probe"].flatten()
    for joint, parts in PARTS.items():
        for name in weights:
            if f".{parts[0]}." in name:
                group = [result.pop(name.replace(parts[0], part)) for part in parts]
                result[name.replace(parts[0], joint)] = torch.cat(group)
    for suffix in ("weight", "bias"):
        if f"{POOL}in_proj_{suffix}" in weights:
            qkv = result.pop(f"{POOL}in_proj_{suffix}")
            result[f"{POOL}q.{suffix}"] = qkv[: len(qkv) // 3]
            result[f"{POOL}kv.{suffix}"] = qkv[len(qkv) // 3 :]
    return result


def split(weights: Weights) -> Weights:
    """Return weights as transformers has them: the inverse of `joined`."""
    result = dict(weights)
    for joint, parts in PARTS.items():
        for name in weights:
            if f".{joint}." in name:
                for part, values in zip(parts, result.pop(name).chunk(len(parts)), strict=True):
                    result[name.replace(joint, part)] = values
    for suffix in ("weight", "bias"):
        if f"{POOL}q.{suffix}" in weights:
            both = [result.pop(f"{POOL}{name}.{suffix}") for name in ("q", "kv")]
            result[f"{POOL}in_proj_{suffix}"] = torch.cat(both)
    return result
