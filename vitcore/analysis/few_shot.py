"""Few-shot accuracy: a probe in closed form, fitted to a few images of each class, as in arXiv 2010.11929."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitcore.analysis.eval import Computed, Eval, check_has_features, features, trial_data
from vitcore.data.shuffle import Indices, class_indices
from vitcore.data.splits import Data
from vitcore.model.build import Model
from vitcore.settings import Settings
from vitcore.training.evaluation import ACCURACY

SHOTS = (1, 5, 10, 25)  # images per class
DRAWS = 3  # number of random subsets of images over which an accuracy is averaged
L2 = 2.0**10  # penalty on the weights
BIAS = 100.0  # value of a constant feature, so large that the penalty on its weights is negligible
EPSILON = 1e-5  # added to the standard deviation of each feature


class FewShot(Eval):
    metrics = {f"fewshot{shots}_accuracy": ACCURACY for shots in SHOTS}

    def check(self, config: Settings) -> None:
        check_has_features("fewshot", config)

    def compute(self, model: Model, data_dir: Path | None = None) -> Computed:
        self.check(model.config)
        return few_shot(model, trial_data(model, data_dir))


@dataclass(frozen=True)
class RidgeProbe:
    """A linear classifier on standardized features, in float64."""

    mean: Tensor  # (D,)
    std: Tensor  # (D,)
    weights: Tensor  # (D + 1, K), the last row for the constant feature BIAS

    @classmethod
    def fit(cls, features: Tensor, labels: Tensor, classes: int) -> RidgeProbe:
        """Return a ridge regression to {-1, 1} targets, fitted to features (n, D) and labels (n,) on the CPU."""
        features = features.double()
        mean = features.mean(dim=0)
        std = features.std(dim=0, correction=0) + EPSILON
        x = with_bias((features - mean) / std)  # (n, D + 1)
        targets = 2 * F.one_hot(labels, classes).double() - 1  # (n, K)
        return cls(mean, std, torch.linalg.solve(x.T @ x + L2 * torch.eye(x.shape[1], dtype=x.dtype), x.T @ targets))

    def scores(self, features: Tensor) -> Tensor:
        """Return the scores (n, K) of n images for K classes, from features (n, D) on the CPU."""
        return with_bias((features.double() - self.mean) / self.std) @ self.weights


def with_bias(x: Tensor) -> Tensor:
    return F.pad(x, (0, 1), value=BIAS)


def few_shot(model: Model, data: Data) -> Computed:
    """Return the test accuracy of probes fitted to SHOTS random training images per class, averaged over draws.

    The details hold the accuracy of each draw. A number is omitted, with a note, if a class has fewer training images.
    The images for a smaller number are a subset of those for a larger one. Draws depend only on the data and the
    trial's data seed, so that paired arms share them. data: on the model's device, as from `trial_data`.
    """
    metrics: dict[str, float] = {}
    notes: list[str] = []
    draws: dict[str, list[float]] = {}
    classes = model.config.classes
    labels = data.train.labels.cpu().numpy()
    scarcest = np.bincount(labels, minlength=classes)
    tested = features(model, data, data.test)  # (n, D)
    for count in SHOTS:
        name = f"fewshot{count}_accuracy"
        if scarcest.min() < count:
            notes.append(f"{name} is left out: class {scarcest.argmin()} has {scarcest.min()} training images")
            continue
        for draw in range(DRAWS):
            support_set = data.train.select(support(labels, count, model.config.data_seed, draw))
            seen = features(model, data, support_set)  # (count * K, D)
            probe = RidgeProbe.fit(seen, support_set.labels.cpu(), classes)
            right = probe.scores(tested).argmax(dim=1) == data.test.labels.cpu()
            draws.setdefault(name, []).append(right.double().mean().item())
        metrics[name] = float(np.mean(draws[name]))
    return Computed(metrics, notes, {"draws": draws})


def support(labels: Indices, count: int, data_seed: int, draw: int) -> Indices:
    """Return the indices (count * K,) of `count` random images of each of K classes, from labels (n,)."""
    groups = class_indices(labels, np.arange(len(labels)), "few-shot", data_seed, draw)
    return np.concatenate([group[:count] for group in groups])
