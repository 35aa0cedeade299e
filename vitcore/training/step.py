"""A training step: forward and backward pass, clipping, optimizer step and averaging, eagerly or as one CUDA graph."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from commonfloor.messages import reason
from vitcore.data.splits import Data
from vitcore.model.build import Model, OtherModel, build, coupled_by, freeze
from vitcore.runtime.compile_cache import compile_model, compiles
from vitcore.runtime.device import compute_in_precision
from vitcore.runtime.memory import out_of_memory
from vitcore.settings import Settings
from vitcore.training.batches import Batch, Batches, Inputs
from vitcore.training.distributed import Ranks, Replica
from vitcore.training.objectives import OBJECTIVE, Classification
from vitcore.training.optimizer_state import OptimizerState
from vitcore.training.optimizers import OPTIMIZER, make_optimizer, set_rate
from vitcore.training.pretrained import Teacher, Weights, copy_weights
from vitcore.training.run import Facts
from vitcore.training.schedules import learning_rate
from vitcore.training.step_graph import NONE, WARM_UP, NotCaptured, StepGraph, eager_reason


class TrainStep:
    """A training step, with the model, optimizer and averaged weights that it changes.

    data: on the device to train on. initial: weights to start from, or None for random values. teacher: the model to
    distill, or None. facts: how steps are computed, such as why there is no CUDA graph. The training loop records and
    removes them.
    """

    def __init__(
        self, config: Settings, data: Data, initial: Weights | None, ranks: Ranks, teacher: Teacher | None = None
    ) -> None:
        self.config = config
        self.ranks = ranks
        self.teacher = teacher
        self.device = data.mean.device
        self.objective = OBJECTIVE[config.objective](config)
        self.model: Model = ranks.prepare(build(config)).to(self.device)
        if initial is not None:
            copy_weights(self.model, initial, config.init_from)
        freeze(self.model, config.trainable)
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = make_optimizer(self.model, config)
        self.optimizer_state = OptimizerState(self.optimizer, self.model, config.optimizer)
        self.start_average()
        self.average_rate: float | Tensor = 0.0  # fraction by which the average moves toward the weights

        self.replica = Replica(ranks, self.model)
        self.part = ranks.largest_part(config.batch)
        self.micro_batch = min(config.micro_batch or self.part, self.part)
        coupling = coupled_by(config, self.model)
        self.indivisible = f"{coupling} needs the whole batch at once: lower batch" if coupling else ""
        self.facts: Facts = {}
        self.trained: Callable[..., Any] = self.model  # or the compiled model
        self.compiling = compiles(config, self.device.type)
        if self.compiling:
            self.trained = compile_model(self.model, attention=config.attention)

        self.graph: StepGraph | None = None
        eager = eager_reason(config, self.device.type, self.optimizer, self.model)
        if not eager:
            self.graph = StepGraph(self.device, self.parameters, self.optimizer, config.precision)
            for group in self.optimizer.param_groups:  # the graph reads the rates at these addresses
                group["lr"] = torch.zeros((), device=self.device)
            self.average_rate = torch.zeros((), device=self.device)
        elif self.device.type == "cuda":
            self.facts["cuda_graph"] = NONE + eager
        fixed_shapes = self.device.type != "cpu" or self.graph is not None
        drops = isinstance(self.model, OtherModel) and self.model.drops
        self.batches = Batches(config, data, ranks, self.objective, fixed_shapes, keyed=drops)

    def start_average(self) -> None:
        """Start to average the weights from their present values, if the objective or the optimizer has an average."""
        of_optimizer = OPTIMIZER[self.config.optimizer].average(self.model, self.optimizer)
        self.average = self.objective.average(self.model) or of_optimizer

    def __call__(self, step: int) -> Tensor:
        """Take step `step`, counted from 0, and return this rank's loss, which the next step may overwrite."""
        inputs = self.batches.draw(step)
        if self.compiling:
            return self.compile_and_run(inputs, step)
        return self.run(inputs, step)

    # -- the algorithm -------------------------------------------------------------------------------------------------

    def update(self, inputs: Inputs, divisible: bool = True) -> Tensor:
        """Take a step and return this rank's loss. divisible: whether micro-batches may shrink, as no graph's can."""
        backward = partial(self.backward, self.batches.prepare(inputs))
        if divisible:
            loss, self.micro_batch = self.replica.call_fitting(backward, self.micro_batch, self.indivisible)
        else:
            loss = backward(self.micro_batch)
        if self.config.clip_norm:
            nn.utils.clip_grad_norm_(self.parameters, self.config.clip_norm)
        with self.optimizer_state.verified_step():
            self.optimizer.step()
        self.objective.finish_step(self.model, self.ranks.mean)
        if self.average:
            self.average.update(self.average_rate)
        return loss

    def backward(self, batch: Batch, size: int) -> Tensor:
        """Compute the gradients of `batch` in micro-batches of `size` images, and return this rank's loss."""
        self.optimizer.zero_grad()
        self.objective.start_batch(self.model)
        total = torch.zeros((), device=self.device)
        for micro_batch in self.replica.micro_batches(batch.split(size)):
            loss = self.replica.loss(self.mean_loss, micro_batch)
            weight = self.ranks.count * len(micro_batch.images) / self.config.batch
            if weight != 1:  # skipped for 1, because it slows down a small model's step
                loss = loss * weight
            loss.backward()
            total += loss.detach()
        return total

    def mean_loss(self, batch: Batch) -> Tensor:
        """Return the mean loss over the images in `batch`, including the distillation loss if there is a teacher."""
        outputs = compute_in_precision(self.config, self.trained, batch.images, batch.rng_keys)
        if self.teacher is None:
            return self.objective.loss(outputs, batch.targets)
        assert isinstance(self.objective, Classification), "no other objective has a teacher"
        taught = compute_in_precision(self.config, self.teacher, batch.images)
        return self.objective.distilled_loss(outputs, batch.targets, taught)

    # -- how it runs ---------------------------------------------------------------------------------------------------

    @property
    def reported_micro_batch(self) -> int:
        """The micro-batch size in images, or 0 if no rank accumulates gradients."""
        return self.micro_batch if self.micro_batch < self.part else 0

    def set_rates(self, step: int) -> None:
        """Set all that depends on the step, such as the learning rate, in place if a CUDA graph reads it."""
        set_rate(self.optimizer, learning_rate(step, self.config))
        self.objective.start_step(self.model, step)
        if self.average is None:
            return
        rate = self.average.rate(step + 1)
        if isinstance(self.average_rate, Tensor):
            self.average_rate.fill_(rate)
        else:
            self.average_rate = rate

    def run(self, inputs: Inputs, step: int) -> Tensor:
        """Take a step eagerly or by the CUDA graph, which is captured after a few eager steps."""
        self.set_rates(step)
        if self.graph is None:
            return self.update(self.batches.send(inputs))
        if self.graph.replay is not None:
            return self.graph.run(inputs)
        if self.graph.warm < WARM_UP:
            return self.graph.warm_up(inputs, self.update)
        return self.capture(inputs, step)

    def capture(self, inputs: Inputs, step: int) -> Tensor:
        """Take a step as a captured CUDA graph, or eagerly from now on if it cannot be captured."""
        assert self.graph is not None
        try:
            loss = self.graph.capture(inputs, self.update, self.changed_tensors())
            extent = "the step after augmentation" if self.batches.augments_before_graph else "the whole step"
            self.facts["cuda_graph"] = extent
            return loss
        except NotCaptured as error:
            eager = str(error)
        self.stay_eager(eager)  # after the except clause, whose end frees the tensors in the error's frames
        return self.run(inputs, step)

    def stay_eager(self, eager: str) -> None:
        """Drop the CUDA graph, whose tensors would keep its memory, and record the reason."""
        self.graph = None
        self.facts["cuda_graph"] = NONE + eager
        self.optimizer.zero_grad()
        for group in self.optimizer.param_groups:
            group["lr"] = 0.0  # a float again, which `set_rate` replaces
        self.average_rate = 0.0

    def changed_tensors(self) -> list[Tensor]:
        """Return all tensors that a step changes: weights and buffers, their average, and the optimizer's state."""
        tensors = list(self.model.state_dict().values())
        if self.average:
            tensors += self.average.mean
        for state in self.optimizer.state.values():
            tensors += [value for value in state.values() if isinstance(value, Tensor)]
        return tensors

    def compile_and_run(self, inputs: Inputs, step: int) -> Tensor:
        """Take the first step, in which the model is compiled. If compiling fails, use the eager model from now on."""
        self.compiling = False
        began = time.perf_counter()
        try:
            return self.run(inputs, step)
        except Exception as error:  # compilers raise many kinds, and an error of the model itself recurs below
            if out_of_memory(error):
                raise
            self.trained = self.model
            self.facts |= {"compile": False, "compile_failed": f"{type(error).__name__}: {reason(error)}"}
            return self.run(inputs, step)
        finally:
            self.facts["compile_seconds"] = round(time.perf_counter() - began, 1)
