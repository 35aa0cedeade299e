"""The state of a training run: what a step changes, what an evaluation measures, and what a checkpoint holds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import astuple, dataclass
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from commonfloor.options import ConfigError
from vitcore.analysis.cost import measure
from vitcore.data.shuffle import generator
from vitcore.data.splits import Data
from vitcore.keyed_random import RngKeys
from vitcore.model.stem import patch_sizes
from vitcore.model.vit import ViT
from vitcore.runtime.device import compute_in_precision
from vitcore.runtime.memory import evaluation_batch
from vitcore.settings import Settings
from vitcore.training.algorithms import Average
from vitcore.training.batches import Batch
from vitcore.training.distributed import ALONE, Ranks
from vitcore.training.optimizer_state import INDEX, address
from vitcore.training.pretrained import Teacher, Weights, check_fit, read_fitting
from vitcore.training.run import Metrics, Outcome, Run, Status
from vitcore.training.step import TrainStep

WHAT = "the trial's newest checkpoint"
LATER = ("micro_batch", "suspicion")  # checkpoints of earlier versions lack both
SCALAR = torch.tensor(0.0)
VERIFICATIONS = 3  # number of suspicions after which any divergence counts, because steps are not reproducible


class DivergedError(Exception):
    """Raised if a loss is not finite. step: the training step, from 1, of the loss or before the validation loss."""

    def __init__(self, step: int) -> None:
        super().__init__(f"diverged at step {step}")
        self.step = step


@dataclass(frozen=True)
class Suspicion:
    """The divergence to verify, if any, and the outcome of earlier verifications.

    To verify a divergence, training restarts from its last checkpoint and checks the loss of every step.
    """

    step: int = 0  # the step that diverged, or 0 if nothing is suspected
    refuted_step: int = 0  # the latest step whose loss was finite when recomputed, or 0
    count: int = 0  # number of suspicions so far

    def confirmed_by(self, step: int) -> bool:
        """Return whether a divergence at `step` confirms this suspicion. Any divergence confirms a third suspicion."""
        return step == self.step or self.count == VERIFICATIONS

    def at_step(self, step: int) -> Suspicion:
        """Return the suspicion of a divergence at `step`. The step that was suspected before counts as refuted."""
        return Suspicion(step, self.step or self.refuted_step, self.count + 1)

    def refuted(self) -> Suspicion:
        return Suspicion(0, self.step, self.count)


class Training:
    """The state of a training run, which checkpoints save and restore. Arguments and errors: see `TrainStep`."""

    def __init__(
        self,
        config: Settings,
        data: Data,
        initial: Weights | None = None,
        ranks: Ranks = ALONE,
        teacher: Teacher | None = None,
    ) -> None:
        self.config = config
        self.data = data
        self.ranks = ranks
        self.device = data.mean.device
        self.train_step = TrainStep(config, data, initial, ranks, teacher)
        self.batches = self.train_step.batches
        self.objective = self.train_step.objective
        self.model = self.train_step.model
        self.optimizer = self.train_step.optimizer
        self.evaluation_batch = evaluation_batch(config, self.device)
        self.suspicion = Suspicion()
        self.patches = patch_sizes(config)
        self.step = 0
        # Losses since the last evaluation, kept on the device so that no step synchronizes with it.
        self.losses = torch.zeros(config.steps, device=self.device)
        self.since = 0  # number of these losses
        self.seconds = 0.0  # training time up to `mark`
        self.untimed_steps = 0
        self.mark = time.perf_counter()

    def advance(self) -> None:
        """Take a training step, and store its loss on the device. A step that compiles the model is not timed."""
        clock: AbstractContextManager[None] = nullcontext()
        if self.train_step.compiling:
            clock = self.off_the_clock()
            self.untimed_steps += 1
        with clock, self.patches_of_step():
            loss = self.train_step(self.step)
        self.losses[self.since] = self.ranks.mean(loss)
        self.step += 1
        self.since += 1

    def patches_of_step(self) -> AbstractContextManager[None]:
        """Return a context in which the model has the next step's patch size, drawn from `patch_sizes`."""
        if len(self.patches) == 1:
            return nullcontext()
        assert isinstance(self.model, ViT)
        draw = generator("patch", self.config.seed, self.step).random_sample()
        return self.model.at_patch(self.patches[int(draw * len(self.patches))])

    @property
    def average(self) -> Average | None:
        return self.train_step.average

    def averaged(self) -> AbstractContextManager[None]:
        """Return a context in which the model has its averaged weights, if there are any."""
        return self.average.in_place() if self.average else nullcontext()

    def forward(self, images: Tensor, keys: RngKeys = None) -> Any:
        """Return the model's outputs in float32 for images (B, C, H, W) and their keys (B,)."""
        return compute_in_precision(self.config, self.model, images, keys)

    def batch(self) -> Batch:
        """Return this rank's images of the next batch, augmented and mixed, with their targets."""
        return self.batches.prepare(self.batches.send(self.batches.draw(self.step)))

    def finite_losses(self) -> Tensor:
        """Return the losses since the last evaluation, on the CPU; raise DivergedError if one is not finite."""
        losses = self.losses[: self.since].cpu()
        finite = losses.isfinite()
        if not finite.all():
            raise DivergedError(self.step - self.since + 1 + int(finite.int().argmin()))
        return losses

    def verify(self) -> None:
        """Raise DivergedError if a loss is not finite; refute the suspicion once its step has passed."""
        with self.off_the_clock():
            self.finite_losses()
        if self.step >= self.suspicion.step:
            self.suspicion = self.suspicion.refuted()

    def save_checkpoint(self, run: Run) -> None:
        """Save a checkpoint on rank 0 if the state is finite. If not, the next evaluation checks the losses."""
        if self.ranks.rank == 0:
            with self.off_the_clock():
                tensors = self.checkpoint()
                buffers = dict(self.model.named_buffers())  # which may hold minus infinity, as masks do
                changing = [tensor for name, tensor in tensors.items() if name.partition(".")[2] not in buffers]
                if all(bool(tensor.isfinite().all()) for tensor in changing):
                    run.save_checkpoint(self.step, as_safetensors(tensors))

    def checkpoint(self) -> dict[str, Tensor]:
        """Return a checkpoint, name -> tensor: weights, optimizer state, average, recent losses and counters."""
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        tensors |= self.train_step.optimizer_state.tensors()
        if self.average:
            tensors |= {f"average.{name}": tensor for name, tensor in self.average.state_dict().items()}
        tensors["losses"] = self.losses[: self.since]
        tensors["step"] = torch.tensor(self.step)
        tensors["micro_batch"] = torch.tensor(self.train_step.reported_micro_batch or self.config.batch)
        tensors["suspicion"] = torch.tensor(astuple(self.suspicion))
        seconds = self.seconds * self.step / max(1, self.step - self.untimed_steps)  # as if all steps were timed
        tensors["seconds"] = torch.tensor(seconds, dtype=torch.float64)
        return tensors

    def restore(self, payload: bytes | None) -> None:
        """Restore the state from a checkpoint, if any. Raises ConfigError if it is damaged or does not fit this run."""
        if payload is None:
            return
        tensors = parsed_checkpoint(payload, self.checkpoint(), self.config.steps)
        self.model.load_state_dict(prefixed("model.", tensors))
        if self.average:
            self.average.load_state_dict(prefixed("average.", tensors))
        self.train_step.optimizer_state.restore(tensors, self.device, WHAT)
        self.since = len(tensors["losses"])
        self.losses[: self.since] = tensors["losses"]
        self.step = int(tensors["step"])
        self.seconds = tensors["seconds"].item()
        if "micro_batch" in tensors:
            self.train_step.micro_batch = min(self.train_step.micro_batch, int(tensors["micro_batch"]))
            self.suspicion = Suspicion(*tensors["suspicion"].tolist())
        self.mark = time.perf_counter()

    def weights(self) -> bytes:
        """Return the weights to evaluate and save, as safetensors: the averaged weights if there are any."""
        kept = self.average or self.model
        return as_safetensors({name: t.cpu() for name, t in kept.state_dict().items()})

    @contextmanager
    def off_the_clock(self) -> Iterator[None]:
        """Exclude the block from the training time. Work queued on the device before the block still counts."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds += time.perf_counter() - self.mark
        try:
            yield
        finally:
            self.mark = time.perf_counter()

    def outcome(self, status: Status, metrics: Metrics, diverged_at: int | None = None) -> Outcome:
        """Return the outcome of training that ends at this step. diverged_at: the step that diverged, or None."""
        with self.off_the_clock():
            cost = measure(self.config)
        images = self.step * self.config.batch
        timed_images = images - self.untimed_steps * self.config.batch
        return Outcome(
            status=status,
            metrics=metrics,
            params=cost.params,
            flops=cost.flops,
            steps=self.step,
            images=images,
            train_seconds=self.seconds,
            images_per_second=timed_images / self.seconds if self.seconds else 0.0,
            diverged_at_step=diverged_at,
            micro_batch=self.train_step.reported_micro_batch,
            suspect_hardware=self.suspicion.refuted_step or None,
        )


def as_safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Return tensors as safetensors, which holds a shared tensor once for each of its names."""
    separate: dict[str, Tensor] = {}
    written: set[int] = set()
    for name, tensor in tensors.items():
        separate[name] = tensor.clone() if address(tensor) in written else tensor
        written.add(address(tensor))
    return safetensors.torch.save(separate)


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def parsed_checkpoint(payload: bytes, expected: Mapping[str, Tensor], steps: int) -> dict[str, Tensor]:
    """Return name -> tensor from a checkpoint, as safetensors; raise ConfigError if it is damaged or does not fit.

    expected: name -> tensor for the state of the resuming run. steps: the run's total number of steps.
    """
    fixed = {name: tensor for name, tensor in expected.items() if not name.startswith((INDEX, "losses", *LATER))}
    tensors = read_fitting(payload, fixed, WHAT)
    if "micro_batch" in tensors:
        for name in LATER:
            check_fit(WHAT, name, tensors.get(name, SCALAR), expected[name])
    losses = tensors.get("losses", SCALAR)
    step = tensors["step"]
    micro_batch = tensors.get("micro_batch", 1)
    if losses.ndim != 1 or not len(losses) <= step < steps or micro_batch < 1:
        raise ConfigError(f"{WHAT}: {losses.numel()} losses, step={step}, micro_batch={micro_batch}")
    return tensors
