"""The rivals: usual training steps with timm's or torchvision's model, on this suite's weights and batches.

Their first losses must equal this suite's, because a wrong step may be fast. This comparison uses no warm-up and no
zero-initialized head. With either, the first losses would not depend on the whole model.
"""

import os
import shutil
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.floor import float32_precision
from vitcore.config import Config
from vitcore.data.splits import Data
from vitcore.interop.timm_vit import to_timm
from vitcore.interop.torchvision_vit import to_torchvision
from vitcore.model.stem import patch_sizes
from vitcore.model.vit import ViT
from vitcore.runtime.device import compute_in_precision, device_of, flush_subnormals
from vitcore.training.batches import Batch
from vitcore.training.optimizers import AdamW, has_weight_decay
from vitcore.training.schedules import learning_rate
from vitcore.training.state import Training

OURS, TUNED = "vitcore", "timm compiled"  # tuned: compiled, with a fused AdamW and without subnormals
RIVALS: dict[str, Callable[[ViT], nn.Module]] = {"timm": to_timm, "torchvision": to_torchvision, TUNED: to_timm}
USUAL = {
    "objective": "classification",
    "objective.loss": "cross-entropy",
    "optimizer": "adamw",
    "layer_decay": 1,
    # a rival draws other random numbers
    **dict.fromkeys(("dropout", "attention_dropout", "patch_dropout", "drop_path"), 0),
}

CHECKED = 5  # number of first steps whose losses are compared
TOLERANCE = {"float32": 1e-5, "bf16": 2e-2}  # relative; differences in rounding to bf16 accumulate
IMAGES = 64  # maximum batch size of the check in float32


class Ours(Training):
    """Training as `ablate run` does it, with the loss of the last step as a property."""

    @property
    def loss(self) -> Tensor:
        return self.losses[self.since - 1]


class Rival:
    """Training as in a usual script, with a model of RIVALS. Raises ValueError if it cannot train as we do."""

    def __init__(self, name: str, config: Config, data: Data) -> None:
        for key, usual in USUAL.items():
            value = {**dict(config), **config.options}.get(key, usual)
            if value != usual:
                raise ValueError(f"{key}={value}: the usual script has {usual}")
        patches = patch_sizes(config)
        if len(patches) > 1:
            raise ValueError(f"stem.patches={patches}: the usual script has one size")
        self.tuned = name == TUNED
        if self.tuned and device_of(config) == "cpu" and not shutil.which(os.environ.get("CXX", "g++")):
            raise ValueError("torch.compile needs a C++ compiler: none found (CXX, g++)")
        self.config = config.model_copy(update={"attention": "fastest", "cuda_graph": "off", "compile": False})
        self.source = Training(self.config, data)  # rivals get their batches from this suite's pipeline
        if not isinstance(self.source.model, ViT):
            raise ValueError(f"model={config.model}: is timm's own, in our loop")
        model = RIVALS[name](self.source.model)
        self.source.model.to("meta")  # its memory would otherwise count as the rival's
        self.parameters = list(model.parameters())
        self.optimizer = adamw(model, config, fused=self.tuned or None)
        self.model = torch.compile(model) if self.tuned else model
        self.loss = torch.zeros(())

    def advance(self) -> None:
        with flush_subnormals(self.tuned):  # PyTorch's default keeps subnormal numbers
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate(self.source.step, self.config)
            self.loss = self.update(next_batch(self.source))

    def update(self, batch: Batch) -> Tensor:
        """Update the weights with a batch, and return its loss. `make bench-gpu` captures it as a CUDA graph."""
        logits = compute_in_precision(self.config, self.model, batch.images)
        loss = F.cross_entropy(logits, batch.targets, label_smoothing=self.config.label_smoothing)
        self.optimizer.zero_grad()
        loss.backward()
        if self.config.clip_norm:
            nn.utils.clip_grad_norm_(self.parameters, self.config.clip_norm)
        self.optimizer.step()
        return loss.detach()


def next_batch(training: Training) -> Batch:
    """Return the next batch of the input pipeline, without a training step."""
    batch = training.batch()
    training.step += 1
    return batch


def losses(side: Ours | Rival, steps: int) -> list[float]:
    values = []
    for _ in range(steps):
        side.advance()
        values.append(side.loss.item())
    return values


def adamw(model: nn.Module, config: Config, fused: bool | None) -> torch.optim.AdamW:
    """Return AdamW with weight decay on the parameters that this suite decays. fused: None for PyTorch's default."""
    decayed, exempt = list[nn.Parameter](), list[nn.Parameter]()
    for name, parameter in model.named_parameters():
        (decayed if config.weight_decay_on == "all" or has_weight_decay(name, parameter) else exempt).append(parameter)
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": exempt, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, fused=fused, **AdamW.arguments(config))


def sensitive_config(config: Config) -> Config:
    """Return the config with settings that make the first losses depend on the whole model."""
    return config.model_copy(update={"head_init": "lecun-normal", "warmup": 0.0})


def in_float32(config: Config) -> Config:
    """Return the config in uncompiled float32, with at most IMAGES images per batch."""
    batch = min(config.batch, IMAGES)
    return config.model_copy(update={"precision": "float32", "compile": False, "batch": batch})


def checked_sides(config: Config, data: Data, rivals: Sequence[str]) -> tuple[dict[str, Ours | Rival], dict[str, str]]:
    """Check that the first losses of rivals equal this suite's; raise ValueError if not. bf16 is checked in float32.

    Returns (name -> implementation after CHECKED steps, this suite's first; name -> why a rival cannot train like it).
    """
    if config.precision != "float32":
        checked_sides(in_float32(config), data, [name for name in rivals if name != TUNED])
    sides: dict[str, Ours | Rival] = {OURS: Ours(config, data)}
    left_out: dict[str, str] = {}
    for name in rivals:
        try:
            sides[name] = Rival(name, config, data)
        except ValueError as error:
            left_out[name] = str(error)
    with float32_precision("highest"):
        first_losses = {name: losses(side, CHECKED) for name, side in sides.items()}
    for name, theirs in first_losses.items():
        refuse_unequal(name, first_losses[OURS], theirs, TOLERANCE[config.precision])
    return sides, left_out


def refuse_unequal(name: str, ours: list[float], theirs: list[float], tolerance: float) -> None:
    """Raise ValueError at the first step whose losses differ by more than `tolerance`, relative to `theirs`."""
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True), 1):
        if not abs(a - b) <= tolerance * abs(b):  # also refuses NaN
            raise ValueError(
                f"step {step}: losses differ ({a:.7g}, with {name} {b:.7g}): speeds of different training runs "
                "are not compared"
            )
