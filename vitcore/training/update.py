"""The computations of a training step, from augmenting images to updating the weights and their average."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vitcore.data.augmentation.augment import AUGMENT, Staged, augments_in_graph
from vitcore.data.augmentation.batch_augmentation import erased, mixed
from vitcore.data.splits import Data
from vitcore.data.stream import Stored
from vitcore.keyed_random import Keys
from vitcore.model.build import Model, build, couples_images
from vitcore.runtime.device import compute_in_precision, send
from vitcore.settings import Settings
from vitcore.training.distillation import Teacher
from vitcore.training.distributed import Ranks, Replica
from vitcore.training.objectives import OBJECTIVE, Classification
from vitcore.training.optimization.ema import Average
from vitcore.training.optimization.optimizers import OPTIMIZER, optimizer, set_rate
from vitcore.training.optimization.schedules import learning_rate
from vitcore.training.optimization.stored_state import OptimizerState
from vitcore.training.transfer import Weights, copy_weights

TIED = "batch norm ties the images of a batch together: lower batch"


class Inputs(NamedTuple):
    """The inputs that change from step to step. All other tensors of a step stay at their addresses.

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
        given = {name: function(tensor) for name, tensor in self._asdict().items() if tensor is not None}
        return Inputs(**given)


class Batch(NamedTuple):
    """A batch of model inputs with their targets.

    images (B, C, H, W): standardized. targets: labels (B,), soft labels (B, classes) of mixed images, or the targets of
    an objective without labels. keys (B,): random keys of the images, or None.
    """

    images: Tensor
    targets: Tensor
    keys: Keys

    def split(self, size: int) -> Iterator[Batch]:
        """Yield micro-batches of `size` images. The last micro-batch may be smaller."""
        keys = repeat(None) if self.keys is None else torch.split(self.keys, size)
        return map(Batch, torch.split(self.images, size), torch.split(self.targets, size), keys)


class Update:
    """An eager training step with its model, optimizer and averaged weights.

    data: on the device to train on. start: weights to start from, or None for initial values. teacher: the model to
    distill, or None. Raises the errors of `Ranks.prepare` and `copy_weights`.
    """

    def __init__(
        self, config: Settings, data: Data, start: Weights | None, ranks: Ranks, teacher: Teacher | None = None
    ) -> None:
        self.config, self.data, self.device, self.ranks = config, data, data.mean.device, ranks
        self.objective, self.teacher = OBJECTIVE[config.objective](config), teacher
        self.model: Model = ranks.prepare(build(config)).to(self.device)
        if start is not None:
            copy_weights(self.model, start, config.init_from)
        self.trained: Callable[..., Any] = self.model  # or the compiled model
        self.parameters = list(self.model.parameters())  # once: collecting them slows down small models
        self.optimizer = optimizer(self.model, config)
        self.optimizer_state = OptimizerState(self.optimizer, self.model, config.optimizer)
        default_average = OPTIMIZER[config.optimizer].average(self.model, self.optimizer)
        self.average = Average(self.model, config.ema) if config.ema else default_average
        self.share: float | Tensor = 0.0  # fraction by which the average moves toward the weights
        self.augment = AUGMENT[config.augment](config)
        self.side = data.train.pixels.shape[-1] if self.augment.cuts else config.image_size
        self.augments_in_graph = augments_in_graph(self.augment, config.channels * self.side**2)
        self.augmented_before_graph = config.augment != "none" and not self.augments_in_graph
        self.fixed = self.device.type != "cpu"  # whether shapes must not depend on random choices
        self.replica = Replica[Batch](ranks, self.model)
        self.part = ranks.largest_part(config.batch)
        self.micro_batch = min(config.micro_batch or self.part, self.part)
        self.indivisible = TIED if couples_images(self.model) else ""

    @property
    def reported_micro_batch(self) -> int:
        """The micro-batch size in images, or 0 if no rank accumulates gradients."""
        return self.micro_batch if self.micro_batch < self.part else 0

    def schedule(self, step: int) -> None:
        set_rate(self.optimizer, learning_rate(step, self.config))
        if self.average:
            share = self.average.share(step + 1)
            self.share = self.share.fill_(share) if isinstance(self.share, Tensor) else share

    def update(self, inputs: Inputs) -> Tensor:
        """Take an eager step and return this rank's loss. Raises OutOfMemory if no micro-batch fits."""
        gradients = partial(self.gradients, self.batch(inputs))
        loss, self.micro_batch = self.replica.call_fitting(gradients, self.micro_batch, self.indivisible)
        self.apply_gradients()
        return loss

    def gradients(self, batch: Batch, size: int) -> Tensor:
        """Compute the gradients of `batch` in micro-batches of `size` images, and return this rank's loss."""
        self.optimizer.zero_grad()
        total = torch.zeros((), device=self.device)
        for micro_batch in self.replica.micro_batches(batch.split(size)):
            loss = self.replica.loss(self.mean_loss, micro_batch)
            if (share := self.ranks.count * len(micro_batch.images) / self.config.batch) != 1:
                loss = loss * share  # skipped for 1, because it slows down a small model's step
            loss.backward()
            total += loss.detach()
        return total

    def mean_loss(self, batch: Batch) -> Tensor:
        """Return the mean loss over the images in `batch`, including the distillation loss if there is a teacher."""
        outputs = compute_in_precision(self.config, self.trained, batch.images, batch.keys)
        if self.teacher is None:
            return self.objective.loss(outputs, batch.targets)
        assert isinstance(self.objective, Classification), "no other objective has a teacher"
        taught = compute_in_precision(self.config, self.teacher, batch.images)
        return self.objective.distilled_loss(outputs, batch.targets, taught)

    def apply_gradients(self) -> None:
        if self.config.clip_norm:
            nn.utils.clip_grad_norm_(self.parameters, self.config.clip_norm)
        with self.optimizer_state.verified_step():
            self.optimizer.step()
        if self.average:
            self.average.update(self.share)

    # -- the inputs ---------------------------------------------------------------------------------------------------

    def draw(self, inputs: Inputs) -> Inputs:
        """Return `inputs` with the augmentation's choices or augmented images, or unchanged without augmentation."""
        if inputs.keys is None or self.config.augment == "none":
            return inputs
        if self.augments_in_graph and isinstance(self.augment, Staged):
            return inputs._replace(choices=self.augment.choices(inputs.keys, self.side))
        on_device = inputs._replace(places=send(inputs.places, self.device))
        return inputs._replace(pixels=self.augment(self.pixels(on_device), inputs.keys))

    def send(self, inputs: Inputs) -> Inputs:
        return inputs.map(partial(send, device=self.device))

    def batch(self, inputs: Inputs) -> Batch:
        """Return this rank's batch, augmented, standardized, erased and mixed. inputs: on `self.device`."""
        augmented = inputs.pixels if self.augmented_before_graph else None
        pixels = self.pixels(inputs) if augmented is None else augmented
        if inputs.choices is not None:
            assert isinstance(self.augment, Staged)
            pixels = self.augment.apply(pixels, inputs.choices, self.fixed)
        labels = self.data.train.labels[inputs.places]
        images = self.data.standardize(pixels)
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
