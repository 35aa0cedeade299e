"""Conversion of models from and to timm and torchvision, and from .npz files, with equal outputs and gradients.

A model that `vitcore.model.vit.ViT`, called this ViT below, cannot represent is refused: the new ViT's counterpart in
the other library is built on the meta device, and compared with the original module by module. Dropout and stochastic
depth are not imported. Functions import timm and torchvision when called, as that takes seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vitcore.config import Config, Values
from vitcore.interop.npz import read_npz
from vitcore.interop.timm_blocks import joined, packed, separated
from vitcore.model.mlp import MLP
from vitcore.model.norm import EPSILON
from vitcore.model.stem import ConvStem, ResNetStem
from vitcore.model.vit import ViT

if TYPE_CHECKING:
    from os import PathLike

    from timm.models.vision_transformer import VisionTransformer as TimmViT
    from torchvision.models import VisionTransformer as TorchvisionViT

Weights = dict[str, Tensor]

# Patterns in this package's parameter names: replacements for the other library.
TIMM = {
    r"^stem\.backbone\.": "patch_embed.backbone.",
    r"^stem\.(projection\.)?": "patch_embed.proj.",
    r"^encoder\.embedding_norm": "norm_pre",
    r"^encoder\.": "",
    r"^pool\.probe": "attn_pool.latent",
    r"^pool\.out": "attn_pool.proj",
    r"^pool\.up": "attn_pool.mlp.fc1",
    r"^pool\.down": "attn_pool.mlp.fc2",
    r"^pool\.": "attn_pool.",
    r"attention\.out": "attn.proj",
    r"attention": "attn",
    r"scale(\d)\.gamma": r"ls\1.gamma",
    r"mlp\.up": "mlp.fc1",
    r"mlp\.down": "mlp.fc2",
}
TIMM_PARALLEL = {  # of timm's ParallelScalingBlock
    r"^(encoder\.blocks\.\d+)\.norm1": r"\1.in_norm",
    r"attention\.([qk]_norm)": r"\1",
    r"attention\.out\.": "attn_out_proj.",
    r"scale1\.gamma": "ls.gamma",
    r"mlp\.down\.": "mlp_out_proj.",
}
TORCHVISION = {
    r"^stem\.projection\.": "conv_proj.conv_last.",
    r"^stem\.": "conv_proj.",
    r"^encoder\.blocks\.": "encoder.layers.encoder_layer_",
    r"^encoder\.norm": "encoder.ln",
    r"norm(\d)": r"ln_\1",
    r"attention\.qkv\.": "self_attention.in_proj_",
    r"attention\.out": "self_attention.out_proj",
    r"mlp\.up": "mlp.0",
    r"mlp\.down": "mlp.3",
    r"^head\.hidden": "heads.pre_logits",
    r"^head\.": "heads.head.",
}
TIMM_POOLS = {"cls": "token", "gap": "avg", "map": "map"}
BOTH_HAVE: dict[str, tuple[Any, ...]] = {
    "objective.token": (False,),
    "position.combine": ("add",),
    "token_merging": (0,),
}
TIMM_HAS = BOTH_HAVE | {
    "position": ("none", "1d"),
    "position_at": ("", "input"),
    "pool": tuple(TIMM_POOLS),
    "stem": ("patch", "resnet"),
    "head": ("linear",),
    "mlp": ("gelu", "swiglu", "geglu"),
    "block": ("pre", "parallel"),
    "self_attention": ("full", "differential"),
}
TORCHVISION_HAS = BOTH_HAVE | {
    "channels": (3,),
    "position": ("1d",),
    "position_at": ("input",),
    "pool": ("cls",),
    "registers": (0,),
    "final_norm": ("before",),
    "stem": ("patch", "conv"),
    "stem.norm": ("batch",),
    "head": ("linear", "mlp"),
    "qk_norm": (False,),
    "layer_scale": (0.0,),
    "position.class_row": (True,),
    "stem.bias": (True,),
    "mlp": ("gelu",),
    "norm": ("layer",),
    "bias": ("all",),
    "block": ("pre",),
    "self_attention": ("full",),
    "embedding_norm": (False,),
}
BIASES = {(True, True): "all", (False, True): "no-qkv", (False, False): "none"}  # by (qkv_bias, proj_bias)


def from_timm(model: TimmViT) -> ViT:
    """Convert timm's VisionTransformer to a ViT with equal logits and copied weights.

    A class token that is not pooled becomes a register. Raises ValueError, which names the part, if this ViT lacks one.
    """
    config = config_of_timm(model)
    check_alike(model, timm_skeleton(config, type(getattr(model.blocks[0], "mlp", None))))
    theirs = packed(dict(model.state_dict()))
    if config.block == "parallel":
        theirs = separated(theirs, MLP[config.mlp].hidden(config))
    if "attn_pool.latent" in theirs:
        theirs["attn_pool.latent"] = theirs["attn_pool.latent"].flatten()
    tokens = [theirs.pop(name) for name in ("cls_token", "reg_token") if name in theirs]
    prefix = torch.cat(tokens, dim=1)[0] if tokens else theirs["head.weight"].new_empty(0, config.width)
    positions = theirs.pop("pos_embed")[0] if "pos_embed" in theirs else None
    weights = own_names(config, theirs, timm_name) | token_weights(config, prefix, positions)
    return with_weights(config, weights).train(model.training)


def to_timm(model: ViT) -> TimmViT:
    """Convert a ViT to timm's VisionTransformer, including dropout and stochastic depth.

    Raises ValueError if timm's model lacks a part of the ViT.
    """
    from timm.models.vision_transformer import VisionTransformer

    config = model.config
    theirs = VisionTransformer(**timm_arguments(config)).to(model.head.weight)
    ours = dict(model.state_dict())
    tokens = {"class_token": "cls_token", "registers": "reg_token"}
    weights = {other: ours.pop(name) for name, other in tokens.items() if name in ours}
    rows = [ours.pop("position.table")] if "position.table" in ours else []
    if "position.class_row" in ours:
        row = ours.pop("position.class_row")
        if config.registers:  # no row for any prefix token: `no_embed_class`
            weights["cls_token"] = weights["cls_token"] + row
        else:
            rows.insert(0, row[None])
    if rows:
        weights["pos_embed"] = torch.cat(rows)[None]
    if "pool.probe" in ours:
        ours["pool.probe"] = ours["pool.probe"][None, None]
    weights |= {timm_name(config, name): values for name, values in ours.items()}
    theirs.load_state_dict(joined(weights) if config.block == "parallel" else weights)
    return theirs.train(model.training)


def timm_arguments(config: Config) -> dict[str, Any]:
    """Return the arguments that make timm's VisionTransformer equal to `ViT(config)`; raise ValueError if none do."""
    from timm.layers.hybrid_embed import HybridEmbed

    check_supported(config, TIMM_HAS, "timm")
    check_combinations(config)
    hybrid = config.stem == "resnet"
    return {
        **({"embed_layer": partial(HybridEmbed, backbone=ResNetStem(config).backbone)} if hybrid else {}),
        "img_size": config.image_size,
        "patch_size": 1 if hybrid else config.patch,
        "in_chans": config.channels,
        "num_classes": config.classes,
        "embed_dim": config.width,
        "depth": config.layers,
        "num_heads": config.heads,
        "mlp_ratio": (MLP[config.mlp].ups * MLP[config.mlp].hidden(config) + 0.5) / config.width,  # timm rounds down
        "qkv_bias": config.bias == "all",
        "proj_bias": config.bias != "none",
        "pre_norm": config.embedding_norm,
        "qk_norm": config.qk_norm,
        **blocks_of_timm(config),
        "init_values": config.layer_scale or None,
        "class_token": config.pool == "cls",
        "reg_tokens": config.registers,
        "no_embed_class": config.registers > 0 or not config.options.get("position.class_row", True),
        "pos_embed": "none" if config.position == "none" else "learn",
        "global_pool": TIMM_POOLS[config.pool],
        "final_norm": config.final_norm != "none",
        "fc_norm": config.final_norm == "after",
        "pos_drop_rate": config.dropout,
        "proj_drop_rate": config.dropout,
        "attn_drop_rate": config.attention_dropout,
        "patch_drop_rate": config.patch_dropout,
        "drop_path_rate": config.drop_path,
    }


def blocks_of_timm(config: Config) -> dict[str, Any]:
    from timm.layers.mlp import GluMlp, Mlp
    from timm.layers.norm import LayerNorm, RmsNorm
    from timm.models.vision_transformer import Block, ParallelScalingBlock

    gates = {"swiglu": nn.SiLU, "geglu": nn.GELU}
    gated = partial(GluMlp, gate_last=False)
    return {
        "block_fn": ParallelScalingBlock if config.block == "parallel" else Block,
        "norm_layer": partial(RmsNorm if config.norm == "rms" else LayerNorm, eps=EPSILON),
        "attn_layer": "diff" if config.self_attention == "differential" else "",
        "mlp_layer": gated if config.mlp in gates else Mlp,
        "act_layer": gates.get(config.mlp, nn.GELU),
    }


def check_combinations(config: Config) -> None:
    biased, attention = config.options.get("stem.bias", True), config.self_attention
    gated, parallel, pooled = MLP[config.mlp].ups > 1, config.block == "parallel", config.pool == "map"
    for impossible, why in (
        (parallel and gated, f"mlp={config.mlp}: timm's parallel block has gelu only"),
        (parallel and attention != "full", f"self_attention={attention}: timm's parallel block has full only"),
        (parallel and config.bias == "none", "bias=none: timm's parallel block keeps the MLP's"),
        (biased == config.embedding_norm, f"stem.bias={biased}: timm's patches have one unless embedding_norm=True"),
        (pooled and gated, f"mlp={config.mlp}: timm's attention pooling has the same hidden width"),
        (pooled and config.norm != "layer", f"norm={config.norm}: timm's attention pooling has it too"),
    ):
        if impossible:
            raise ValueError(why)


def from_torchvision(model: TorchvisionViT) -> ViT:
    """Convert torchvision's VisionTransformer to a ViT with equal logits and copied weights.

    Raises ValueError, which names the part, if this ViT lacks one.
    """
    config = config_of_torchvision(model)
    check_alike(model, torchvision_skeleton(config))
    theirs = dict(model.state_dict())
    prefix, positions = theirs.pop("class_token")[0], theirs.pop("encoder.pos_embedding")[0]
    weights = own_names(config, theirs, torchvision_name) | token_weights(config, prefix, positions)
    return with_weights(config, weights).train(model.training)


def to_torchvision(model: ViT) -> TorchvisionViT:
    """Convert a ViT to torchvision's VisionTransformer, without dropout.

    Raises ValueError if torchvision's model lacks a part of the ViT.
    """
    config = model.config
    check_supported(config, TORCHVISION_HAS, "torchvision")
    ours = dict(model.state_dict())
    positions = torch.cat([ours.pop("position.class_row")[None], ours.pop("position.table")])[None]
    weights = {"class_token": ours.pop("class_token"), "encoder.pos_embedding": positions}
    weights |= {torchvision_name(config, name): values for name, values in ours.items()}
    theirs = torchvision_skeleton(config)
    theirs.load_state_dict({name: values.clone() for name, values in weights.items()}, assign=True)
    return theirs.train(model.training)


def load_npz(path: str | PathLike[str]) -> ViT:
    """Load a checkpoint of google-research/vision_transformer or big_vision as a ViT, in float32.

    Sizes come from the shapes of the arrays, and nothing is unpickled. Raises OSError if the file cannot be opened, and
    ValueError, which names the array, if one is missing, has an unexpected shape, or belongs to no part of this ViT.
    """
    return with_weights(*read_npz(path))


def config_of_timm(model: Any) -> Config:
    from timm.models.vision_transformer import Block, ParallelScalingBlock, VisionTransformer

    check_kinds(model, {"": (VisionTransformer,), "blocks.0": (Block, ParallelScalingBlock)})
    pools = {theirs: ours for ours, theirs in TIMM_POOLS.items()}
    if model.global_pool not in pools:
        raise ValueError(f"global_pool={model.global_pool!r}: this ViT has {', '.join(pools)}")
    if model.pool_include_prefix:
        raise ValueError("pool_include_prefix=True: this ViT averages the patches alone")
    if model.num_classes < 2:
        raise ValueError(f"num_classes={model.num_classes}: this ViT has a head of at least 2")
    pool, positions = pools[model.global_pool], model.pos_embed is not None
    row: Values = {"position.class_row": not model.no_embed_class} if positions else {}
    block = parallel_block(model) if type(model.blocks[0]) is ParallelScalingBlock else plain_block(model)
    return Config(
        image_size=square_side("img_size", model.patch_embed.img_size),
        classes=model.num_classes,
        data_seed=0,
        width=model.embed_dim,
        depth=len(model.blocks),
        embedding_norm=is_present(model.norm_pre),
        position="1d" if positions else "none",
        pool=pool,
        final_norm="before" if is_present(model.norm) else "after" if is_present(model.fc_norm) else "none",
        registers=model.num_prefix_tokens - (pool == "cls"),
        **stem_of_timm(model),
        **block,
        **row,
    )


def plain_block(model: Any) -> Values:
    from timm.layers.attention import Attention
    from timm.layers.diff_attention import DiffAttention
    from timm.layers.mlp import GluMlp, Mlp, SwiGLU

    check_kinds(model, {"blocks.0.attn": (Attention, DiffAttention), "blocks.0.mlp": (Mlp, GluMlp, SwiGLU)})
    block = model.blocks[0]
    if getattr(block.mlp, "gate_last", False):
        raise ValueError("gate_last=True: this ViT's gate is the first half of its product")
    hidden, gate = block.mlp.fc2.in_features, "geglu" if isinstance(block.mlp.act, nn.GELU) else "swiglu"
    plain = type(block.mlp) is Mlp
    mlp = {"mlp_ratio": hidden / model.embed_dim} if plain else {"mlp": gate, "mlp.hidden": hidden}
    attention = "full" if type(block.attn) is Attention else "differential"
    common = common_settings(block.norm1, block.attn.qkv, block.attn.proj, block.ls1, block.attn.q_norm)
    return {"heads": block.attn.num_heads, "self_attention": attention, **mlp, **common}


def parallel_block(model: Any) -> Values:
    block = model.blocks[0]
    if block.out_proj is not None:
        raise ValueError("fuse_out_proj=True: this ViT has an output projection of each branch")
    if block.attn_out_proj.bias is None:
        raise ValueError("proj_bias=False: a parallel block keeps the bias of its MLP, which this ViT then has not")
    ratio = block.mlp_out_proj.in_features / model.embed_dim
    common = common_settings(block.in_norm, block.in_proj, block.attn_out_proj, block.ls, block.q_norm)
    return {"block": "parallel", "heads": block.num_heads, "mlp_ratio": ratio, **common}


def common_settings(norm: nn.Module, qkv: nn.Linear, out: nn.Linear, scale: Any, q_norm: nn.Module) -> Values:
    from timm.layers.norm import RmsNorm

    biased = (qkv.bias is not None, out.bias is not None)
    if biased not in BIASES:
        raise ValueError("qkv_bias=True with proj_bias=False: this ViT has biases in all, all but qkv, or none")
    return {
        "norm": "rms" if type(norm) is RmsNorm else "layer",
        "bias": BIASES[biased],
        "layer_scale": float(scale.init_values) if is_present(scale) else 0.0,
        "qk_norm": is_present(q_norm),
    }


def is_present(module: nn.Module) -> bool:
    return not isinstance(module, nn.Identity)


def stem_of_timm(model: Any) -> Values:
    """Return the settings of timm's stem: patches, or the ResNet of arXiv 2010.11929."""
    from timm.layers.hybrid_embed import HybridEmbed
    from timm.models.resnetv2 import ResNetV2

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


def config_of_torchvision(model: Any) -> Config:
    from torchvision.models import VisionTransformer

    check_kinds(model, {"": (VisionTransformer,)})
    width, hidden_head = model.hidden_dim, model.representation_size
    if hidden_head not in (None, width):
        raise ValueError(f"representation_size={hidden_head}: this ViT's hidden head has width={width}")
    stem: Values = {}
    first = model.conv_proj
    if type(first) is not nn.Conv2d:  # convolutions with batch norm (arXiv 2106.14881)
        layers = [layer[0] for layer in first[:-1]]
        stem = {"stem": "conv", "stem.norm": "batch", "stem.channels": [layer.out_channels for layer in layers]}
        first = layers[0]
    return Config(
        image_size=model.image_size,
        channels=first.in_channels,
        classes=model.num_classes,
        data_seed=0,
        width=width,
        depth=len(model.encoder.layers),
        heads=model.encoder.layers[0].num_heads,
        mlp_ratio=model.mlp_dim / width,
        patch=model.patch_size,
        head="linear" if hidden_head is None else "mlp",
        **stem,
    )


def timm_skeleton(config: Config, mlp: type) -> TimmViT:
    """Return timm's model for `config`, on the meta device. mlp: class of the original's MLP."""
    from timm.layers.mlp import SwiGLU
    from timm.models.vision_transformer import VisionTransformer

    hidden = MLP[config.mlp].hidden(config)
    # timm's SwiGLU has separate layers for gate and value
    apart = {"mlp_layer": SwiGLU, "mlp_ratio": (hidden + 0.5) / config.width} if mlp is SwiGLU else {}
    with torch.device("meta"):
        return VisionTransformer(**timm_arguments(config) | apart)


def torchvision_skeleton(config: Config) -> TorchvisionViT:
    from torchvision.models import VisionTransformer
    from torchvision.models.vision_transformer import ConvStemConfig

    stem = None
    if config.stem == "conv":
        layers = ConvStem.convolutions(config)
        stem = [ConvStemConfig(channels, kernel_size=3, stride=stride) for channels, stride in layers]
    with torch.device("meta"):
        return VisionTransformer(
            image_size=config.image_size,
            patch_size=config.patch,
            num_layers=config.layers,
            num_heads=config.heads,
            hidden_dim=config.width,
            mlp_dim=MLP[config.mlp].hidden(config),
            num_classes=config.classes,
            representation_size=config.width if config.head == "mlp" else None,
            conv_stem_configs=stem,
        )


def check_kinds(model: nn.Module, kinds: dict[str, tuple[type[nn.Module], ...]]) -> None:
    """Raise ValueError if a module's class is not one of those allowed for its name; subclasses are refused too."""
    for name, allowed in kinds.items():
        if (kind := type(model.get_submodule(name))) not in allowed:
            known = " or ".join(one.__name__ for one in allowed)
            raise ValueError(f"{name or 'model'}: {kind.__name__}, where this ViT has {known}")


def check_alike(model: nn.Module, skeleton: nn.Module) -> None:
    """Raise ValueError, which names the module, if a module differs between the models or is in only one of them."""
    theirs, ours = module_settings(model), module_settings(skeleton)
    for name in [*theirs, *ours]:
        if theirs.get(name) != ours.get(name):
            there, here = theirs.get(name, "not there"), ours.get(name, "none")
            raise ValueError(f"{name}: {there}, where this ViT has {here}")


def module_settings(model: nn.Module) -> dict[str, str]:
    """Return the class and settings of each module by name, except of modules that do nothing in evaluation."""
    found = {}
    for name, module in model.named_modules():
        kind = "LayerNorm" if isinstance(module, nn.LayerNorm) else type(module).__name__  # also timm's
        settings = module.extra_repr().replace("approximate='none'", "")
        if hasattr(module, "eps") and "eps=" not in settings:  # StdConv2d omits it
            settings += f", eps={module.eps}"
        if kind not in ("Identity", "Dropout", "DropPath", "PatchDropout"):
            found[name] = f"{kind}({settings})"
    return found


def token_weights(config: Config, prefix: Tensor, positions: Tensor | None) -> Weights:
    """Return prefix tokens (p, D) and position embeddings, (p + N, D) or (N, D), under the names of this ViT."""
    weights, rows = {}, torch.zeros_like(prefix)
    if positions is not None:
        own = max(0, len(positions) - config.grid[0] * config.grid[1])  # of prefix tokens
        weights["position.table"], rows = positions[own:], positions[:own] if own else rows
    if config.pool == "cls":
        weights["class_token"] = prefix[None, :1]
        if config.options.get("position.class_row"):
            weights["position.class_row"] = rows[0]
    if config.registers:
        weights["registers"] = (prefix + rows)[None, -config.registers :]  # both are constants
    return weights


def with_weights(config: Config, weights: Weights) -> ViT:
    with torch.device("meta"):
        model = ViT(config)
    copies = {name: values.clone(memory_format=torch.contiguous_format) for name, values in weights.items()}
    model.load_state_dict(copies, assign=True)
    return model


def own_names(config: Config, theirs: Weights, rename: Callable[[Config, str], str]) -> Weights:
    """Return another library's weights under this ViT's parameter names, which `rename` maps to the library's."""
    with torch.device("meta"):
        names = {rename(config, name): name for name in ViT(config).state_dict()}
    if unknown := theirs.keys() - names:
        raise ValueError(f"{min(unknown)}: this ViT has no such parameter")
    return {names[name]: values for name, values in theirs.items()}


def timm_name(config: Config, name: str) -> str:
    after = {r"^encoder\.norm": "fc_norm"} if config.final_norm == "after" else {}
    return renamed(name, after | (TIMM_PARALLEL if config.block == "parallel" else {}) | TIMM)


def torchvision_name(config: Config, name: str) -> str:
    if layer := re.match(r"stem\.layers\.(\d+)\.(.*)", name):
        convolution, place = divmod(int(layer[1]), 3)  # a convolution, its norm, a ReLU
        return f"conv_proj.conv_bn_relu_{convolution}.{place}.{layer[2]}"
    return renamed(name, TORCHVISION)


def renamed(name: str, patterns: dict[str, str]) -> str:
    for ours, theirs in patterns.items():
        name = re.sub(ours, theirs, name)
    return name


def check_supported(config: Config, has: Mapping[str, tuple[Any, ...]], whose: str) -> None:
    """Raise ValueError if a setting of `config` has none of the values that the library `whose` supports."""
    settings = dict(config) | config.options
    for key, known in has.items():
        if (value := settings.get(key, known[0])) not in known:
            names = " or ".join(str(one) for one in known if one != "")
            raise ValueError(f"{key}={value}: {whose}'s VisionTransformer has {names} only")


def square_side(name: str, size: tuple[int, int]) -> int:
    """Return the side of a square; raise ValueError, which begins with `name`, if height and width differ."""
    if size[0] != size[1]:
        raise ValueError(f"{name}={size}: this ViT's images and patches are square")
    return size[0]
