"""The teacher for distillation (arXiv 2012.12877, section 4): the frozen model of a trial or of timm."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from vitcore.data.lookup import describe
from vitcore.data.splits import Data
from vitcore.interop.weight_files import read_tensor_file, read_tensors
from vitcore.model.build import build
from vitcore.options import ConfigError, JsonSettings
from vitcore.settings import Settings
from vitcore.training.distributed import Ranks
from vitcore.training.parents import NONE, is_trial, timm_teacher


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
        model, channel_means, channel_stds = load_timm(config)
        device = data.mean.device
        mean = torch.tensor(channel_means, device=device).view(1, -1, 1, 1)
        std = torch.tensor(channel_stds, device=device).view(1, -1, 1, 1)
        white = describe(config.data).levels - 1
        return Teacher(model.to(device), scale=data.std / white / std, shift=(data.mean / white - mean) / std)
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


def load_timm(config: Settings) -> tuple[nn.Module, Sequence[float], Sequence[float]]:
    """Return (timm's model with weights from a file, channel means, channel deviations) for pixels from 0 to 1.

    Means and deviations are averaged if the data have another number of channels. Raises ConfigError for an unknown
    model, or a file that cannot be read or does not fit.
    """
    import timm  # late: takes seconds

    name, path = timm_teacher(config.teacher)
    if not timm.is_model(name):
        raise ConfigError(f"teacher={config.teacher}: timm {timm.__version__} has no model {name}")
    with torch.random.fork_rng(devices=[]):
        model: Any = timm.create_model(name, num_classes=config.classes, in_chans=config.channels)
    try:
        model.load_state_dict(read_tensor_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise ConfigError(f"teacher={config.teacher}: {' '.join(str(error).split())}") from None
    means, stds = model.pretrained_cfg["mean"], model.pretrained_cfg["std"]
    if len(means) != config.channels:
        return model, [sum(means) / len(means)], [sum(stds) / len(stds)]
    return model, means, stds


def check(config: Settings, parent: Settings) -> None:
    """Raise ConfigError unless the trial of `parent` is a classifier with the data and image size of `config`."""
    where = f"teacher={config.teacher}"
    if parent.objective != "classification":
        raise ConfigError(f"{where}: was trained with objective={parent.objective}, which names no class")
    if describe(parent.data).fingerprint != describe(config.data).fingerprint:
        raise ConfigError(f"{where}: was trained on data={parent.data}, its student on data={config.data}")
    if parent.image_size != config.image_size:
        raise ConfigError(f"{where}: sees image_size={parent.image_size}, its student {config.image_size}")
