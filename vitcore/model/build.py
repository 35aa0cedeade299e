"""Building the model of a config: a ViT of this package, or a classifier from timm or a plug-in."""

import re
from typing import Any, Union

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # the base class of batch norms, including timm's with an activation

from commonfloor.options import ConfigError
from vitcore.keyed_random import RngKeys, seeded
from vitcore.model.classifier import Classifier, drawn_by_name
from vitcore.model.norm import Norm
from vitcore.model.stem import patch_sizes
from vitcore.model.vit import ViT
from vitcore.settings import Settings, Shape
from vitcore.sizes import MODEL, REFERENCE, is_reference
from vitcore.training.objectives import OBJECTIVE

Model = Union["ViT", "OtherModel"]
SMALL_MODEL = 2**24  # parameters
SMALL_IMAGE = 2**12  # values
RATES = {  # timm's name -> name in Settings
    "drop_rate": "dropout",
    "attn_drop_rate": "attention_dropout",
    "patch_drop_rate": "patch_dropout",
    "drop_path_rate": "drop_path",
}


def build(config: Settings) -> Model:
    """Return the model that `config` trains, from images (B, C, H, W) to logits (B, classes).

    With another objective, it gives the outputs that this needs. It also takes the images' random keys (B,), for
    dropout in training and for masked patches.
    """
    return OtherModel(config) if config.model else OBJECTIVE[config.objective].model(config)


def meta_model(config: Settings, shape: Shape | None = None) -> tuple[Model, Tensor]:
    """Return (model in evaluation mode, image (1, C, H, W)) on the meta device. shape: default `image_shape`."""
    with torch.device("meta"):
        return build(config).eval(), torch.empty(1, config.channels, *(shape or config.image_shape))


@torch.no_grad()
def zero_model(config: Settings, shape: Shape | None = None) -> tuple[Model, Tensor]:
    """Return `meta_model(config, shape)` or, for a small model, the same on the CPU with all values 0.

    Calling it takes a quarter of the time there, because PyTorch computes the shapes of meta tensors in Python.
    """
    model, images = meta_model(config, shape)
    params = sum(parameter.numel() for parameter in model.parameters())
    if params > SMALL_MODEL or images.numel() > SMALL_IMAGE:
        return model, images
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):  # not `to_empty`, which imports SymPy
        module, _, own_name = name.rpartition(".")
        zeros = torch.zeros(tensor.shape, dtype=tensor.dtype)
        if isinstance(tensor, nn.Parameter):
            zeros = nn.Parameter(zeros)
        setattr(model.get_submodule(module), own_name, zeros)
    return model, torch.zeros(images.shape)


class OtherModel(nn.Module):
    """A model that is no ViT of this package: a classifier from timm (`model=timm/NAME`) or from a plug-in (MODEL).

    timm draws the initial values on the CPU, from `config.seed`.
    """

    def __init__(self, config: Settings) -> None:
        super().__init__()
        self.config = config
        model = timm_classifier(config) if is_reference(config.model) else own_classifier(config)
        self.params = sum(parameter.numel() for parameter in model.parameters())  # on the meta device, none is shared
        self.model = model.to(torch.get_default_device())
        # timm's models also drop values in functions, which `has_dropout` cannot see.
        drops_by_rate = any(getattr(config, rate) for rate in RATES.values())
        self.drops = drops_by_rate or any(has_dropout(module) for module in self.model.modules())

    def forward(self, images: Tensor, rng_keys: RngKeys = None) -> Tensor:
        """Return the logits (B, classes). rng_keys: random keys (B,), which seed dropout in training."""
        if not (self.drops and self.training):
            return self.model(images)
        assert rng_keys is not None, "dropout in training needs the images' keys"
        with seeded(int(rng_keys.sum()), images.device):
            return self.model(images)

    def features(self, images: Tensor) -> Tensor:
        if isinstance(self.model, Classifier):
            return self.model.features(images)
        return self.model.forward_head(self.model.forward_features(images), pre_logits=True)  # type: ignore[operator]  # timm's


def timm_classifier(config: Settings) -> nn.Module:
    """Return timm's model for `config`; raise ConfigError for a dropout rate that the model does not support."""
    import timm  # late: takes seconds

    arguments: dict[str, Any] = {
        "img_size": config.image_size if isinstance(config.image_size, int) else config.image_shape
    }
    arguments |= {rate: getattr(config, name) for rate, name in RATES.items()}
    name = config.model.removeprefix(REFERENCE)
    while True:
        try:
            with seeded(config.seed):
                return timm.create_model(name, num_classes=config.classes, in_chans=config.channels, **arguments)
        except TypeError as error:
            unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
            if unknown is None or unknown[1] not in arguments:
                raise
        if arguments.pop(unknown[1]) and unknown[1] != "img_size":
            field = RATES[unknown[1]]
            raise ConfigError(f"{field}={getattr(config, field)}: model={config.model} has none: 0")


def own_classifier(config: Settings) -> nn.Module:
    """Return a plug-in's model for `config`; raise ConfigError for a dropout rate, which would have no effect."""
    for field in RATES.values():
        rate = getattr(config, field)
        if rate:
            raise ConfigError(f"{field}={rate}: model={config.model} has none: 0, or an option of its own")
    with torch.device("cpu"):  # on the meta device, a model could not compute rates with tensors
        return drawn_by_name(MODEL[config.model], config)


def freeze(model: Model, trainable: str) -> None:
    """Turn off the gradients of the parameters that the setting `trainable` leaves out."""
    if trainable == "all":
        return
    for name, parameter in model.named_parameters():
        owner = model.get_submodule(name.rpartition(".")[0])
        chosen = {
            "attention": ".attention." in name or name.startswith("position."),
            "norm": isinstance(owner, Norm),
            "head": False,
        }
        if not chosen[trainable] and not name.startswith(("head.", "objective.")):
            parameter.requires_grad_(False)


def has_dropout(module: nn.Module) -> bool:
    """Return whether a module has a positive dropout rate: `drop_prob` in timm's, `dropout` in PyTorch's attention."""
    rates = [getattr(module, name, None) for name in ("p", "drop_prob", "dropout")]
    return any(isinstance(rate, float) and rate > 0 for rate in rates)


def couples_images(model: nn.Module) -> bool:
    """Return whether a model has a batch norm, with which micro-batches would change training."""
    return any(isinstance(module, _BatchNorm) for module in model.modules())


def coupled_by(config: Settings, model: nn.Module) -> str:
    """Return what couples the images of a batch, such as "batch norm", or "" if micro-batches change nothing."""
    if OBJECTIVE[config.objective].compares:
        return f"objective={config.objective}"
    return "batch norm" if couples_images(model) else ""


def check_micro_batch(config: Settings) -> None:
    """Raise ConfigError if micro-batches are smaller than the batch and something couples the images of a batch."""
    if not 0 < config.micro_batch < config.batch:
        return
    coupling = coupled_by(config, meta_model(config)[0])
    if coupling:
        raise ConfigError(
            f"micro_batch={config.micro_batch}: {coupling} needs the whole batch at once: "
            f"0 or batch={config.batch}; less memory needs a lower batch"
        )


def check_patch(config: Settings, patch: int) -> None:
    """Raise ConfigError if the model of `config` cannot cut its images into patches of `patch` x `patch` pixels."""
    model, images = zero_model(config)
    if isinstance(model, OtherModel):
        raise ConfigError(f"patches of {patch} pixels: model={config.model} has its own")
    with torch.no_grad(), model.at_patch(patch):
        model(images)


def check_patch_sizes(config: Settings) -> None:
    """Raise ConfigError if the model cannot be trained with patches of each size of `stem.patches`."""
    sizes = patch_sizes(config)
    if len(sizes) == 1:
        return
    if not OBJECTIVE[config.objective].labels:
        raise ConfigError(f"stem.patches={sizes}: objective={config.objective} predicts patches of one size: []")
    for size in sizes:
        try:
            check_patch(config, size)
        except ConfigError as error:
            raise ConfigError(f"stem.patches={sizes}: {error}") from None
