"""The metrics of a training run, computed at each evaluation and in the final test.

To add a metric, compute it in `measured` and declare it in METRICS. Objectives compute loss and
correctness in `scores`.
"""

import math
from collections.abc import Iterable
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor

from commonfloor.metrics import ACCURACY, LOSS
from vitcore.data.splits import Images
from vitcore.keyed_random import RngKeys
from vitcore.runtime.device import send
from vitcore.runtime.memory import call_shrinking
from vitcore.settings import Settings
from vitcore.training.run import Metrics
from vitcore.training.schedules import learning_rate
from vitcore.training.state import DivergedError, Training

Correctness = np.ndarray[Any, Any]
NOT_METRICS = ("step", "epoch", "images", "seconds", "lr")  # what else a line of metrics holds: how far training is
METRICS = {  # of a finished trial; `evaluate` measures those that are not of the test images
    "test_accuracy": ACCURACY,
    "test_loss": LOSS,
    "val_accuracy": ACCURACY,
    "val_loss": LOSS,
    "train_loss": LOSS,
}


def evaluate(training: Training) -> Metrics:
    """Return a line of metrics: progress, learning rate, `val_*` of the validation images, and `train_loss`.

    `train_loss` is the mean since the last evaluation; this call starts its next interval. Raises DivergedError if a
    loss since then, or the validation loss, is not finite.
    """
    with training.off_the_clock():
        losses = training.finite_losses()
        loss, correct = score(training, training.data.val)
        if not math.isfinite(loss):
            raise DivergedError(training.step)
        training.since = 0
    images = training.step * training.config.batch
    return {
        "step": training.step,
        "epoch": images / len(training.data.train),
        "images": images,
        "seconds": training.seconds,
        "train_loss": losses.mean().item(),
        **measured("val", loss, correct),
        "lr": learning_rate(training.step - 1, training.config),
    }


def final_metrics(training: Training, line: Metrics) -> tuple[Metrics, Correctness]:
    """Return (metrics, correctness (n,) of each test image from 0 to 1). line: the metrics of the last evaluation."""
    with training.off_the_clock():
        loss, correct = score(training, training.data.test)
    validated = {name: value for name, value in line.items() if name not in NOT_METRICS}
    return measured("test", loss, correct) | validated, correct


def measured(part: str, loss: float, correct: Correctness) -> Metrics:
    """Return the metrics of a part of the data, "val" or "test". To measure something else, add it here."""
    return {f"{part}_loss": loss, f"{part}_accuracy": correct.mean().item()}


@torch.no_grad()
def score(training: Training, images: Images) -> tuple[float, Correctness]:
    """Return (mean loss, correctness (n,) of each image from 0 to 1). Averaged weights are used if they exist."""
    ranks = training.ranks
    work = partial(answer, training, images.select(ranks.evaluated(len(images))))
    training.model.eval()
    with training.averaged():
        (given, targets), training.evaluation_batch = call_shrinking(work, training.evaluation_batch)
    training.model.train()
    loss, correct = training.objective.scores(ranks.gather(given, len(images)), ranks.gather(targets, len(images)))
    return loss, correct.cpu().numpy()


def answer(training: Training, images: Images, size: int) -> tuple[Tensor, Tensor]:
    """Return (answers, targets) as `objective.scores` needs them, computed for `size` images at a time."""
    objective = training.objective
    keys = objective.keys(images.index)
    batches_of_keys: Iterable[RngKeys] = repeat(None)
    if keys is not None:
        batches_of_keys = send(keys, training.device).split(size)
    answered, remembered = list[Tensor](), list[Tensor]()
    for pixels, labels, keys in zip(images.batches(size), images.labels.split(size), batches_of_keys, strict=False):
        targets = objective.targets(pixels, labels, keys)
        logits = training.forward(training.data.standardize(pixels), keys)
        answered.append(objective.answers(logits, targets))
        remembered.append(objective.remembered(targets))
    return torch.cat(answered), torch.cat(remembered)


def evaluation_steps(config: Settings) -> list[int]:
    """Return the steps after which to evaluate, evenly spaced and including the last step."""
    count = min(config.evaluations, config.steps)
    return [round(config.steps * (i + 1) / count) for i in range(count)]
