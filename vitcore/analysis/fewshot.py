"""The few-shot probe, a linear classifier that is fitted to frozen features of a few images per class.

The probe solves regularized least squares for {-1, 1}^K targets in closed form (arXiv 2010.11929, section 4.1). The
constants come from the authors' evaluator (google-research/big_vision, evaluators/fewshot_lsr.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitcore.analysis.restore import batch_outputs
from vitcore.data.shuffle import Indices, class_indices
from vitcore.data.splits import Data, Images
from vitcore.model.build import Model

SHOTS = (1, 5, 10, 25)  # images per class
DRAWS = 3  # number of random subsets of images over which an accuracy is averaged
L2 = 2.0**10  # penalty on the weights
BIAS = 100.0  # value of a constant feature, so large that the penalty on its weights is negligible
EPSILON = 1e-5  # added to the standard deviation of each feature


@dataclass(frozen=True)
class Probe:
    """A linear classifier on standardized features, in float64."""

    mean: Tensor  # (D,)
    std: Tensor  # (D,)
    weights: Tensor  # (D + 1, K), the last row for the constant feature BIAS

    @classmethod
    def fit(cls, features: Tensor, labels: Tensor, classes: int) -> Probe:
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


@dataclass(frozen=True)
class FewShot:
    metrics: dict[str, float] = field(default_factory=dict)  # fewshotK_accuracy for K images per class, mean over draws
    draws: dict[str, list[float]] = field(default_factory=dict)  # metric -> accuracy of each draw
    notes: list[str] = field(default_factory=list)  # a sentence for each omitted metric, with the reason


def few_shot(model: Model, data: Data) -> FewShot:
    """Return the test accuracy of probes fitted to SHOTS random training images per class, averaged over draws.

    A number is omitted, with a note, if a class has fewer training images. The images for a smaller number are a subset
    of those for a larger one. Draws depend only on the data and the trial's data seed, so that paired arms share them.
    data: on the model's device, as from `trial_data`.
    """
    results = FewShot()
    classes = model.config.classes
    labels = data.train.labels.cpu().numpy()
    scarcest = np.bincount(labels, minlength=classes)
    tested = features(model, data, data.test)  # (n, D)
    for count in SHOTS:
        name = f"fewshot{count}_accuracy"
        if scarcest.min() < count:
            results.notes.append(f"{name} is left out: class {scarcest.argmin()} has {scarcest.min()} training images")
            continue
        for draw in range(DRAWS):
            support_set = data.train.select(support(labels, count, model.config.data_seed, draw))
            seen = features(model, data, support_set)  # (count * K, D)
            probe = Probe.fit(seen, support_set.labels.cpu(), classes)
            right = probe.scores(tested).argmax(dim=1) == data.test.labels.cpu()
            results.draws.setdefault(name, []).append(right.double().mean().item())
        results.metrics[name] = float(np.mean(results.draws[name]))
    return results


def support(labels: Indices, count: int, data_seed: int, draw: int) -> Indices:
    """Return the indices (count * K,) of `count` random images of each of K classes, from labels (n,)."""
    groups = class_indices(labels, np.arange(len(labels)), "few-shot", data_seed, draw)
    return np.concatenate([group[:count] for group in groups])


def features(model: Model, data: Data, images: Images) -> Tensor:
    """Return the pre-logits (n, D) of n images, the inputs of the head's last layer, on the CPU."""
    return batch_outputs(model.features, model.config, data, images).cpu()
