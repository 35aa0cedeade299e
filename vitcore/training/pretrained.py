"""Weights of other models: those from which training starts (`init_from`), and a teacher (arXiv 2012.12877).

Files of any version of this package are read, with parameters under their current names.
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from commonfloor.files import open_regular, read_bytes
from commonfloor.messages import reason
from commonfloor.options import ConfigError, JsonSettings
from vitcore.data.lookup import describe
from vitcore.data.splits import Data
from vitcore.interop.conversion import check_structure
from vitcore.model.build import Model, OtherModel, build
from vitcore.model.position import POSITION
from vitcore.model.stem import PatchStem
from vitcore.settings import Settings
from vitcore.training.distributed import Ranks
from vitcore.training.optimizer_state import type_and_shape
from vitcore.training.parents import NONE, file_sha256, is_public, is_trial, timm_teacher, weights_file

RENAMED = re.compile(r"\.add(\d)\.scale\b")  # names until version 0.11, such as ".add1.scale"; now ".scale1.gamma"
Weights = Mapping[str, Tensor]
LEFT_BEHIND = ("head.", "objective.")  # parameters of the earlier task
CHANGEABLE = ("channels", "patch", "head", "objective")  # settings of `structure` that a start does not fix


def read_tensors(payload: bytes) -> dict[str, Tensor]:
    """Return name -> tensor from the bytes of a safetensors file; raise SafetensorError if they are malformed."""
    return renamed(safetensors.torch.load(payload))


def read_fitting(payload: bytes, own: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """Return name -> tensor from the bytes of a safetensors file, after checking the tensors that a model needs.

    own: name -> tensor that must be in the file with the same shape. what: the start of the error message. Raises
    ConfigError if the bytes are not safetensors, or if a tensor of `own` is missing or does not fit.
    """
    try:
        tensors = read_tensors(payload)
    except SafetensorError as error:
        raise ConfigError(f"{what}: cannot be read: {error}") from None
    for name, tensor in own.items():
        if name not in tensors:
            raise ConfigError(f"{what}: {name} is missing")
        check_fit(what, name, tensors[name], tensor)
    return tensors


def check_fit(what: str, name: str, tensor: Tensor, own: Tensor) -> None:
    """Raise ConfigError if `tensor` differs in shape from `own`, or if only one of them is floating-point."""
    if (tensor.shape, tensor.is_floating_point()) != (own.shape, own.is_floating_point()):
        raise ConfigError(f"{what}: {name} is {type_and_shape(tensor)}, not {type_and_shape(own)}")


def read_tensor_file(path: str) -> dict[str, Tensor]:
    """Return name -> tensor from a safetensors file; raise OSError or SafetensorError if it cannot be read."""
    with open_regular(path):
        return renamed(safetensors.torch.load_file(path))


def renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {RENAMED.sub(r".scale\1.gamma", name): tensor for name, tensor in tensors.items()}


class InitialWeights(NamedTuple):
    """Weights of another model, and its settings where they are known."""

    weights: Weights
    settings: Mapping[str, Any] | None = None

    def check(self, config: Settings) -> None:
        """Raise ConfigError if a setting of the architecture differs, such as the number of heads."""
        if self.settings is not None:
            other = type(config)(**{**self.settings, "data_seed": 0})
            check_structure(config, other, f"init_from={config.init_from}", free=CHANGEABLE)
            check_grids(config, other)


def read_start(value: str) -> InitialWeights:
    """Return the weights that init_from names by a file, or by timm/NAME for stored ones.

    A file is in safetensors format, with the names of this package, or an .npz of big_vision or vision_transformer.
    Raises ConfigError if it cannot be read.
    """
    from vitcore.interop.npz import load_npz  # late: most training runs do not need it

    path = weights_file(value)
    try:
        if path.endswith(".npz"):
            return InitialWeights(load_npz(path).state_dict())
        if is_public("init_from", value):
            about = json.loads(read_bytes(Path(path).with_suffix(".json")))
            if about["sha256"] != file_sha256("init_from", path):
                raise ValueError(f"it has changed; `ablate weights download {value}` stores it anew")
            return InitialWeights(read_tensor_file(path), about["settings"])
        return InitialWeights(read_tensor_file(path))
    except OSError as error:
        raise ConfigError(f"init_from={value}: {reason(error)}") from None
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"init_from={value}: cannot be read: {error}") from None


def weights_for(config: Settings, parent: bytes | None) -> Weights | None:
    """Return the weights from which training starts, or None for initial values.

    parent: the weights of a trial, as safetensors. Raises ConfigError if the weights are missing, cannot be read or are
    of another architecture.
    """
    if config.init_from == NONE:
        return None
    if not is_trial(config.init_from):
        start = read_start(config.init_from)
        start.check(config)
        return start.weights
    if parent is None:
        raise ConfigError(f"init_from={config.init_from}: the weights of that trial are missing")
    return read_fitting(parent, {}, f"init_from={config.init_from}")


@torch.no_grad()
def copy_weights(model: Model, weights: Weights, source: str) -> None:
    """Copy `weights` into `model`, except the head and the objective. source: name of the weights in error messages.

    Learned position embeddings are interpolated to the model's grid (arXiv 2010.11929, section 3.2), and the projection
    of patches is resized. Raises ConfigError if a parameter is missing or unknown, or if its shape differs otherwise.
    """
    assert not isinstance(model, OtherModel), "a config starts only a ViT from weights"
    parameters = body_weights(model.state_dict())
    initial = body_weights(weights)
    for name in [*initial, *parameters]:
        if name not in parameters:
            is_timm = "patch_embed.proj.weight" in initial
            how = "; `ablate weights add NAME FILE` converts weights of timm's" if is_timm else ""
            raise ConfigError(f"init_from={source}: it has {name}, which this model lacks{how}")
        if name not in initial:
            raise ConfigError(f"init_from={source}: it lacks {name}, which this model has")
    for name, values in initial.items():
        if values.shape != parameters[name].shape and name.startswith("position."):
            values = model.position.resized(name.removeprefix("position."), values)
        if name == "stem.weight" and isinstance(model.stem, PatchStem):
            values = model.stem.resized(values)
        check_fit(f"init_from={source}", name, values, parameters[name])
        parameters[name].copy_(values)


def body_weights(weights: Weights) -> dict[str, Tensor]:
    return {name: values for name, values in weights.items() if not name.startswith(LEFT_BEHIND)}


def check_grids(config: Settings, parent: Settings) -> None:
    """Raise ConfigError if positions must be resized, but the shapes of their tables do not determine both grids."""
    square = parent.image_shape[0] == parent.image_shape[1]
    ambiguous = not square or math.prod(parent.grid) == math.prod(config.grid)
    if parent.grid != config.grid and ambiguous and POSITION[config.position](config).state_dict():
        other = f"patch={parent.patch} of image_size={parent.image_size}"
        raise ConfigError(
            f"init_from={config.init_from}: positions of {other} do not fit patch={config.patch} of "
            f"image_size={config.image_size}: the same sizes, or from square images with another number of patches"
        )


def check_start(config: Settings, parent: Settings | Weights) -> None:
    """Raise ConfigError if `config` cannot start from `parent`, which is the config of a trial or the weights."""
    if isinstance(parent, Settings):
        check_grids(config, parent)
    with torch.device("meta"):
        model = build(config)
        weights = parent if isinstance(parent, Mapping) else build(parent).state_dict()
        shapes = {name: values.to("meta") for name, values in weights.items()}
        try:
            copy_weights(model, shapes, config.init_from)
        except ConfigError:
            if isinstance(parent, Settings):  # then the setting can be named instead of a tensor
                check_structure(config, parent, f"init_from={config.init_from}", free=CHANGEABLE)
            raise


class Trained(NamedTuple):
    """A finished trial that serves as the teacher. config: its recorded settings. weights: as safetensors."""

    config: JsonSettings
    weights: bytes


class Teacher(nn.Module):
    """A frozen model that maps the student's images (B, C, H, W) to logits (B, classes).

    scale, shift (1, C, 1, 1): convert images from the student's normalization to the teacher's.
    """

    def __init__(self, model: nn.Module, scale: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.model = model.eval().requires_grad_(False)
        self.scale = scale
        self.shift = shift

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        return self.model(images * self.scale + self.shift)


def teacher_for(config: Settings, data: Data, ranks: Ranks, trained: Trained | None) -> Teacher | None:
    """Return the teacher on the data's device, or None if the config has no teacher.

    trained: the trial that `config.teacher` names, needed only by rank 0. Raises ConfigError if it is missing or has an
    invalid config, or timm's model cannot be loaded. Raises SafetensorError if the trial's weights are damaged, and
    RuntimeError if they do not fit its config.
    """
    if config.teacher == NONE:
        return None
    if not is_trial(config.teacher):
        return load_timm_teacher(config, data)
    settings = ranks.broadcast(lambda: trained and json.dumps(trained.config).encode())
    weights = ranks.broadcast(lambda: trained and trained.weights)
    if settings is None or weights is None:
        raise ConfigError(f"teacher={config.teacher}: the weights of that trial are missing")
    teacher = untrained_teacher(type(config)(**json.loads(settings)), data)
    teacher.model.load_state_dict(read_tensors(weights))
    return teacher


def untrained_teacher(config: Settings, data: Data) -> Teacher:
    """Return a teacher with the settings `config` and initial weights, on the data's device."""
    model = build(config).to(data.mean.device)
    return Teacher(model, scale=torch.ones_like(data.mean), shift=torch.zeros_like(data.mean))


def load_timm_teacher(config: Settings, data: Data) -> Teacher:
    """Return timm's model with weights from a file, on the data's device. It sees pixels from 0 to 1, standardized.

    Means and deviations are averaged if the data have another number of channels. Raises ConfigError for an unknown
    model, one that does not take the images, or a file that cannot be read or does not fit.
    """
    import timm  # late: takes seconds

    name, path = timm_teacher(config.teacher)
    if not timm.is_model(name):
        raise ConfigError(f"teacher={config.teacher}: timm {timm.__version__} has no model {name}")
    with torch.random.fork_rng(devices=[]):
        model: Any = timm.create_model(name, num_classes=config.classes, in_chans=config.channels)
    try:
        model.load_state_dict(read_tensor_file(path))
        model.eval()(torch.zeros(1, config.channels, *config.image_shape))
    except (OSError, SafetensorError, RuntimeError, AssertionError) as error:  # the last two: of another image size
        raise ConfigError(f"teacher={config.teacher}: {' '.join(str(error).split())}") from None
    statistics = torch.tensor([model.pretrained_cfg["mean"], model.pretrained_cfg["std"]], device=data.mean.device)
    if statistics.shape[1] != config.channels:
        statistics = statistics.mean(dim=1, keepdim=True)
    mean, std = statistics.view(2, 1, -1, 1, 1)
    white = describe(config.data).levels - 1
    return Teacher(model.to(data.mean.device), scale=data.std / white / std, shift=(data.mean / white - mean) / std)


def check_teacher(config: Settings, parent: Settings) -> None:
    """Raise ConfigError unless the trial of `parent` is a classifier with the data and image size of `config`."""
    where = f"teacher={config.teacher}"
    if parent.objective != "classification":
        raise ConfigError(f"{where}: was trained with objective={parent.objective}, which names no class")
    if describe(parent.data).fingerprint != describe(config.data).fingerprint:
        raise ConfigError(f"{where}: was trained on data={parent.data}, its student on data={config.data}")
    if parent.image_size != config.image_size:
        raise ConfigError(f"{where}: sees image_size={parent.image_size}, its student {config.image_size}")
