"""The interface through which a training run saves its results, and the outcome of the run."""

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

Metrics = dict[str, float]  # name -> value; a line of metrics.jsonl also holds step, epoch, images, seconds and lr
Facts = dict[str, str | float]  # how steps are computed: cuda_graph, compile, compile_seconds, compile_failed
Status = Literal["finished", "diverged", "stopped"]


class Run(Protocol):
    """The interface through which training saves results and reads a checkpoint back. Payloads are safetensors.

    `results.store.Attempt` implements it with files in the run directory, and `Memory` with attributes.
    """

    def checkpoint(self) -> bytes | None:
        """Return the newest valid checkpoint, or None if there is none, and drop the metrics of later steps."""

    def save_checkpoint(self, step: int, payload: bytes) -> None: ...
    def log(self, line: Metrics) -> None: ...
    def save_weights(self, payload: bytes) -> None: ...
    def save_correct(self, index: np.ndarray[Any, Any], correct: np.ndarray[Any, Any]) -> None:
        """Save whether test images are classified correctly. index (n,): int32, in the dataset. correct (n,): uint8."""

    def progress(self, step: int, metrics: Metrics, evaluating: bool = False) -> None:
        """Show the number of steps taken. metrics: of this process's last evaluation, or empty before its first.

        evaluating: whether an evaluation begins, which may take minutes. The next call says that it has ended.
        """

    def compiling(self) -> None:
        """Tell the user that the next step compiles the model, which may take a minute."""

    def record(self, facts: Facts) -> None:
        """Record facts about how steps are computed, such as whether the model is compiled."""


@dataclass
class Memory:
    """A run that keeps its newest checkpoint and its results in memory and writes no files."""

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

    def progress(self, step: int, metrics: Metrics, evaluating: bool = False) -> None:
        pass

    def compiling(self) -> None:
        pass

    def record(self, facts: Facts) -> None:
        self.facts |= facts


@dataclass(frozen=True)
class Outcome:
    """The outcome of a training run, which has finished, diverged or been stopped.

    metrics: those of the test images and of the last evaluation, such as `test_accuracy`; empty unless finished. Only
    `train_loss` includes label smoothing, mixed images and the distillation loss.
    """

    status: Status
    metrics: Metrics
    params: int
    flops: int  # of one image's forward pass
    steps: int
    images: int
    train_seconds: float  # in steps, without evaluation, loading and compilation
    images_per_second: float
    diverged_at_step: int | None = None
    micro_batch: int = 0  # images in a backward pass; 0 for all images of a rank
    suspect_hardware: int | None = None  # a step whose loss was finite only when it was recomputed
