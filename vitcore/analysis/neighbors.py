"""Weighted k-nearest neighbors on frozen features, as evaluated by DINO (arXiv 2104.14294)."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from vitcore.analysis.eval import Computed, trial_data
from vitcore.analysis.token_features import FeatureEval
from vitcore.model.build import Model
from vitcore.training.evaluation import ACCURACY

NEIGHBORS = 20
TEMPERATURE = 0.07
MOST = 2**26  # similarities at a time


class Neighbors(FeatureEval):
    kind = "knn"
    metrics = {"knn_accuracy": {**ACCURACY, "label": "k-NN accuracy"}}

    def compute(self, model: Model, data_dir: Path | None = None) -> Computed:
        self.check(model.config)
        data = trial_data(model, data_dir)
        seen = self.features(model, data, data.train)
        tested = self.features(model, data, data.test)
        predicted = votes(seen, data.train.labels, tested, model.config.classes).argmax(dim=1)
        accuracy = (predicted == data.test.labels).double().mean().item()
        return Computed({self.with_value("knn_accuracy"): accuracy})


def votes(seen: Tensor, labels: Tensor, tested: Tensor, classes: int) -> Tensor:
    """Return the votes (m, classes) for m images by their nearest of n training images.

    A neighbor of cosine similarity s votes for its class with the weight exp(s / TEMPERATURE). seen: features (n, D) of
    the training images, with labels (n,). tested: features (m, D).
    """
    seen = F.normalize(seen, dim=1)
    nearest = min(NEIGHBORS, len(seen))
    counted = []
    for some in F.normalize(tested, dim=1).split(max(1, MOST // len(seen))):
        similarity, index = (some @ seen.T).topk(nearest)  # (b, k)
        weights = (similarity / TEMPERATURE).exp()
        counted.append(weights.new_zeros(len(some), classes).scatter_add_(1, labels[index], weights))
    return torch.cat(counted)
