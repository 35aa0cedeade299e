"""Weights of this ViT under the names that timm's VisionTransformer gives them."""

import torch
from torch import Tensor

from vitcore.config import Config
from vitcore.vit import ViT

RENAMED = {
    "encoder.": "",
    "attention.qkv": "attn.qkv",
    "attention.out": "attn.proj",
    "mlp.up": "mlp.fc1",
    "mlp.down": "mlp.fc2",
    "stem.": "patch_embed.proj.",
    "class_token": "cls_token",
}


def to_timm_state_dict(model: ViT, config: Config) -> dict[str, Tensor]:
    """The state dict that timm's VisionTransformer of the same sizes loads.

    Raises ValueError for a part that timm's model does not have.
    """
    for slot, known in {"position": ("1d",), "stem": ("patch",), "pool": ("cls", "gap")}.items():
        if getattr(config, slot) not in known:
            raise ValueError(f"{slot}={getattr(config, slot)}: timm's VisionTransformer has {' or '.join(known)} only")
    weights = dict(model.state_dict())
    rows = [weights.pop("position.table")]
    if "class_token" in weights:
        rows.insert(0, weights.pop("position.class_row")[None])
    return {rename(name): tensor for name, tensor in weights.items()} | {"pos_embed": torch.cat(rows)[None]}


def rename(name: str) -> str:
    for ours, theirs in RENAMED.items():
        name = name.replace(ours, theirs)
    return name
