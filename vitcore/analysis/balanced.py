"""Balanced accuracy: the mean over classes of the share of a class's test images that are classified correctly."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from vitcore.analysis.eval import Computed, Eval, batch_outputs, check_predicts_classes, trial_data
from vitcore.model.build import Model
from vitcore.settings import Settings
from vitcore.training.evaluation import ACCURACY

MOST_CLASSES = 100  # with a confusion matrix in the eval's file


class Balanced(Eval):
    """The details hold the accuracy of each class and, up to MOST_CLASSES, the confusion matrix, a row a true class."""

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
