"""Evals of the predictions on the trial's test images, as they are or corrupted as in arXiv 1903.12261."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from commonfloor.metrics import ACCURACY, LOSS
from vitcore.analysis.corruptions import CORRUPTIONS, STRENGTHS, corrupt
from vitcore.analysis.eval import Computed, Eval, batch_outputs, check_predicts_classes, trial_data
from vitcore.data.lookup import describe
from vitcore.data.splits import Data
from vitcore.keyed_random import image_keys
from vitcore.model.build import Model
from vitcore.runtime.device import compute_in_precision
from vitcore.runtime.memory import evaluation_batch
from vitcore.settings import Settings

MOST_CLASSES = 100  # with a confusion matrix in the eval's file
BINS = 15  # of confidence, equally wide
ERROR = {**ACCURACY, "higher_is_better": False, "is_accuracy": False}
ALEXNET_CLASSES = 1000
ALEXNET_SIZE = 224


class Balanced(Eval):
    """The mean over classes of the share of a class's images that are classified correctly.

    The details hold the accuracy of each class and, up to MOST_CLASSES, the confusion matrix, a row a true class.
    """

    metrics = {"balanced_accuracy": ACCURACY}

    def check(self, config: Settings) -> None:
        check_predicts_classes("balanced", config)

    def compute(self, model: Model, data_dir: Path | None = None) -> Computed:
        self.check(model.config)
        data = trial_data(model, data_dir)
        predicted = batch_outputs(model, model.config, data, data.test).argmax(dim=1)
        matrix = confusion_matrix(data.test.labels, predicted, model.config.classes)
        tested = matrix.sum(dim=1)
        present = tested > 0
        recall = matrix.diagonal()[present].double() / tested[present]
        of_classes = dict(zip(present.nonzero().flatten().tolist(), recall.tolist(), strict=True))
        details: dict[str, object] = {"class_accuracy": of_classes}
        if model.config.classes <= MOST_CLASSES:
            details["confusion_matrix"] = matrix.tolist()
        return Computed({"balanced_accuracy": recall.mean().item()}, details=details)


def confusion_matrix(labels: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """Return the number of images (classes, classes) by true class (row) and predicted class (column)."""
    cells = labels * classes + predicted
    return torch.bincount(cells, minlength=classes**2).view(classes, classes)


class Calibration(Eval):
    """Whether the predicted probabilities are as large as they are often right."""

    metrics = {
        "calibration_error": {**LOSS, "lowest": 0.0, "highest": 1.0, "label": "expected calibration error"},
        "calibration_brier_score": {**LOSS, "lowest": 0.0, "highest": 2.0, "label": "Brier score"},
    }

    def check(self, config: Settings) -> None:
        check_predicts_classes("calibration", config)

    def compute(self, model: Model, data_dir: Path | None = None) -> Computed:
        self.check(model.config)
        data = trial_data(model, data_dir)
        logits = batch_outputs(model, model.config, data, data.test)  # (n, classes)
        probabilities = logits.double().softmax(dim=1)
        error = calibration_error(probabilities, data.test.labels)
        score = brier_score(probabilities, data.test.labels)
        return Computed({"calibration_error": error, "calibration_brier_score": score})


def calibration_error(probabilities: Tensor, labels: Tensor) -> float:
    """Return the expected calibration error of arXiv 1706.04599 (equation 5) for probabilities (n, classes)."""
    confidence, predicted = probabilities.max(dim=1)
    right = (predicted == labels).double()
    # Bin m holds confidences in ((m - 1) / BINS, m / BINS].
    edges = torch.arange(1, BINS, dtype=confidence.dtype, device=confidence.device) / BINS
    index = torch.bucketize(confidence, edges)  # (n,)
    gaps = torch.zeros(BINS, dtype=confidence.dtype, device=confidence.device).index_add_(0, index, right - confidence)
    return (gaps.abs().sum() / len(labels)).item()


def brier_score(probabilities: Tensor, labels: Tensor) -> float:
    """Return the mean squared distance of probabilities (n, classes) from the one-hot labels, from 0 to 2."""
    right = F.one_hot(labels, probabilities.shape[1])
    return (probabilities - right).square().sum(dim=1).mean().item()


class Corrupt(Eval):
    """corrupt: the mean over fifteen corruptions in five strengths. corrupt@KIND: that over the strengths of one.

    The same images are corrupted alike in every trial.
    """

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
