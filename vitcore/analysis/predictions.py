"""Evals of the predictions on the trial's test images: balanced accuracy, and calibration."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from vitcore.analysis.eval import Computed, Eval, batch_outputs, check_predicts_classes, trial_data
from vitcore.model.build import Model
from vitcore.settings import Settings
from vitcore.training.evaluation import ACCURACY, LOSS

MOST_CLASSES = 100  # with a confusion matrix in the eval's file
BINS = 15  # of confidence, equally wide


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
