"""One loop: train, evaluate, checkpoint, resume.

Killed at any moment and started again on the same CPU, a training ends with the weights and the metrics of
one never killed: all that it depends on is in the checkpoint or is a pure function of the seed and the step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor

from vitcore.data import Data, Images, Order, load
from vitcore.measure import measure
from vitcore.model import build
from vitcore.optim import optimizer
from vitcore.schedule import learning_rate

if TYPE_CHECKING:
    from vitcore.config import Config

Status = Literal["finished", "diverged", "stopped"]
EVALUATION_BATCH = 512  # images; how much memory an evaluation takes, nothing else
CHECKPOINT_SHARE = 0.02  # of the time at most goes into checkpoints
TICK = 0.25  # seconds between two reports of progress


class Run(Protocol):
    """Where a training writes. The results' store has one on disk; `Memory` is one that keeps everything."""

    def checkpoint(self) -> bytes | None:
        """The newest valid checkpoint; the run has cut its metrics to the lines up to that step."""

    def save_checkpoint(self, step: int, payload: bytes) -> None: ...

    def log(self, line: dict[str, Any]) -> None:
        """A line of metrics.jsonl: step, epoch, images, seconds, train_loss, val_loss, val_accuracy, lr."""

    def save_weights(self, payload: bytes) -> None:
        """The final weights, as safetensors."""

    def save_correct(self, index: np.ndarray[Any, Any], correct: np.ndarray[Any, Any]) -> None:
        """For each test image its place in the whole dataset, and whether it was right."""

    def progress(self, step: int, accuracy: float | None) -> None:
        """Called several times a second; `accuracy` is the latest on the validation images."""


@dataclass
class Memory:
    """A run that keeps everything in memory."""

    checkpoints: dict[int, bytes] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    weights: bytes | None = None
    correct: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None

    def checkpoint(self) -> bytes | None:
        newest = max(self.checkpoints, default=0)
        self.lines = [line for line in self.lines if line["step"] <= newest]
        return self.checkpoints.get(newest)

    def save_checkpoint(self, step: int, payload: bytes) -> None:
        self.checkpoints = {step: payload}

    def log(self, line: dict[str, Any]) -> None:
        self.lines.append(line)

    def save_weights(self, payload: bytes) -> None:
        self.weights = payload

    def save_correct(self, index: np.ndarray[Any, Any], correct: np.ndarray[Any, Any]) -> None:
        self.correct = index, correct

    def progress(self, step: int, accuracy: float | None) -> None:
        pass


@dataclass(frozen=True)
class Outcome:
    """How a training ended. `train_seconds` is of the steps alone: no evaluation, no loading.

    `metrics` has test_accuracy, test_loss, val_accuracy, val_loss (cross-entropy) and train_loss (the
    objective, with label smoothing, averaged since the evaluation before); it is empty unless the training
    finished.
    """

    status: Status
    metrics: dict[str, float]
    params: int
    flops: int
    steps: int
    images: int
    train_seconds: float
    images_per_second: float
    diverged_at_step: int | None = None


class DivergedError(Exception):
    """The loss, or what the weights make of the validation images, is no longer a number."""

    def __init__(self, step: int) -> None:
        super().__init__(f"diverged at step {step}")
        self.step = step


def train(
    config: Config,
    run: Run | None = None,
    *,
    data_dir: Path | None = None,
    stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = 2.0,
) -> Outcome:
    """Trains `config` from the run's checkpoint, if it has one, to the end or to a step at which `stop()`.

    A checkpoint is made every `checkpoint_seconds`, or less often where that would take more than 2% of the time;
    0: before every step.
    Without a `run`, only the outcome is kept. Raises ValueError where data are missing or not what `config` says.
    """
    run = run or Memory()
    with torch_threads(config.threads):
        training = Training(config, load(config, data_dir).to(torch.device(device_of(config))))
        if (payload := run.checkpoint()) is not None:
            training.restore(payload)
        try:
            return loop(training, run, stop, checkpoint_seconds)
        except DivergedError as diverged:
            return training.outcome("diverged", {}, diverged.step)


def loop(training: Training, run: Run, stop: Callable[[], bool], checkpoint_seconds: float) -> Outcome:
    """Steps, each followed by an evaluation where one is due; what is saved is saved before a step."""
    config = training.config
    due, line = evaluation_steps(config), dict[str, Any]()
    saved = shown = time.monotonic()
    pause = checkpoint_seconds
    while training.step < config.steps:
        now = time.monotonic()
        if (stopping := stop()) or now - saved >= pause:
            run.save_checkpoint(training.step, training.save())
            saved = time.monotonic()
            pause = checkpoint_seconds and max(checkpoint_seconds, (saved - now) / CHECKPOINT_SHARE)
        if stopping:
            return training.outcome("stopped", {})
        if now - shown >= TICK:
            run.progress(training.step, line.get("val_accuracy"))
            shown = now
        training.advance()
        if training.step in due:
            line = training.evaluate()
            run.log(line)
    loss, correct = training.test()
    run.save_weights(training.weights())
    run.save_correct(training.data.test.index.astype(np.int32), correct.astype(np.uint8))
    run.progress(training.step, line["val_accuracy"])
    validated = {name: line[name] for name in ("val_accuracy", "val_loss", "train_loss")}
    return training.outcome("finished", {"test_accuracy": correct.mean().item(), "test_loss": loss} | validated)


class Training:
    """The state of a training, all of which is in its checkpoint, and what moves it by one step."""

    def __init__(self, config: Config, data: Data) -> None:
        self.config, self.data, self.device = config, data, data.mean.device
        self.model = build(config).to(self.device)
        self.optimizer = optimizer(self.model, config)
        self.order = Order(len(data.train), config.seed)
        self.step = 0
        # The loss of each step since the last evaluation, on the device, so that no step waits for its value.
        self.losses = torch.zeros(config.steps, device=self.device)
        self.since = 0
        self.seconds, self.mark = 0.0, time.perf_counter()

    def advance(self) -> None:
        """One step: loss, gradients, their global norm clipped, AdamW."""
        images, labels = self.batch()
        loss = F.cross_entropy(self.model(images), labels, label_smoothing=self.config.label_smoothing)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step, self.config)
        self.optimizer.step()
        self.losses[self.since] = loss.detach()
        self.step, self.since = self.step + 1, self.since + 1

    def batch(self) -> tuple[Tensor, Tensor]:
        """The standardised images (B, C, H, W) and the labels (B,) of the step to come."""
        places = self.order.places(self.step * self.config.batch, self.config.batch)
        chosen = torch.from_numpy(places).to(self.device)
        return self.data.standardise(self.data.train.pixels[chosen]), self.data.train.labels[chosen]

    def evaluate(self) -> dict[str, Any]:
        """A line of metrics, from the validation images alone. Raises DivergedError."""
        with self.off_the_clock():
            losses = self.losses[: self.since].cpu()
            if not losses.isfinite().all():
                raise DivergedError(self.step - self.since + 1 + int(losses.isfinite().int().argmin()))
            loss, correct = self.measure(self.data.val)
            if not math.isfinite(loss):
                raise DivergedError(self.step)
            self.since = 0
        images = self.step * self.config.batch
        return {
            "step": self.step,
            "epoch": images / len(self.data.train),
            "images": images,
            "seconds": self.seconds,
            "train_loss": losses.mean().item(),
            "val_loss": loss,
            "val_accuracy": correct.mean().item(),
            "lr": learning_rate(self.step - 1, self.config),
        }

    def test(self) -> tuple[float, np.ndarray[Any, Any]]:
        """Loss, and what was right, on the test images: once, at the end."""
        with self.off_the_clock():
            return self.measure(self.data.test)

    @torch.no_grad()
    def measure(self, images: Images) -> tuple[float, np.ndarray[Any, Any]]:
        """Cross-entropy, and for each image (n,) whether its highest logit is that of its label."""
        self.model.eval()
        parts = [self.model(self.data.standardise(some)) for some in torch.split(images.pixels, EVALUATION_BATCH)]
        self.model.train()
        logits = torch.cat(parts)  # (n, classes)
        correct = logits.argmax(dim=1) == images.labels
        return F.cross_entropy(logits, images.labels).item(), correct.cpu().numpy()

    def save(self) -> bytes:
        """Everything that the rest of the training depends on, as safetensors."""
        with self.off_the_clock():
            tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
            for name, parameter in self.model.named_parameters():
                for key, tensor in self.optimizer.state[parameter].items():
                    tensors[f"optimizer.{name}.{key}"] = tensor
            tensors["losses"] = self.losses[: self.since]
            tensors["step"] = torch.tensor(self.step)
            tensors["seconds"] = torch.tensor(self.seconds, dtype=torch.float64)
            return safetensors.torch.save(tensors)

    def restore(self, payload: bytes) -> None:
        """The state that `save` gave."""
        tensors = safetensors.torch.load(payload)
        self.model.load_state_dict(under("model.", tensors))
        for name, parameter in self.model.named_parameters():
            state = under(f"optimizer.{name}.", tensors)
            if state:
                self.optimizer.state[parameter] = {key: t.to(self.device) for key, t in state.items()}
        self.since = len(tensors["losses"])
        self.losses[: self.since] = tensors["losses"]
        self.step, self.seconds = int(tensors["step"]), tensors["seconds"].item()
        self.mark = time.perf_counter()

    def weights(self) -> bytes:
        return safetensors.torch.save({name: t.cpu() for name, t in self.model.state_dict().items()})

    @contextmanager
    def off_the_clock(self) -> Iterator[None]:
        """What happens inside is not training time; what the device was given before it is."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds += time.perf_counter() - self.mark
        yield
        self.mark = time.perf_counter()

    def outcome(self, status: Status, metrics: dict[str, float], diverged_at: int | None = None) -> Outcome:
        with self.off_the_clock():
            cost = measure(self.config)
        images = self.step * self.config.batch
        speed = images / self.seconds
        return Outcome(
            status,
            metrics,
            cost["params"],
            cost["flops"],
            self.step,
            images,
            self.seconds,
            speed,
            diverged_at,
        )


def evaluation_steps(config: Config) -> list[int]:
    """Where the metrics get a line: evenly spaced, the last step among them."""
    count = min(config.evaluations, config.steps)
    return [round(config.steps * (i + 1) / count) for i in range(count)]


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def device_of(config: Config) -> str:
    if config.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return config.device


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """PyTorch's threads on the CPU: more of them change the last bits of a sum, so a trial says how many."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
