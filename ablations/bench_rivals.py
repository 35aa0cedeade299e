"""The training loops that people write: a model of timm's or torchvision's, our weights in it, on the same batches."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitcore.compiling import use_private_cache
from vitcore.config import Config
from vitcore.data import Data
from vitcore.device import device_of, flushing, in_precision
from vitcore.interop import to_timm, to_torchvision
from vitcore.optim import Moments, decays, moments
from vitcore.schedule import learning_rate
from vitcore.train import Training
from vitcore.vit import ViT

DRAWN = ("dropout", "drop_path")  # by random numbers of its own in each model


@dataclass(frozen=True)
class Kind:
    """`tuned`: with all that a script gets for a line: torch.compile, the fused optimiser, subnormal numbers as 0."""

    convert: Callable[[ViT], nn.Module]
    tuned: bool = False


KINDS = {"timm": Kind(to_timm), "torchvision": Kind(to_torchvision), "timm compiled": Kind(to_timm, tuned=True)}


class Rival:
    """Their model in the step of the usual script. Raises ValueError, in one line, where its losses cannot be ours."""

    def __init__(self, kind: Kind, config: Config, data: Data) -> None:
        refuse(kind, config)
        self.config = config.model_copy(update={"attention": "fastest"})  # what a script gets
        self.source = Training(config, data)  # of the batches: rivals get the images from our pipeline
        if not isinstance(self.source.model, ViT):
            raise ValueError(f"model={config.model}: is timm's own, in our loop")
        model = kind.convert(self.source.model)
        self.source.model.to("meta")  # its memory would be counted as theirs
        self.tuned = kind.tuned
        self.parameters = list(model.parameters())
        self.optimizer = adamw(model, config, fused=kind.tuned or None)
        use_private_cache()
        self.model = torch.compile(model) if kind.tuned else model
        self.loss = torch.zeros(())

    def advance(self) -> None:
        """One step, as scripts have it."""
        with flushing(self.tuned):  # others compute with subnormal numbers, as PyTorch begins with
            self.step()

    def step(self) -> None:
        batch = self.source.batch()
        logits = in_precision(self.config, self.model, batch.images)
        loss = F.cross_entropy(logits, batch.targets, label_smoothing=self.config.label_smoothing)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
        if self.config.clip_norm:
            nn.utils.clip_grad_norm_(self.parameters, self.config.clip_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.source.step, self.config)
        self.optimizer.step()
        self.source.step += 1
        self.loss = loss.detach()

    def last_loss(self) -> Tensor:
        return self.loss


def adamw(model: nn.Module, config: Config, fused: bool | None) -> torch.optim.AdamW:
    """PyTorch's, weight decay on the parameters that it is on in ours; None: the kernel that PyTorch chooses."""
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        decay = config.weight_decay if config.weight_decay_on == "all" or decays(name, parameter) else 0.0
        groups.setdefault(decay, []).append(parameter)
    listed = [{"params": parameters, "weight_decay": decay} for decay, parameters in groups.items()]
    return torch.optim.AdamW(listed, fused=fused, **moments(config, Moments))


def refuse(kind: Kind, config: Config) -> None:
    """Raises ValueError for what a rival would do otherwise, so that losses differ, or cannot do."""
    for name in DRAWN:
        if getattr(config, name):
            raise ValueError(f"{name}={getattr(config, name)}: their model drops others, so that losses differ")
    if config.objective != "classification":
        raise ValueError(f"objective={config.objective}: the usual script has classification")
    if config.optimizer != "adamw":
        raise ValueError(f"optimizer={config.optimizer}: the usual script has adamw")
    if config.layer_decay != 1:
        raise ValueError(f"layer_decay={config.layer_decay}: the usual script has one learning rate")
    if kind.tuned and device_of(config) == "cpu" and not shutil.which(os.environ.get("CXX", "g++")):
        raise ValueError("torch.compile needs a C++ compiler: none found (CXX, g++)")
