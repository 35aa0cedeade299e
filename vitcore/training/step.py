"""One training step, from the augmentation of its images to the update of the weights and of their average.

On a GPU, hundreds of kernels of a small model's step take longer to launch than to run. Unless `cuda_graph=off`, the
step is therefore one CUDA graph, captured after a few eager steps, checked once against an eager step, and replayed. A
step that cannot be captured stays eager, and the reason is recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from vitcore.data.augmentation.augment import AUGMENT, Staged, augments_in_graph
from vitcore.data.augmentation.batch_augmentation import erased, mixed
from vitcore.data.stream import Stored
from vitcore.keyed_random import Keys
from vitcore.model.build import Model, Reference, build, couples_images
from vitcore.runtime.compile_cache import compiled, compiles
from vitcore.runtime.cuda_graph import capture, on_side_stream, without_waiting
from vitcore.runtime.device import compute_in_precision, send
from vitcore.runtime.memory import out_of_memory
from vitcore.training.distributed import Ranks, Replica
from vitcore.training.objectives import OBJECTIVE, Classification
from vitcore.training.optimization.ema import Average, copy
from vitcore.training.optimization.optimizers import OPTIMIZER, optimizer, set_rate
from vitcore.training.optimization.schedules import learning_rate
from vitcore.training.run import Facts
from vitcore.training.transfer import Weights, copy_weights

if TYPE_CHECKING:
    from vitcore.config import Config
    from vitcore.data.splits import Data
    from vitcore.training.distillation import Teacher

WARM_UP = 4  # eager steps before the capture, in which libraries, autograd and the optimizer initialize
TOLERANCE = {"float32": 1e-3, "bf16": 0.05}  # relative to the gradient's norm: the order of operations may differ
NONE, ASKED = "none: ", "cuda_graph=off"  # prefix of a reason for eager steps, and the reason if the user chose them
TIED = "batch norm ties the images of a batch together: lower batch"


class Inputs(NamedTuple):
    """The tensors that change from step to step; all other tensors of a step stay at their addresses.

    places (B,): indices of the images in the training data. pixels (B, C, S, S): uint8 images, if they are streamed or
    already augmented. keys (B,): random keys of the images. choices (B, n): random choices of the augmentation. mixing
    (6,): random numbers of mixup and CutMix. All but `places` are None in a step that does not need them.
    """

    places: Tensor
    pixels: Tensor | None = None
    keys: Keys = None
    choices: Tensor | None = None
    mixing: Tensor | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> Inputs:
        tensors = {name: tensor for name, tensor in self._asdict().items() if tensor is not None}
        return self._replace(**{name: function(tensor) for name, tensor in tensors.items()})


class Batch(NamedTuple):
    """A batch of model inputs with their targets.

    images (B, C, H, W): standardized. targets: labels (B,), soft labels (B, classes) of mixed images, or the targets of
    an objective without labels. keys (B,): random keys of the images, or None.
    """

    images: Tensor
    targets: Tensor
    keys: Keys

    def split(self, size: int) -> Iterator[Batch]:
        """Yield micro-batches of `size` images, of which the last may be smaller."""
        keys = repeat(None) if self.keys is None else torch.split(self.keys, size)
        return map(Batch, torch.split(self.images, size), torch.split(self.targets, size), keys)


class TrainStep:
    """A training step with its model and optimizer, which runs eagerly or as one CUDA graph, compiled or not.

    start: weights to start from, or None for initial values. teacher: the model to distill, or None. facts: whether
    steps are compiled or a CUDA graph, and why not. The training loop records them in env.json, then empties the dict.
    """

    def __init__(
        self, config: Config, data: Data, start: Weights | None, ranks: Ranks, teacher: Teacher | None = None
    ) -> None:
        self.config, self.data, self.device, self.ranks = config, data, data.mean.device, ranks
        self.objective, self.teacher = OBJECTIVE[config.objective](config), teacher
        self.model: Model = ranks.prepare(build(config)).to(self.device)
        if start is not None:
            copy_weights(self.model, start, config.init_from)
        self.parameters = list(self.model.parameters())  # collected once: this slows down small models
        self.replica = Replica[Batch](ranks, self.model)
        self.compiling = compiles(config, self.device.type)
        self.trained = compiled(self.model, attention=config.attention) if self.compiling else self.model
        self.augment = AUGMENT[config.augment](config)
        self.side = data.train.pixels.shape[-1] if self.augment.cuts else config.image_size
        self.augments_in_graph = augments_in_graph(self.augment, config.channels * self.side**2)
        self.augmented_before_graph = config.augment != "none" and not self.augments_in_graph
        self.optimizer = optimizer(self.model, config)
        default_average = OPTIMIZER[config.optimizer].average(self.model, self.optimizer)
        self.average = Average(self.model, config.ema) if config.ema else default_average
        self.share: float | Tensor = 0.0  # of the weights in an update of their average
        self.part = ranks.largest_part(config.batch)
        self.micro_batch = min(config.micro_batch or self.part, self.part)
        self.indivisible = TIED if couples_images(self.model) else ""
        self.facts: Facts = {}
        self.eager = eager_reason(config, self.device.type, self.optimizer, self.model)
        self.fixed = self.device.type != "cpu" or not self.eager
        self.warm, self.inputs = 0, Inputs(torch.empty(0))
        self.replay: Callable[[], None] | None = None
        self.loss = torch.empty(0)
        if not self.eager:
            for group in self.optimizer.param_groups:  # the graph reads the rate at this address
                group["lr"] = torch.zeros((), device=self.device)
            self.share = torch.zeros((), device=self.device)
        elif self.device.type == "cuda":
            self.facts["cuda_graph"] = NONE + self.eager

    def __call__(self, inputs: Inputs, step: int) -> Tensor:
        """Take training step `step`, from 0; return this rank's contribution, whose mean over ranks is the loss."""
        if self.compiling:
            return self.first_step(inputs, step)
        self.schedule(step)
        if self.eager:
            return self.update(self.send(inputs))
        if self.warm == WARM_UP and self.replay is None:
            return self.capture_step(inputs, step)
        self.fill(inputs)
        if self.replay is None:
            self.warm += 1
            with on_side_stream(self.device):
                return self.update(self.inputs)
        self.replay()
        return self.loss

    def schedule(self, step: int) -> None:
        set_rate(self.optimizer, learning_rate(step, self.config))
        if self.average:
            share = self.average.share(step + 1)
            self.share = self.share.fill_(share) if isinstance(self.share, Tensor) else share

    @property
    def reported_micro_batch(self) -> int:
        """The micro-batch size in images, or 0 if no rank accumulates gradients."""
        return self.micro_batch if self.micro_batch < self.part else 0

    def first_step(self, inputs: Inputs, step: int) -> Tensor:
        """Take the first step, in which the model is compiled; if that fails, use the eager model from now on."""
        self.compiling, began = False, time.perf_counter()
        try:
            return self(inputs, step)
        except Exception as error:  # compilers raise many kinds, and an error of the model itself recurs below
            if out_of_memory(error):
                raise
            self.trained = self.model
            self.facts |= {"compile": False, "compile_failed": f"{type(error).__name__}: {first_line(error)}"}
            return self(inputs, step)
        finally:
            self.facts["compile_seconds"] = round(time.perf_counter() - began, 1)

    # -- what a step computes ------------------------------------------------------------------------------------------

    def update(self, inputs: Inputs) -> Tensor:
        """Take an eager step, with smaller micro-batches if memory requires."""
        gradients = partial(self.gradients, self.batch(inputs))
        loss, self.micro_batch = self.replica.call_fitting(gradients, self.micro_batch, self.indivisible)
        self.apply_gradients()
        return loss

    def update_as_captured(self) -> Tensor:
        """Take a step to capture as a CUDA graph, which cannot retry with smaller micro-batches."""
        loss = self.gradients(self.batch(self.inputs), self.micro_batch)
        self.apply_gradients()
        return loss

    def draw(self, inputs: Inputs) -> Inputs:
        """Return the inputs with the augmentation's random choices, or with augmented images if no graph can do it."""
        if inputs.keys is None or self.config.augment == "none":
            return inputs
        if self.augments_in_graph and isinstance(self.augment, Staged):
            return inputs._replace(choices=self.augment.choices(inputs.keys, self.side))
        on_device = inputs._replace(places=send(inputs.places, self.device))
        return inputs._replace(pixels=self.augment(self.pixels(on_device), inputs.keys))

    def batch(self, inputs: Inputs) -> Batch:
        """Return this rank's images with their targets, standardized, and augmented, erased and mixed as configured."""
        pixels = inputs.pixels if self.augmented_before_graph else None
        if pixels is None:
            pixels = self.pixels(inputs)
        if inputs.choices is not None:
            assert isinstance(self.augment, Staged)
            pixels = self.augment.apply(pixels, inputs.choices, self.fixed)
        labels = self.data.train.labels[inputs.places]
        images = self.data.standardise(pixels)
        if self.config.random_erasing:
            assert inputs.keys is not None
            images = erased(images, inputs.keys, self.config.random_erasing, self.config.random_erasing_fill)
        targets = self.objective.targets(pixels, labels, inputs.keys)
        if inputs.mixing is not None:
            images, targets = mixed(images, targets, self.config, inputs.mixing)
        return Batch(images, targets, inputs.keys)

    def pixels(self, inputs: Inputs) -> Tensor:
        """Return the uint8 images (B, C, S, S) to augment, uncropped if the augmentation crops."""
        train = self.data.train
        pixels = inputs.pixels if isinstance(train.pixels, Stored) else train.pixels[inputs.places]
        assert pixels is not None
        return pixels if self.augment.cuts else train.evaluation_view(pixels)

    def gradients(self, batch: Batch, size: int) -> Tensor:
        """Accumulate gradients over micro-batches of `size` images; return this rank's contribution to the loss."""
        self.optimizer.zero_grad()
        total = torch.zeros((), device=self.device)
        for micro_batch in self.replica.micro_batches(batch.split(size)):
            loss = self.replica.loss(self.mean_loss, micro_batch)
            if (share := self.ranks.count * len(micro_batch.images) / self.config.batch) != 1:
                loss = loss * share  # skipped for 1, because it slows down a small model's step
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        return total

    def mean_loss(self, batch: Batch) -> Tensor:
        """Return the mean loss over the images of `batch`, with the distillation loss if there is a teacher."""
        outputs = compute_in_precision(self.config, self.trained, batch.images, batch.keys)
        if self.teacher is None:
            return self.objective.loss(outputs, batch.targets)
        assert isinstance(self.objective, Classification), "no other objective has a teacher"
        return self.objective.distilled_loss(
            outputs, batch.targets, compute_in_precision(self.config, self.teacher, batch.images)
        )

    def apply_gradients(self) -> None:
        if self.config.clip_norm:
            nn.utils.clip_grad_norm_(self.parameters, self.config.clip_norm)
        self.optimizer.step()
        if self.average:
            self.average.update(self.share)

    # -- as one graph --------------------------------------------------------------------------------------------------

    def capture_step(self, inputs: Inputs, step: int) -> Tensor:
        """Take one step eagerly, then from the same state as a captured CUDA graph; return the loss.

        An eager step replaces the graph if the gradients differ by more than rounding, or if an error occurs. It comes
        first because it finds operations that a graph cannot hold, and frees memory before the graph needs as much.
        """
        state, earlier = self.state(), self.inputs.map(Tensor.clone)
        before = [tensor.clone() for tensor in state]
        try:
            self.fill(inputs)
            with on_side_stream(self.device), without_waiting(self.device):
                self.update_as_captured()
            expected = [parameter.grad for parameter in self.parameters]
            copy(before, state)
            self.optimizer.zero_grad()
            self.fill(earlier)  # images that differ from the check's, in case the graph contains the images themselves
            with capturable(self.optimizer):
                self.replay, self.loss = capture(self.update_as_captured)
            gradients = [parameter.grad for parameter in self.parameters]
            self.optimizer.zero_grad()
            self.fill(inputs)
            self.replay()
            if self.gradients_equal(gradients, expected):
                self.facts["cuda_graph"] = (
                    "the step after augmentation" if self.augmented_before_graph else "the whole step"
                )
                return self.loss
            reason = "its gradients differ from an eager step's"
        except Exception as error:  # a capture fails in many ways, and an error of the step itself recurs below
            reason = f"{type(error).__name__}: {first_line(error)}"
        copy(before, state)
        self.give_up(reason)
        self.schedule(step)
        return self.update(self.send(inputs))

    def gradients_equal(self, gradients: list[Tensor | None], expected: list[Tensor | None]) -> bool:
        if [gradient is None for gradient in gradients] != [gradient is None for gradient in expected]:
            return False
        ours, theirs = ([gradient for gradient in each if gradient is not None] for each in (gradients, expected))
        off, whole = nn.utils.get_total_norm(torch._foreach_sub(ours, theirs)), nn.utils.get_total_norm(theirs)
        return bool(off <= TOLERANCE[self.config.precision] * whole)

    def state(self) -> list[Tensor]:
        moments = (value for state in self.optimizer.state.values() for value in state.values())
        mean = self.average.mean if self.average else []
        return [*self.model.state_dict().values(), *mean, *(value for value in moments if isinstance(value, Tensor))]

    def give_up(self, reason: str) -> None:
        """Drop the CUDA graph for eager steps, and record the reason."""
        self.replay, self.eager = None, reason
        self.inputs, self.loss = Inputs(torch.empty(0)), torch.empty(0)  # the graph's tensors would keep its memory
        self.facts["cuda_graph"] = NONE + reason
        self.optimizer.zero_grad()
        for group in self.optimizer.param_groups:
            group["lr"] = 0.0  # a float again, which `set_rate` replaces
        self.share = 0.0

    def fill(self, inputs: Inputs) -> None:
        """Copy `inputs` to the addresses that the CUDA graph reads. The first call allocates these."""
        if self.warm == 0:
            self.inputs = inputs.map(lambda tensor: tensor.to(self.device, copy=True))
            return
        for fixed, new in zip(self.inputs, inputs, strict=True):
            if fixed is not None and new is not None:
                fixed.copy_(new.pin_memory() if new.device != self.device else new, non_blocking=True)

    def send(self, inputs: Inputs) -> Inputs:
        return inputs.map(partial(send, device=self.device))


def eager_reason(config: Config, device: str, optimizer: torch.optim.Optimizer, model: nn.Module) -> str:
    """Return why a step on "cuda" or "cpu" cannot be one CUDA graph, or "" if a capture is worth trying."""
    reasons = {
        "a CPU has none": device != "cuda",
        ASKED: config.cuda_graph == "off",
        f"gpus={config.gpus}: gradients are exchanged between launches": config.gpus > 1,
        f"stem.patches={config.patches}: shapes change by step": len(config.patches) > 1,
        # Other optimizers may count steps on the host, and a graph would repeat the count at its capture.
        f"optimizer={config.optimizer}: not fused": not all(group.get("fused") for group in optimizer.param_groups),
        f"model={config.model}: the host seeds what it drops": isinstance(model, Reference) and model.drops,
    }
    return next((reason for reason, true in reasons.items() if true), "")


@contextmanager
def capturable(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Set the `capturable` flag, which PyTorch's optimizers need in a CUDA graph and which changes no result."""
    groups = [group for group in optimizer.param_groups if "capturable" in group]
    for group in groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in groups:
            group["capturable"] = False


def first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
