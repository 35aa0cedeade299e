"""Small ViTs of timm, and checkpoints shaped like the papers' own."""

from functools import partial
from typing import Any

import numpy as np
import timm

SMALL = {"img_size": 32, "patch_size": 8, "num_classes": 10, "embed_dim": 48, "depth": 2, "num_heads": 3}


def timm_model(stem: list[int] | None = None, **settings: Any) -> Any:
    """`stem`: the blocks of the stages of a ResNet before it, as timm's hybrids have one."""
    hybrid: dict[str, Any] = {}
    if stem:
        backbone = timm.models.vision_transformer_hybrid._resnetv2(stem)
        hybrid = {"embed_layer": partial(timm.layers.HybridEmbed, backbone=backbone), "patch_size": 1}
    return timm.models.vision_transformer.VisionTransformer(**(SMALL | settings | hybrid))


OFFICIAL = {"vit_jax": ("_1", "_2", "_3", "Transformer/posembed_input/"), "big_vision": ("_0", "_1", "_0", "")}


def official(layout: str, model: Any, pre_logits: bool = False) -> dict[str, np.ndarray[Any, Any]]:
    """Random arrays with the names and shapes of a checkpoint of google-research/vision_transformer or big_vision."""
    attention, norm, mlp, place = OFFICIAL[layout]
    D, H, P, K = model.embed_dim, model.blocks[0].attn.num_heads, model.patch_embed.patch_size[0], model.num_classes
    F, N = model.blocks[0].mlp.fc1.out_features, model.pos_embed.shape[1]
    shapes: dict[str, tuple[int, ...]] = {
        "embedding/kernel": (P, P, model.patch_embed.proj.in_channels, D),
        "embedding/bias": (D,),
        f"{place}pos_embedding": (1, N, D),
        "Transformer/encoder_norm/scale": (D,),
        "Transformer/encoder_norm/bias": (D,),
        "head/kernel": (D, K),
        "head/bias": (K,),
    }
    if model.cls_token is not None:
        shapes["cls"] = (1, 1, D)
    if hasattr(model.patch_embed, "backbone"):
        shapes |= official_resnet(model.patch_embed.backbone)
    if model.attn_pool is not None:
        shapes["MAPHead_0/probe"] = (1, 1, D)
        shapes |= official_attention("MAPHead_0/MultiHeadDotProductAttention_0", D, H)
        shapes |= official_mlp("MAPHead_0/MlpBlock_0", D, F)
        shapes |= {f"MAPHead_0/LayerNorm_0/{leaf}": (D,) for leaf in ("scale", "bias")}
    if pre_logits:
        shapes |= {"pre_logits/kernel": (D, D), "pre_logits/bias": (D,)}
    for layer in range(len(model.blocks)):
        block = f"Transformer/encoderblock_{layer}"
        for name in ("LayerNorm_0", f"LayerNorm{norm}"):
            shapes |= {f"{block}/{name}/scale": (D,), f"{block}/{name}/bias": (D,)}
        shapes |= official_attention(f"{block}/MultiHeadDotProductAttention{attention}", D, H)
        shapes |= official_mlp(f"{block}/MlpBlock{mlp}", D, F)
    draw = np.random.default_rng(0)
    return {name: draw.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}


def official_attention(name: str, D: int, H: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {f"{name}/out/kernel": (H, D // H, D), f"{name}/out/bias": (D,)}
    for part in ("query", "key", "value"):
        shapes |= {f"{name}/{part}/kernel": (D, H, D // H), f"{name}/{part}/bias": (H, D // H)}
    return shapes


def official_mlp(name: str, D: int, F: int) -> dict[str, tuple[int, ...]]:
    up = {f"{name}/Dense_0/kernel": (D, F), f"{name}/Dense_0/bias": (F,)}
    return up | {f"{name}/Dense_1/kernel": (F, D), f"{name}/Dense_1/bias": (D,)}


def official_resnet(backbone: Any) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays of a hybrid's ResNet, as google-research/vision_transformer names them."""
    shapes: dict[str, tuple[int, ...]] = {"conv_root/kernel": (7, 7, 3, 64)}
    norms = {"gn_root": 64}
    for i, stage in enumerate(backbone.stages, start=1):
        for j, block in enumerate(stage.blocks, start=1):
            convolutions = {f"conv{n}": (getattr(block, f"conv{n}"), f"gn{n}") for n in (1, 2, 3)}
            if block.downsample is not None:
                convolutions["conv_proj"] = (block.downsample.conv, "gn_proj")
            for name, (convolution, norm) in convolutions.items():
                out, into, *kernel = convolution.weight.shape
                shapes[f"block{i}/unit{j}/{name}/kernel"] = (*kernel, into, out)
                norms[f"block{i}/unit{j}/{norm}"] = out
    return shapes | {f"{norm}/{leaf}": (1, 1, 1, n) for norm, n in norms.items() for leaf in ("scale", "bias")}
