"""The test images under the corruptions of arXiv 1903.12261. The same images are corrupted alike in every trial."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from vitcore.analysis.corruptions import CORRUPTIONS, STRENGTHS, corrupt
from vitcore.analysis.eval import Computed, Eval, check_predicts_classes, trial_data
from vitcore.data.lookup import describe
from vitcore.data.splits import Data
from vitcore.keyed_random import image_keys
from vitcore.model.build import Model
from vitcore.runtime.device import compute_in_precision
from vitcore.runtime.memory import evaluation_batch
from vitcore.settings import Settings
from vitcore.training.evaluation import ACCURACY

ERROR = {**ACCURACY, "higher_is_better": False, "is_accuracy": False}
ALEXNET_CLASSES = 1000
ALEXNET_SIZE = 224


class Corrupt(Eval):
    """corrupt: the mean over fifteen corruptions in five strengths. corrupt@KIND: that over the strengths of one."""

    metrics = {
        "corrupt_accuracy": {**ACCURACY, "label": "accuracy on corrupted images"},
        "corrupt_error": {**ERROR, "lowest": 0.0, "highest": 1.0, "label": "mean corruption error"},
        "corrupt_normalized_error": {**ERROR, "highest": None, "label": "mean corruption error over AlexNet's"},
    }
    values = ("", "KIND")
    choices = ("", *CORRUPTIONS)
    example = "contrast"

    @classmethod
    def takes(cls, value: str) -> bool:
        return value in cls.choices

    @property
    def label_suffix(self) -> str:
        return f" ({self.value})" if self.value else ""

    def check(self, config: Settings) -> None:
        check_predicts_classes(self.with_value("corrupt"), config)

    def compute(self, model: Model, data_dir: Path | None = None) -> Computed:
        self.check(model.config)
        about = describe(model.config.data, data_dir)
        data = trial_data(model, data_dir).with_levels(about.levels, 256)
        accuracies = {}  # kind -> accuracy at each strength
        for kind in [self.value] if self.value else CORRUPTIONS:
            accuracies[kind] = [accuracy(model, data, about.levels, kind, strength) for strength in STRENGTHS]
        mean = float(np.mean(list(accuracies.values())))
        metrics = {"corrupt_accuracy": mean, "corrupt_error": 1 - mean}
        notes = []
        if is_imagenet(model.config, about.class_names):
            over = [(1 - float(np.mean(accuracies[kind]))) / CORRUPTIONS[kind].alexnet_error for kind in accuracies]
            metrics["corrupt_normalized_error"] = float(np.mean(over))
        else:
            notes.append(
                "AlexNet's errors are of ImageNet's 1,000 classes at 224 pixels, so none is normalized by them"
            )
        named = {self.with_value(name): value for name, value in metrics.items()}
        return Computed(named, notes, {"accuracies": accuracies})


def is_imagenet(config: Settings, class_names: tuple[str, ...]) -> bool:
    """Return whether AlexNet's published errors are of the same classes and size."""
    is_same_size = (len(class_names), config.image_size) == (ALEXNET_CLASSES, ALEXNET_SIZE)
    return is_same_size and class_names[0] == "n01440764"


@torch.no_grad()
def accuracy(model: Model, data: Data, levels: int, kind: str, strength: int) -> float:
    """Return the accuracy on corrupted test images. data: standardizes bytes. levels: possible values of a pixel."""
    size = evaluation_batch(model.config, torch.device("cpu"))  # also on a GPU: a corruption holds many copies
    images = data.test
    right = 0
    for start, pixels in zip(range(0, len(images), size), images.batches(size), strict=True):
        part = slice(start, start + size)
        numbers = images.index[part]
        keys = image_keys(0, np.full(len(numbers), strength), numbers).to(pixels.device)
        in_bytes = (pixels.float() * (255 / (levels - 1))).round().to(torch.uint8)
        standardized = data.standardize(corrupt(in_bytes, kind, strength, keys))
        predicted = compute_in_precision(model.config, model, standardized).argmax(dim=1)
        right += int((predicted == images.labels[part]).sum())
    return right / len(images)
