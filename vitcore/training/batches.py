"""The batches of a training run: drawn on the CPU, then augmented, standardized and mixed on the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor

from vitcore.data.augment import AUGMENT, Staged, augments_in_graph
from vitcore.data.batch_augmentation import erase, mixed, mixing_choices
from vitcore.data.splits import Data, Order
from vitcore.data.stream import Ahead, Stored
from vitcore.keyed_random import Indices, RngKeys, image_keys, view_keys
from vitcore.runtime.device import send
from vitcore.settings import Settings
from vitcore.training.distributed import Ranks
from vitcore.training.objectives import Objective


class Inputs(NamedTuple):
    """The inputs that change from step to step. All other tensors of a step stay at their addresses.

    indices (B,): of the images, in the training data. pixels (B, C, H, W): uint8 images, if they are streamed or
    already augmented (B * views, ...). rng_keys (B,): random keys of the images. choices (B * views, n): random choices
    of the augmentation. mixing (6,): random numbers of mixup and CutMix. All but `indices` are None in a step that does
    not need them.
    """

    indices: Tensor
    pixels: Tensor | None = None
    rng_keys: RngKeys = None
    choices: Tensor | None = None
    mixing: Tensor | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> Inputs:
        given = {name: function(tensor) for name, tensor in self._asdict().items() if tensor is not None}
        return Inputs(**given)


class Batch(NamedTuple):
    """A batch of model inputs with their targets.

    images (B, C, H, W), or (B, views, C, H, W) for an objective with several views: standardized. targets: labels (B,),
    soft labels (B, classes) of mixed images, or the targets of an objective without labels. rng_keys (B,): random keys
    of the images, or None.
    """

    images: Tensor
    targets: Tensor
    rng_keys: RngKeys

    def split(self, size: int) -> Iterator[Batch]:
        """Yield micro-batches of `size` images. The last micro-batch may be smaller."""
        rng_keys = repeat(None) if self.rng_keys is None else torch.split(self.rng_keys, size)
        return map(Batch, torch.split(self.images, size), torch.split(self.targets, size), rng_keys)


class Batches:
    """This rank's batches of a training run.

    data: on the device to train on. fixed_shapes: whether no shape may depend on a random choice, as in a CUDA graph.
    keyed: whether the model needs the images' random keys whatever the settings say.
    """

    def __init__(
        self, config: Settings, data: Data, ranks: Ranks, objective: Objective, fixed_shapes: bool, keyed: bool
    ) -> None:
        self.config = config
        self.data = data
        self.objective = objective
        self.device = data.mean.device
        self.fixed_shapes = fixed_shapes
        self.keyed = keyed or objective.keyed
        self.part = ranks.part(config.batch)
        self.order = Order(len(data.train), config.seed, config.augment_repeats)
        self.augment = AUGMENT[config.augment](config)
        self.stored = config.image_shape  # of the images to augment
        if self.augment.cuts:
            self.stored = (data.train.pixels.shape[2], data.train.pixels.shape[3])
        self.augments_in_graph = augments_in_graph(self.augment, config.channels * math.prod(self.stored))
        self.augments_before_graph = config.augment != "none" and not self.augments_in_graph
        self.reader: Ahead | None = None
        stored = data.train.pixels
        if isinstance(stored, Stored):
            # A method would form a cycle, which keeps all tensors until a garbage collection.
            indices = partial(rank_indices, self.order, self.part, config.batch)
            self.reader = Ahead(lambda step: stored[indices(step)], config.steps)

    def draw(self, step: int) -> Inputs:
        """Return the inputs of step `step`, counted from 0. Pixels are on the device, other tensors on the CPU."""
        config = self.config
        indices = rank_indices(self.order, self.part, config.batch, step)
        pixels = mixing = None
        if self.reader is not None:
            pixels = self.reader(step)
        if config.mixup or config.cutmix:
            mixing = mixing_choices(config, step, *config.image_shape)
        inputs = Inputs(torch.from_numpy(indices), pixels, self.rng_keys(step, indices), None, mixing)
        return self.draw_augmentation(inputs)

    def rng_keys(self, step: int, indices: Indices) -> RngKeys:
        """Return the random keys (B,), on the CPU, of a step's images `indices` (B,), or None if not needed."""
        config = self.config
        noisy = config.dropout or config.attention_dropout or config.patch_dropout or config.drop_path
        if not (config.augment != "none" or config.random_erasing or noisy or self.keyed):
            return None
        epochs = self.order.epochs(step * config.batch, config.batch)[self.part]
        return image_keys(config.seed, epochs, self.data.train.index[indices])

    def draw_augmentation(self, inputs: Inputs) -> Inputs:
        """Return `inputs` with the augmentation's choices or augmented images, or unchanged without augmentation."""
        if inputs.rng_keys is None or self.config.augment == "none":
            return inputs
        rng_keys = view_keys(inputs.rng_keys, self.objective.views)
        if self.augments_in_graph and isinstance(self.augment, Staged):
            return inputs._replace(choices=self.augment.choices(rng_keys, self.stored))
        on_device = inputs._replace(indices=send(inputs.indices, self.device))
        return inputs._replace(pixels=self.augment(self.pixels(on_device), rng_keys))

    def send(self, inputs: Inputs) -> Inputs:
        return inputs.map(partial(send, device=self.device))

    def prepare(self, inputs: Inputs) -> Batch:
        """Return this rank's batch, augmented, standardized, erased and mixed. inputs: on the device."""
        pixels = inputs.pixels
        if pixels is None or not self.augments_before_graph:
            pixels = self.pixels(inputs)
        if inputs.choices is not None:
            assert isinstance(self.augment, Staged)
            pixels = self.augment.apply(pixels, inputs.choices, self.fixed_shapes)
        labels = self.data.train.labels[inputs.indices]
        images = self.data.standardize(pixels)
        if self.config.random_erasing:
            assert inputs.rng_keys is not None
            rng_keys = view_keys(inputs.rng_keys, self.objective.views)
            images = erase(images, rng_keys, self.config.random_erasing, self.config.random_erasing_fill)
        if self.objective.views > 1:
            images = images.unflatten(0, (-1, self.objective.views))  # (B, V, C, H, W)
        targets = self.objective.targets(pixels, labels, inputs.rng_keys)
        if inputs.mixing is not None:
            images, targets = mixed(images, targets, self.config, inputs.mixing)
        return Batch(images, targets, inputs.rng_keys)

    def pixels(self, inputs: Inputs) -> Tensor:
        """Return the uint8 images (B * views, C, H, W) to augment, uncropped if the augmentation crops."""
        train = self.data.train
        if isinstance(train.pixels, Stored):
            pixels = inputs.pixels
            assert pixels is not None
        else:
            pixels = train.pixels[inputs.indices]
        if not self.augment.cuts:
            pixels = train.evaluation_view(pixels)
        if self.objective.views > 1:
            pixels = pixels.repeat_interleave(self.objective.views, dim=0)
        return pixels


def rank_indices(order: Order, part: Indices, batch: int, step: int) -> Indices:
    """Return the indices of a rank's images in a step. part: their positions in the batch of `batch` images."""
    return order.indices(step * batch, batch)[part]
