"""Small trainings that stop and resume, their metrics without times, and the keys of their images."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from vitcore import Config, ViT, train
from vitcore.data.splits import load
from vitcore.keyed_random import RngKeys, image_keys
from vitcore.training.run import Memory
from vitcore.training.state import Training

TINY: dict[str, Any] = {
    "width": 16, "depth": 1, "heads": 2, "pool": "gap", "steps": 6, "batch": 10, "evaluations": 2
}  # fmt: skip

GPU_FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


class Killed(Exception):
    """The process was killed."""


def tiny(**settings: Any) -> Config:
    """Return the config of a training of a small ViT on digits, which takes a fraction of a second."""
    return Config(**(TINY | settings))


def advanced(config: Config, steps: int = 0) -> Training:
    """Return a training that has taken so many steps."""
    training = Training(config, load(config))
    for _ in range(steps):
        training.advance()
    return training


def keys(images: int, seed: int = 0, epoch: int = 0) -> Tensor:
    """Return the random keys (B,) of the first images of a dataset in an epoch."""
    return image_keys(seed, np.full(images, epoch), np.arange(images))


def lack_memory(patch: pytest.MonkeyPatch, limit: int, failure: Exception = GPU_FULL, learning: bool = True) -> None:
    """Let memory run out for a ViT that learns from, or evaluates, more than `limit` images."""

    class Scarce(ViT):
        def forward(self, images: Tensor, keys: RngKeys = None) -> Tensor:
            if len(images) > limit and torch.is_grad_enabled() == learning and not images.is_meta:
                raise failure
            return super().forward(images, keys)

    patch.setattr("vitcore.training.objectives.classification.ViT", Scarce)


def after(steps: int) -> Callable[[], bool]:
    """Return a `stop` that lets a training take so many steps."""
    left = iter(range(steps))
    return lambda: next(left, None) is None


def finished(config: Config, *stops: int, **how: Any) -> Memory:
    """Train to the end, stopped after each of these numbers of further steps."""
    run = Memory()
    for steps in stops:
        assert train(config, run, stop=after(steps), **how).status == "stopped"
    assert train(config, run, **how).status == "finished"
    return run


def without_seconds(run: Memory) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in run.lines]


def assert_same(run: Memory, other: Memory) -> None:
    """Check that two trainings have equal weights, metrics but for times, and answers, bit for bit."""
    assert run.weights == other.weights
    assert without_seconds(run) == without_seconds(other)
    assert np.array_equal(run.correct, other.correct)
