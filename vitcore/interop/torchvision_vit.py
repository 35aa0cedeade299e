"""Conversion of Vision Transformers from and to torchvision, with equal outputs and gradients."""

from typing import Any

import torch
from torch import nn
from torchvision.models.vision_transformer import ConvStemConfig, VisionTransformer

from vitcore.config import Config, Values
from vitcore.interop.conversion import Patterns, check_alike, check_kinds, check_structure, convert, rename
from vitcore.model.mlp import MLP
from vitcore.model.stem import ConvStem
from vitcore.model.vit import ViT
from vitcore.settings import Settings

# Pattern in this package's parameter names -> replacement that gives torchvision's name.
TORCHVISION: Patterns = {
    # a convolution, its norm, a ReLU
    r"^stem\.layers\.(\d+)": lambda at: "conv_proj.conv_bn_relu_{}.{}".format(*divmod(int(at[1]), 3)),
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


def from_torchvision(model: VisionTransformer) -> ViT:
    """Convert torchvision's VisionTransformer to a ViT with the same weights and logits, without dropout.

    Raises a ValueError that names the first part of the model that ViT does not support.
    """
    config = config_of_torchvision(model)
    check_alike(model, torchvision_skeleton(config))
    weights = dict(model.state_dict())
    prefix = weights.pop("class_token")[0]
    positions = weights.pop("encoder.pos_embedding")[0]
    return convert(config, weights, TORCHVISION, prefix, positions).train(model.training)


def to_torchvision(model: ViT) -> VisionTransformer:
    """Convert a ViT for classification to torchvision's VisionTransformer, without dropout.

    Raises ValueError if torchvision's model lacks a part of the ViT.
    """
    config = model.config
    torchvision_model = torchvision_skeleton(config)
    nearest = config_of_torchvision(torchvision_model)
    check_structure(config, nearest, "torchvision's VisionTransformer", free=("stem.channels",))
    ours = dict(model.state_dict())
    table = ours.pop("position.table")
    class_row = ours.pop("position.class_row", table.new_zeros(config.width))
    positions = torch.cat([class_row[None], table])[None]
    weights = {"class_token": ours.pop("class_token"), "encoder.pos_embedding": positions}
    weights |= {rename(name, TORCHVISION): values for name, values in ours.items()}
    torchvision_model.load_state_dict({name: values.clone() for name, values in weights.items()}, assign=True)
    return torchvision_model.train(model.training)


def config_of_torchvision(model: Any) -> Config:
    check_kinds(model, {"": (VisionTransformer,)})
    width = model.hidden_dim
    hidden_head = model.representation_size
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


def torchvision_skeleton(config: Settings) -> VisionTransformer:
    """Return the torchvision model that is nearest to `ViT(config)`, on the meta device."""
    stem = None
    if config.stem == "conv":
        layers = ConvStem.convolutions(config)
        stem = [ConvStemConfig(channels, kernel_size=3, stride=stride) for channels, _, stride in layers]
    with torch.device("meta"):
        return VisionTransformer(
            image_size=config.square_side("torchvision's VisionTransformer"),
            patch_size=config.patch,
            num_layers=config.layers,
            num_heads=config.heads,
            hidden_dim=config.width,
            mlp_dim=MLP[config.mlp].hidden(config),
            num_classes=config.classes,
            representation_size=config.width if config.head == "mlp" else None,
            conv_stem_configs=stem,
        )
