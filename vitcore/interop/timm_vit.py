"""Conversion of Vision Transformers to and from timm, with equal outputs and gradients."""

import re
from functools import partial
from typing import Any, Literal

import torch
from timm.layers.activations import GELUTanh, QuickGELU
from timm.layers.attention import Attention, AttentionRope
from timm.layers.diff_attention import DiffAttention
from timm.layers.hybrid_embed import HybridEmbed
from timm.layers.mlp import GluMlp, Mlp, SwiGLU
from timm.layers.norm import LayerNorm, RmsNorm
from timm.models.deit import VisionTransformerDistilled
from timm.models.eva import Eva, EvaAttention, EvaBlock
from timm.models.resnetv2 import ResNetV2
from timm.models.vision_transformer import Block, ParallelScalingBlock, ParallelThingsBlock, VisionTransformer
from torch import nn

from vitcore.config import Config, Values
from vitcore.interop.conversion import (
    Patterns,
    Weights,
    check_alike,
    check_kinds,
    check_structure,
    convert,
    is_present,
    rename,
    square_side,
)
from vitcore.interop.timm_eva import check_eva, eva_arguments, eva_form, from_eva_form, layout_of, rope_of_eva
from vitcore.model.mlp import MLP
from vitcore.model.norm import epsilon
from vitcore.model.stem import ResNetStem
from vitcore.model.vit import ViT
from vitcore.settings import Settings, size_name

# Pattern in this package's parameter names -> replacement that gives timm's name.
TIMM = {
    r"^stem\.backbone\.": "patch_embed.backbone.",
    r"^stem\.(projection\.)?": "patch_embed.proj.",
    r"^encoder\.embedding_norm": "norm_pre",
    r"^encoder\.": "",
    r"^position\.second\.": "position.",
    r"^pool\.probe": "attn_pool.latent",
    r"^pool\.out": "attn_pool.proj",
    r"^pool\.up": "attn_pool.mlp.fc1",
    r"^pool\.down": "attn_pool.mlp.fc2",
    r"^pool\.": "attn_pool.",
    r"^head\.distillation": "head_dist",
    r"attention\.out": "attn.proj",
    r"attention": "attn",
    r"scale(\d)\.gamma": r"ls\1.gamma",
    r"mlp\.up": "mlp.fc1",
    r"mlp\.down": "mlp.fc2",
}
TIMM_PARALLEL = {  # further patterns for timm's ParallelScalingBlock, applied before TIMM
    r"^(encoder\.blocks\.\d+)\.norm1": r"\1.in_norm",
    r"attention\.([qk]_norm)": r"\1",
    r"attention\.out\.": "attn_out_proj.",
    r"scale1\.gamma": "ls.gamma",
    r"mlp\.down\.": "mlp_out_proj.",
}


def branch_name(match: re.Match[str]) -> str:
    """Return the name in timm's ParallelThingsBlock of a part of a branch: attns.1.norm for further.0.norm1."""
    block, further, part, number = match.groups()
    index = 0 if further is None else int(further) + 1
    kind = "attns" if part == "attention" or number == "1" else "ffns"
    return f"{block}.{kind}.{index}.{'ls' if part == 'scale' else part}"


TIMM_BRANCHES: Patterns = {r"^(encoder\.blocks\.\d+)\.(?:further\.(\d)\.)?(norm|attention|scale|mlp)(\d?)": branch_name}
# Value of a setting -> timm's counterpart.
TIMM_POOLS = {"cls": "token", "gap": "avg", "map": "map"}
BLOCKS = {"pre": Block, "parallel": ParallelScalingBlock, "branches": ParallelThingsBlock}
NORMS = {"layer": LayerNorm, "rms": RmsNorm}
GATED = partial(GluMlp, gate_last=False)
ACTIVATIONS = {"gelu": nn.GELU, "gelu-tanh": GELUTanh, "quick-gelu": QuickGELU}
MLPS: dict[str, tuple[Any, type[nn.Module]]] = {  # (class, activation by default)
    "gelu": (Mlp, nn.GELU),
    "swiglu": (GATED, nn.SiLU),
    "geglu": (GATED, nn.GELU),
}
BIASES = {(True, True): "all", (False, True): "no-qkv", (False, False): "none"}  # (qkv_bias, proj_bias) -> bias


def from_timm(model: VisionTransformer | Eva) -> ViT:
    """Convert timm's VisionTransformer or Eva to a ViT with equal logits and copied weights.

    A class token that is not pooled becomes a register. A model without a head gets one of two classes that is 0, and
    its output is `features` of this ViT. Rates of dropout and stochastic depth become 0. Raises a ValueError that names
    a part that this ViT lacks.
    """
    config = config_of_timm(model)
    check_alike(model, timm_skeleton(config, model))
    weights = join_gates(dict(model.state_dict()))
    if type(model) is Eva:
        weights = eva_form(weights, model)
    if config.block == "parallel":
        weights = split_projections(weights, MLP[config.mlp].hidden(config))
    if "attn_pool.latent" in weights:
        weights["attn_pool.latent"] = weights["attn_pool.latent"].flatten()
    tokens = [weights.pop(name) for name in ("cls_token", "reg_token", "dist_token") if name in weights]
    none = model.patch_embed.proj.weight.new_empty(1, 0, config.width)
    prefix = torch.cat([none, *tokens], dim=1)[0]
    positions = weights.pop("pos_embed")[0] if "pos_embed" in weights else None
    return convert(config, weights, timm_patterns(config), prefix, positions).train(model.training)


def to_timm(model: ViT) -> VisionTransformer | Eva:
    """Convert a ViT for classification to timm's model, including dropout and stochastic depth.

    The model is a VisionTransformer, or an Eva for rotary positions. Raises ValueError if it lacks a part of the ViT.
    """
    config = model.config
    timm_model = timm_class(config)(**timm_arguments(config)).to(model.head.weight)
    check_structure(config, config_of_timm(timm_model), f"timm's {type(timm_model).__name__}")
    ours = dict(model.state_dict())
    tokens = {"class_token": "cls_token", "registers": "reg_token", "objective.token": "dist_token"}
    weights = {other: ours.pop(name) for name, other in tokens.items() if name in ours}
    rows = [ours.pop("position.table")] if "position.table" in ours else []
    class_row = ours.pop("position.class_row", None)
    if is_distilled(config):  # timm has a row for both tokens
        zeros = torch.zeros_like(rows[0][0])
        rows.insert(0, torch.stack([zeros if class_row is None else class_row, zeros]))
    elif class_row is not None and config.registers:  # no row for any prefix token: `no_embed_class`
        weights["cls_token"] = weights["cls_token"] + class_row
    elif class_row is not None:
        rows.insert(0, class_row[None])
    if rows:
        weights["pos_embed"] = torch.cat(rows)[None]
    if "pool.probe" in ours:
        ours["pool.probe"] = ours["pool.probe"][None, None]
    weights |= {rename(name, timm_patterns(config)): values for name, values in ours.items()}
    if config.block == "parallel":
        weights = join_projections(weights)
    if type(timm_model) is Eva:
        weights = from_eva_form(weights, timm_model, config)
    timm_model.load_state_dict(weights)
    return timm_model.train(model.training)


def timm_arguments(config: Settings) -> dict[str, Any]:
    """Return the arguments with which timm's model is the nearest to `ViT(config)`.

    Raises ValueError for what config_of_timm does not see of the model.
    """
    if "rope2d" in config.position:
        return eva_arguments(config, shared_arguments(config))
    check_combinations(config)
    parallel = config.block == "parallel"  # which timm makes only with biases and without inner norms
    mlp_layer, activation = MLPS.get(config.mlp, MLPS["gelu"])
    activation = ACTIVATIONS.get(config.options.get("mlp.activation", ""), activation)
    mlp = MLP[config.mlp]
    arguments = shared_arguments(config) | {
        "mlp_ratio": (mlp.ups * mlp.hidden(config) + 0.5) / config.width,  # timm rounds down
        "proj_bias": parallel or config.bias != "none",
        "pre_norm": config.embedding_norm,
        "block_fn": BLOCKS.get(config.block, Block),
        "attn_layer": {"differential": "diff"}.get(config.self_attention, ""),
        "mlp_layer": mlp_layer,
        "act_layer": activation,
        "scale_mlp_norm": config.options.get("mlp.norm", False) and not parallel,
        "scale_attn_norm": config.options.get("self_attention.norm", False) and not parallel,
        "reg_tokens": config.registers,
        "pos_embed": {"1d": "learn"}.get(config.position, "none"),
        "final_norm": config.final_norm != "none",
        "fc_norm": config.final_norm == "after",
    }
    if config.block == "branches":
        arguments["block_fn"] = partial(ParallelThingsBlock, num_parallel=config.options["block.branches"])
    if is_distilled(config):  # its table has rows for both tokens in any case
        arguments["no_embed_class"] = False
    if config.stem == "resnet":
        arguments |= {"embed_layer": partial(HybridEmbed, backbone=ResNetStem(config).backbone), "patch_size": 1}
    return arguments


def shared_arguments(config: Settings) -> dict[str, Any]:
    """Return the arguments that timm's VisionTransformer and Eva have in common."""
    if config.drop_path and config.drop_path_by_layer != "linear":
        raise ValueError(f"drop_path_by_layer={config.drop_path_by_layer}: timm's models have linear only")
    return {
        "img_size": config.image_shape,
        "patch_size": config.patch,
        "in_chans": config.channels,
        "num_classes": config.classes,
        "embed_dim": config.width,
        "depth": config.layers,
        "num_heads": config.heads,
        "qkv_bias": config.bias == "all",
        "qk_norm": config.qk_norm,
        "norm_layer": partial(NORMS.get(config.norm, LayerNorm), eps=epsilon(config)),
        "init_values": config.layer_scale or None,
        "class_token": config.pool == "cls",
        "no_embed_class": config.registers > 0 or not config.options.get("position.class_row", True),
        "global_pool": TIMM_POOLS.get(config.pool, "avg"),
        "pos_drop_rate": config.dropout,
        "proj_drop_rate": config.dropout,
        "attn_drop_rate": config.attention_dropout,
        "patch_drop_rate": config.patch_dropout,
        "drop_path_rate": config.drop_path,
    }


def check_combinations(config: Settings) -> None:
    biased = config.options.get("stem.bias", True)
    if biased == config.embedding_norm:
        raise ValueError(f"stem.bias={biased}: timm's patches have one unless embedding_norm=True")
    if is_distilled(config):
        for key, allowed in {"pool": "cls", "position": "1d", "registers": 0, "final_norm": "before"}.items():
            value = getattr(config, key)
            if value != allowed:
                raise ValueError(f"{key}={value}: timm's VisionTransformerDistilled has {allowed} only")
    if config.pool == "map" and MLP[config.mlp].ups > 1:
        raise ValueError(f"mlp={config.mlp}: timm's attention pooling has the same hidden width")
    if config.pool == "map" and config.norm != "layer":
        raise ValueError(f"norm={config.norm}: timm's attention pooling has it too")


def config_of_timm(model: Any) -> Config:
    check_kinds(model, {"": (VisionTransformer, VisionTransformerDistilled, Eva)})
    is_eva = type(model) is Eva
    check_kinds(model, {"blocks.0": (EvaBlock,) if is_eva else tuple(BLOCKS.values())})
    if is_eva:
        check_eva(model)
    if model.num_classes == 1:
        raise ValueError("num_classes=1: this ViT has a head of at least 2")
    settings_of = settings_of_block
    if type(model.blocks[0]) is ParallelScalingBlock:
        settings_of = settings_of_parallel_block
    return Config(
        image_size=size_name(model.patch_embed.img_size),
        classes=model.num_classes or 2,
        data_seed=0,
        width=model.embed_dim,
        depth=len(model.blocks),
        embedding_norm=is_present(model.norm_pre),
        final_norm=final_norm_of(model),
        **tokens_of_timm(model),
        **position_of_timm(model),
        **stem_of_timm(model),
        **settings_of(model),
    )


def tokens_of_timm(model: Any) -> Values:
    """Return the settings of the pooling and of the tokens before the patches."""
    pools = {timm_pool: pool for pool, timm_pool in TIMM_POOLS.items()}
    if model.global_pool not in pools:
        raise ValueError(f"global_pool={model.global_pool!r}: this ViT has {', '.join(pools)}")
    if getattr(model, "pool_include_prefix", False):
        raise ValueError("pool_include_prefix=True: this ViT averages the patches alone")
    pool = pools[model.global_pool]
    settings: dict[str, Any] = {"pool": pool, "registers": model.num_prefix_tokens - (pool == "cls")}
    if pool == "map":
        settings["pool.activation"] = activation_of(model.attn_pool.mlp.act)
    if type(model) is VisionTransformerDistilled:
        settings |= {"registers": 0, "objective.token": True}
    return settings


def position_of_timm(model: Any) -> Values:
    names = []
    options: dict[str, Any] = {}
    if model.pos_embed is not None:
        names.append("1d")
        options["position.class_row"] = not model.no_embed_class
    if getattr(model, "rope", None) is not None:
        names.append("rope2d")
        options |= rope_of_eva(model)
    return {"position": "+".join(names) or "none", **options}


def activation_of(module: nn.Module) -> str:
    """Return the name of an activation, or that of GELU for an unknown one, which `check_alike` then refuses."""
    names = {kind: name for name, kind in ACTIVATIONS.items()}
    return names.get(type(module), "gelu")


def final_norm_of(model: Any) -> Literal["before", "after", "none"]:
    if is_present(model.norm):
        return "before"
    if is_present(model.fc_norm):
        return "after"
    return "none"


def settings_of_block(model: Any) -> Values:
    attentions = (EvaAttention, AttentionRope) if type(model) is Eva else (Attention, DiffAttention)
    block = model.blocks[0]
    attention_name, mlp_name = "attn", "mlp"
    branches: Values = {}
    if type(block) is ParallelThingsBlock:
        attention_name, mlp_name = "attns.0.attn", "ffns.0.mlp"
        branches = {"block": "branches", "block.branches": block.num_parallel}
    mlps = (Mlp, GluMlp, SwiGLU)
    check_kinds(model, {f"blocks.0.{attention_name}": attentions, f"blocks.0.{mlp_name}": mlps})
    if branches:
        norm, attn, scale, _ = block.attns[0]
        block = nn.ModuleDict({"norm1": norm, "attn": attn, "ls1": scale, "mlp": block.ffns[0].mlp})
    attention = block.attn
    qkv_bias = any(f"attn.{name}" in dict(block.named_parameters()) for name in ("qkv.bias", "q_bias", "q_proj.bias"))
    scale = block.init_values if type(block) is EvaBlock else getattr(block.ls1, "init_values", None)
    settings = {
        "heads": attention.num_heads,
        "mlp.norm": is_present(block.mlp.norm),
        **branches,
        **common_settings(block.norm1, qkv_bias, attention.proj, scale, attention.q_norm),
    }
    if type(attention) is DiffAttention:
        settings["self_attention"] = "differential"
    else:
        settings["self_attention.norm"] = is_present(attention.norm)
    hidden = block.mlp.fc2.in_features
    if type(block.mlp) is Mlp:
        return settings | {"mlp_ratio": hidden / model.embed_dim, "mlp.activation": activation_of(block.mlp.act)}
    if getattr(block.mlp, "gate_last", False):
        raise ValueError("gate_last=True: this ViT's gate is the first half of its product")
    return settings | {"mlp": "geglu" if isinstance(block.mlp.act, nn.GELU) else "swiglu", "mlp.hidden": hidden}


def settings_of_parallel_block(model: Any) -> Values:
    block = model.blocks[0]
    if block.out_proj is not None:
        raise ValueError("fuse_out_proj=True: this ViT has an output projection of each branch")
    if block.attn_out_proj.bias is None:
        raise ValueError("proj_bias=False: a parallel block keeps the bias of its MLP, which this ViT then has not")
    ratio = block.mlp_out_proj.in_features / model.embed_dim
    scale = getattr(block.ls, "init_values", None)
    qkv_bias = block.in_proj.bias is not None
    common = common_settings(block.in_norm, qkv_bias, block.attn_out_proj, scale, block.q_norm)
    activation = activation_of(block.mlp_act)
    return {"block": "parallel", "heads": block.num_heads, "mlp_ratio": ratio, "mlp.activation": activation, **common}


def common_settings(norm: Any, qkv_bias: bool, out: nn.Linear, scale: float | None, q_norm: nn.Module) -> Values:
    biased = (qkv_bias, out.bias is not None)
    if biased not in BIASES:
        raise ValueError("qkv_bias=True with proj_bias=False: this ViT has biases in all, all but qkv, or none")
    settings = {"bias": BIASES[biased], "qk_norm": is_present(q_norm), "norm.eps": norm.eps}
    if type(norm) is RmsNorm:
        settings["norm"] = "rms"
    if scale:
        settings["layer_scale"] = float(scale)
    return settings


def stem_of_timm(model: Any) -> Values:
    """Return the settings of timm's stem: patches, or the ResNet of arXiv 2010.11929."""
    embed: Any = model.patch_embed
    patch = square_side("patch_size", embed.patch_size)
    if type(embed) is not HybridEmbed:
        return {"patch": patch, "channels": embed.proj.in_channels, "stem.bias": embed.proj.bias is not None}
    check_kinds(model, {"patch_embed.backbone": (ResNetV2,)})
    resnet: Any = embed.backbone
    return {
        "stem": "resnet",
        "stem.layers": 26 if len(resnet.stages[0].blocks) == 2 else 50,
        "patch": patch * square_side("feature_ratio", embed.feature_ratio),
        "channels": resnet.stem.conv.in_channels,
    }


def is_distilled(config: Settings) -> bool:
    return bool(config.options.get("objective.token"))


def timm_class(config: Settings) -> type[VisionTransformer | Eva]:
    if "rope2d" in config.position:
        return Eva
    return VisionTransformerDistilled if is_distilled(config) else VisionTransformer


def timm_skeleton(config: Settings, model: Any) -> VisionTransformer | Eva:
    """Return timm's model for `config` on the meta device, with the classes of `model` where timm has several."""
    with torch.device("meta"):
        classes = {"num_classes": model.num_classes}
        if type(model) is Eva:
            return Eva(**eva_arguments(config, shared_arguments(config)) | layout_of(model) | classes)
        arguments = timm_arguments(config) | classes
        if type(getattr(model.blocks[0], "mlp", None)) is SwiGLU:  # which has separate layers for gate and value
            arguments |= {"mlp_layer": SwiGLU, "mlp_ratio": (MLP[config.mlp].hidden(config) + 0.5) / config.width}
        return timm_class(config)(**arguments)


def timm_patterns(config: Settings) -> Patterns:
    patterns: dict[str, Any] = {}
    if config.final_norm == "after":
        patterns[r"^encoder\.norm"] = "fc_norm"
    if config.block == "parallel":
        patterns |= TIMM_PARALLEL
    if config.block == "branches":
        patterns |= TIMM_BRANCHES
    return patterns | TIMM


# timm's block classes join different parameters in one matrix. In the common form, `mlp.fc1` has gate and value, and a
# parallel block has `mlp.fc1` and `attn.qkv`. Names are timm's.


def split_projections(weights: Weights, hidden: int) -> Weights:
    """Return weights with the joint input projections of parallel blocks split. hidden: the MLP's hidden width."""
    split: Weights = {}
    for name, values in weights.items():
        if ".in_proj." in name:
            split[name.replace("in_proj", "mlp.fc1")] = values[:hidden]
            split[name.replace("in_proj", "attn.qkv")] = values[hidden:]
        else:
            split[name.replace("mlp_bias", "mlp.fc1.bias")] = values
    return split


def join_projections(weights: Weights) -> Weights:
    """Return weights with the input projections of parallel blocks joined: the inverse of `split_projections`."""
    joint: Weights = {}
    for name, values in weights.items():
        qkv = weights.get(name.replace("mlp.fc1", "attn.qkv"))
        if ".mlp.fc1." in name and qkv is not None:
            joint[name.replace("mlp.fc1", "in_proj")] = torch.cat([values, qkv])
        elif name.startswith("blocks.") and ".attn.qkv." not in name:
            joint[name.replace("mlp.fc1.bias", "mlp_bias")] = values
        elif ".attn.qkv." not in name:  # such as the attention pooling, which has an MLP of its own
            joint[name] = values
    return joint


def join_gates(weights: Weights) -> Weights:
    """Return the weights with gate and value of each SwiGLU MLP joined in one matrix, gate first."""
    joint: Weights = {}
    for name, values in weights.items():
        if "mlp.fc1_g." in name:
            joint[name.replace("fc1_g", "fc1")] = torch.cat([values, weights[name.replace("fc1_g", "fc1_x")]])
        elif "mlp.fc1_x." not in name:
            joint[name] = values
    return joint
