"""The interface that a training writes to, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

Metrics = dict[str, float]  # a line of metrics.jsonl: step, epoch, images, seconds, train_loss, val_loss, ... lr
Facts = dict[str, str | float]  # how steps are computed: cuda_graph, compile, compile_seconds, compile_failed
Status = Literal["finished", "diverged", "stopped"]


class Run(Protocol):
    """The interface that a training writes to: on disk in results.store, in memory in `Memory`."""

    def checkpoint(self) -> bytes | None:
        """Return the newest valid checkpoint or None, and truncate the metrics to its step."""

    def save_checkpoint(self, step: int, payload: bytes) -> None: ...

    def log(self, line: Metrics) -> None:
        """Write a line of metrics.jsonl: step, epoch, images, seconds, train_loss, val_loss, val_accuracy, lr."""

    def save_weights(self, payload: bytes) -> None:
        """Save the final weights, as safetensors."""

    def save_correct(self, index: np.ndarray[Any, Any], correct: np.ndarray[Any, Any]) -> None:
        """Save the index of each test image in the whole data set, and whether it was classified correctly."""

    def progress(self, step: int, accuracy: float | None) -> None:
        """Show progress, several times a second. accuracy: the latest validation accuracy."""

    def compiling(self) -> None:
        """Show that the next step compiles the model, which may take a minute."""

    def record(self, facts: Facts) -> None:
        """Record how steps are computed."""


@dataclass
class Memory:
    """A run in memory."""

    checkpoints: dict[int, bytes] = field(default_factory=dict)
    lines: list[Metrics] = field(default_factory=list)
    weights: bytes | None = None
    correct: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None
    facts: Facts = field(default_factory=dict)

    def checkpoint(self) -> bytes | None:
        newest = max(self.checkpoints, default=0)
        self.lines = [line for line in self.lines if line["step"] <= newest]
        return self.checkpoints.get(newest)

    def save_checkpoint(self, step: int, payload: bytes) -> None:
        self.checkpoints = {step: payload}

    def log(self, line: Metrics) -> None:
        self.lines.append(line)

    def save_weights(self, payload: bytes) -> None:
        self.weights = payload

    def save_correct(self, index: np.ndarray[Any, Any], correct: np.ndarray[Any, Any]) -> None:
        self.correct = index, correct

    def progress(self, step: int, accuracy: float | None) -> None:
        pass

    def compiling(self) -> None:
        pass

    def record(self, facts: Facts) -> None:
        self.facts |= facts


@dataclass(frozen=True)
class Outcome:
    """The end of a training.

    metrics: test_accuracy, test_loss, val_accuracy, val_loss (cross-entropy) and train_loss (the objective, with label
    smoothing and mixed images, averaged since the previous evaluation); empty unless the training finished.
    """

    status: Status
    metrics: dict[str, float]
    params: int
    flops: int
    steps: int
    images: int
    train_seconds: float  # in steps, without evaluation, loading and compilation
    images_per_second: float
    diverged_at_step: int | None = None
    micro_batch: int = 0  # images of a backward pass; 0: the whole part of a rank
    suspect_hardware: int | None = None  # a step at which the loss was NaN, but finite when recomputed
