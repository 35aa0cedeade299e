"""timm's Eva, the class of RoPE-ViT, EVA-02 and DINOv3: its arguments, rotary positions and layout of weights.

Eva pairs and orders the rotated channels in four ways. Weights of queries and keys are reordered here, which leaves the
products of queries and keys unchanged.
"""

import math
import re
from typing import Any

import torch
from timm.layers.attention import AttentionRope
from timm.layers.mlp import SwiGLU
from timm.layers.pos_embed_sincos import RotaryEmbeddingCat, RotaryEmbeddingDinoV3, RotaryEmbeddingMixed
from timm.models.eva import EvaAttention
from torch import Tensor

from vitcore.config import Values
from vitcore.interop.conversion import Weights, check_kinds, rename, square_side
from vitcore.model.mlp import MLP
from vitcore.settings import Settings

EVA = {  # patterns in Eva's names -> names of timm's VisionTransformer
    r"attn\.([qv])_bias$": r"attn.\1_proj.bias",
    r"gamma_(\d)": r"ls\1.gamma",
}
DINOV3 = {"position.extent": 4 * math.pi, "position.origin": "center"}
OFFSETS = {0.0: "first", 1.0: "before"}  # timm's grid_offset -> position.origin


def eva_arguments(config: Settings, shared: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with which timm's Eva is the nearest to `ViT(config)`. shared: of `shared_arguments`."""
    arguments = shared | {
        "mlp_ratio": (MLP[config.mlp].hidden(config) + 0.5) / config.width,
        "swiglu_mlp": config.mlp == "swiglu",
        "scale_mlp": config.options["mlp.norm"],
        "scale_attn_inner": config.options.get("self_attention.norm", False),
        "attn_type": "rope",
        "num_reg_tokens": config.registers,
        "use_abs_pos_emb": "1d" in config.position,
        "use_rot_pos_emb": "rope2d" in config.position,
        "use_pre_transformer_norm": config.embedding_norm,
        "use_post_transformer_norm": config.final_norm == "before",
        "use_fc_norm": config.final_norm == "after",
    }
    if not config.qk_norm:
        del arguments["qk_norm"]  # which older versions of timm lack
    if "rope2d" in config.position:
        arguments |= rope_arguments(config.options)
    return arguments


def rope_arguments(options: dict[str, Any]) -> dict[str, Any]:
    arguments = {"rope_temperature": options["position.base"], "rope_grid_indexing": "xy"}
    if options["position.mixed"]:
        return arguments | {"rope_type": "mixed"}
    if options.items() >= DINOV3.items():
        return arguments | {"rope_type": "dinov3", "rope_rotate_half": True}
    extent = options["position.extent"]
    offsets = {origin: offset for offset, origin in OFFSETS.items()}
    offset = offsets.get(options["position.origin"], 0.0)
    return arguments | {"ref_feat_shape": (extent, extent) if extent else None, "rope_grid_offset": offset}


def rope_of_eva(model: Any) -> Values:
    """Return the options of Eva's rotary position embedding."""
    check_kinds(model, {"rope": (RotaryEmbeddingCat, RotaryEmbeddingMixed, RotaryEmbeddingDinoV3)})
    rope = model.rope
    settings: Values = {"position.base": float(rope.temperature)}
    if type(rope) is RotaryEmbeddingMixed:
        return {**settings, "position.mixed": True}
    offset = rope.grid_offset
    if type(rope) is RotaryEmbeddingDinoV3 and not offset:
        return {**settings, **DINOV3}
    if type(rope) is RotaryEmbeddingDinoV3 or offset not in OFFSETS:
        raise ValueError(f"rope.grid_offset={offset}: this ViT has 0, and 1 without centered coordinates")
    extent = square_side("ref_feat_shape", rope.ref_feat_shape) if rope.ref_feat_shape else 0
    return {**settings, "position.extent": float(extent), "position.origin": OFFSETS[offset]}


def check_eva(model: Any) -> None:
    """Raise ValueError for what this ViT lacks and the modules' names and settings do not show."""
    if model.global_pool == "map":
        raise ValueError("global_pool='map': timm's Eva also pools the class token, this ViT only the patches")
    for index, block in enumerate(model.blocks):
        keys = getattr(block.attn, "num_kv_heads", block.attn.num_heads)
        if keys != block.attn.num_heads:
            raise ValueError(f"blocks.{index}: num_kv_heads={keys}: this ViT has keys for each of its heads")
        if (block.gamma_1 is None) != (block.gamma_2 is None):
            raise ValueError("attn_only_layer_scale=True: this ViT scales both branches or none")


def layout_of(model: Any) -> dict[str, Any]:
    """Return the arguments by which Eva's layout of weights and channels differs from that of `eva_arguments`."""
    block = model.blocks[0]
    attention = block.attn
    check_kinds(model, {"blocks.0.attn": (EvaAttention, AttentionRope)})
    return {
        "attn_type": "rope" if type(attention) is AttentionRope else "eva",
        "qkv_fused": attention.qkv is not None,
        "rope_rotate_half": attention.rotate_half,
        "swiglu_align_to": int(type(block.mlp) is SwiGLU),
    }


def eva_form(weights: Weights, model: Any) -> Weights:
    """Return Eva's weights with names, joint projections and order of channels as timm's VisionTransformer has them."""
    named = {rename(name, EVA): values for name, values in weights.items()}
    for layer in range(len(model.blocks)):
        for kind in ("weight", "bias"):
            join_qkv(named, f"blocks.{layer}.attn", kind)
    if model.rope is None:
        return named
    if "rope.freqs" in named:
        rates = named.pop("rope.freqs").permute(1, 2, 0, 3)  # (L, H, 2, d_h / 2)
        if model.rope.grid_indexing == "ij":
            rates = rates.flip(2)
        named |= {f"position.rates.{layer}": values for layer, values in enumerate(rates)}
    return reordered(named, channel_order(model))


def join_qkv(weights: Weights, attention: str, kind: str) -> None:
    """Join the weights or biases of queries, keys and values in place. A bias that keys lack is 0."""
    names = [f"{attention}.{part}_proj.{kind}" for part in "qkv"]
    if names[0] in weights:
        weights.setdefault(names[1], torch.zeros_like(weights[names[0]]))
        weights[f"{attention}.qkv.{kind}"] = torch.cat([weights.pop(name) for name in names])


def channel_order(model: Any) -> Tensor:
    """Return the index (d_h,) in Eva's order of each channel of a head of this ViT, where columns are first."""
    pairs = torch.arange(model.blocks[0].attn.head_dim // 2)
    if model.rope.grid_indexing == "ij" and type(model.rope) is not RotaryEmbeddingMixed:
        pairs = pairs.roll(len(pairs) // 2)  # rows first
    if model.blocks[0].attn.rotate_half:
        return torch.stack([pairs, pairs + len(pairs)], dim=1).flatten()
    return torch.stack([2 * pairs, 2 * pairs + 1], dim=1).flatten()


def reordered(weights: Weights, order: Tensor) -> Weights:
    """Return the weights with the channels of each head of queries and keys in the order of an index (d_h,)."""
    result = dict(weights)
    for name, values in weights.items():
        if ".attn.qkv." in name:
            parts = values.unflatten(0, (3, -1, len(order)))  # (3, H, d_h, ...)
            result[name] = torch.cat([parts[:2, :, order], parts[2:]]).flatten(0, 2)
        elif ".attn.q_norm." in name or ".attn.k_norm." in name:
            result[name] = values[order]
    return result


def from_eva_form(weights: Weights, model: Any, config: Settings) -> Weights:
    """Return weights in the form of `eva_form` as Eva has them: joint rates and, before a norm, separate gates."""
    separate: Weights = {}
    rates = []
    for name, values in reordered(weights, channel_order(model).argsort()).items():
        if name.startswith("position.rates."):
            rates.append(values)
        elif ".mlp.fc1." in name and config.mlp == "swiglu" and config.options["mlp.norm"]:
            gate, value = values.chunk(2)
            separate |= {name.replace("fc1", "fc1_g"): gate, name.replace("fc1", "fc1_x"): value}
        else:
            separate[re.sub(r"ls(\d)\.gamma", r"gamma_\1", name)] = values
    if rates:
        separate["rope.freqs"] = torch.stack(rates).permute(2, 0, 1, 3)
    return separate
