"""Speed beside timm: the train step of a config exactly as `train` runs it, and the same step as people write it.

Interleaved in one process, the same weights, images and threads; the losses are checked to be equal first, so that
nothing is fast by being wrong.
"""

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from vitcore.config import Config
from vitcore.data import Data, load
from vitcore.device import torch_threads
from vitcore.interop import to_timm
from vitcore.train import Training
from vitcore.vit import ViT

TOLERANCE = 1e-5
WARM_UP_STEPS = 5
DRAWN = ("dropout", "drop_path")  # by random numbers of its own in each model


@dataclass(frozen=True)
class Bench:
    """Images a second of both, a value a round: (rounds,)."""

    ours: np.ndarray[Any, Any]
    timm: np.ndarray[Any, Any]
    images: int

    def summary(self) -> dict[str, Any]:
        ratio = self.ours / self.timm
        return {
            "images_per_second": {"vitcore": spread(self.ours), "timm": spread(self.timm)},
            "ratio": spread(ratio),
            "rounds": len(ratio),
            "images_per_round": self.images,
            "torch": torch.__version__,
            "machine": platform.processor() or platform.machine(),
        }


def spread(values: np.ndarray[Any, Any]) -> dict[str, float]:
    """Median and quartiles."""
    low, median, high = np.percentile(values, [25, 50, 75])
    return {"median": float(median), "low": float(low), "high": float(high)}


def bench(config: Config, rounds: int, steps: int, data_dir: Path | None) -> Bench:
    """Raises ValueError for a config whose parts timm's model does not have, or draws otherwise."""
    for name in DRAWN:
        if getattr(config, name):
            raise ValueError(f"{name}={getattr(config, name)}: timm's model drops others, so that losses differ: 0")
    with torch_threads(config.threads):
        data = load(config, data_dir)
        ours = Training(config, data)
        if not isinstance(ours.model, ViT):
            raise ValueError(f"model={config.model}: what is measured beside timm is a model of ours")
        theirs = to_timm(ours.model)
        step = reference_step(theirs, ours)
        check_equal(ours, theirs, data)
        pace(ours.advance, WARM_UP_STEPS)
        pace(step, WARM_UP_STEPS)
        seconds = np.array([(pace(ours.advance, steps), pace(step, steps)) for _ in range(rounds)])  # (rounds, 2)
    images = steps * config.batch
    return Bench(images / seconds[:, 0], images / seconds[:, 1], images)


def pace(step: Callable[[], None], steps: int) -> float:
    """Seconds of `steps` steps."""
    began = time.perf_counter()
    for _ in range(steps):
        step()
    return time.perf_counter() - began


def reference_step(model: nn.Module, training: Training) -> Callable[[], None]:
    """The step of the usual script: timm's model, AdamW as it comes, clipping; the data in memory already."""
    config = training.config
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)

    def step() -> None:
        batch = training.batch()
        loss = F.cross_entropy(model(batch.images), batch.targets, label_smoothing=config.label_smoothing)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
        if config.clip_norm:
            nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
        optimizer.step()

    return step


@torch.no_grad()
def check_equal(training: Training, model: nn.Module, data: Data) -> None:
    """Raises ValueError unless both have the same loss on the same images."""
    batch = training.batch()
    ours, theirs = (
        F.cross_entropy(logits, batch.targets).item()
        for logits in (training.model(batch.images, batch.keys), model(batch.images))
    )
    if abs(ours - theirs) > TOLERANCE * abs(theirs):
        raise ValueError(f"losses differ ({ours}, timm's {theirs}): speeds of different models are not compared")
