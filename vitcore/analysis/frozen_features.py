"""Evals of frozen features: nearest neighbors, a linear probe, and few-shot probes.

Shapes: n or m images, D features, K classes.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, optim

from commonfloor.metrics import ACCURACY
from commonfloor.options import ConfigError
from vitcore.analysis.eval import Computed, Eval, batch_outputs, check_has_features, features, trial_data
from vitcore.data.shuffle import Indices, class_indices
from vitcore.data.splits import Data, Images
from vitcore.model.build import Model
from vitcore.model.pooling import POOLING
from vitcore.model.vit import ViT
from vitcore.settings import Settings

CLASS, MEAN, BOTH = "class", "mean", "both"
CONDITIONS = {"": "", CLASS: " of the class token", MEAN: " of mean patches", BOTH: " of class token and mean patches"}
EPSILON = 1e-5  # added to the standard deviation of each feature

NEIGHBORS = 20
TEMPERATURE = 0.07
MOST = 2**26  # similarities at a time

PENALTIES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # from strong to weak
ITERATIONS = 200  # of L-BFGS at most, for each penalty

SHOTS = (1, 5, 10, 25)  # images per class
DRAWS = 3  # number of random subsets of images over which an accuracy is averaged
L2 = 2.0**10  # penalty on the weights
BIAS = 100.0  # value of a constant feature, so large that the penalty on its weights is negligible


class FeatureEval(Eval):
    """An eval of frozen features: the pre-logits, or with a value the normalized tokens of the last layer."""

    kind: ClassVar[str]  # the eval's name without a value
    values: ClassVar[tuple[str, ...]] = tuple(CONDITIONS)

    @property
    def label_suffix(self) -> str:
        return CONDITIONS[self.value]

    def check(self, config: Settings) -> None:
        name = self.with_value(self.kind)
        if not self.value:
            check_has_features(name, config)
        if self.value and config.model:
            raise ConfigError(f"eval {name}: the tokens of model={config.model} are not known: use {self.kind}")
        if self.value in (CLASS, BOTH) and not POOLING[config.pool].class_token:
            raise ConfigError(f"eval {name}: pool={config.pool} has no class token: use {self.kind}@{MEAN}")

    def features(self, model: Model, data: Data, images: Images) -> Tensor:
        """Return the features (n, D) of n images, or (n, 2D) for both, on the model's device."""
        return batch_outputs(partial(self.features_of_batch, model), model.config, data, images)

    def features_of_batch(self, model: Model, images: Tensor) -> Tensor:
        if not self.value:
            return model.features(images)
        assert isinstance(model, ViT), "`check` takes no other"
        x = normalized_tokens(model, images)
        parts = {CLASS: x[:, 0], MEAN: x[:, model.prefix :].mean(dim=1)}
        if self.value == BOTH:
            return torch.cat([*parts.values()], dim=1)
        return parts[self.value]


def normalized_tokens(model: ViT, images: Tensor) -> Tensor:
    """Return the last layer's tokens (B, T, D) after the encoder's norm, prefix tokens included."""
    last = deque(model.states(images), maxlen=1).pop()
    tokens: Tensor = model.encoder.norm(last)
    return tokens


def standardizer(x: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function that standardizes features by the mean and standard deviation of `x` (n, D)."""
    mean = x.mean(dim=0)
    std = x.std(dim=0, correction=0) + EPSILON
    return lambda features: (features - mean) / std


class Neighbors(FeatureEval):
    """Weighted k-nearest neighbors, as evaluated by DINO (arXiv 2104.14294)."""

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
    """Return the votes (m, K) on features `tested` (m, D) by their nearest of `seen` (n, D) with labels (n,).

    A neighbor of cosine similarity s votes for its class with the weight exp(s / TEMPERATURE).
    """
    seen = F.normalize(seen, dim=1)
    nearest = min(NEIGHBORS, len(seen))
    counted = []
    for some in F.normalize(tested, dim=1).split(max(1, MOST // len(seen))):
        similarity, index = (some @ seen.T).topk(nearest)  # (b, k)
        weights = (similarity / TEMPERATURE).exp()
        counted.append(weights.new_zeros(len(some), classes).scatter_add_(1, labels[index], weights))
    return torch.cat(counted)


class LinearProbe(FeatureEval):
    """Logistic regression, with the penalty that validation chooses."""

    kind = "linear"
    metrics = {"linear_accuracy": {**ACCURACY, "label": "linear accuracy"}}

    def compute(self, model: Model, data_dir: Path | None = None) -> Computed:
        self.check(model.config)
        data = trial_data(model, data_dir)
        if not len(data.val):
            return Computed({}, ["the linear probe needs validation images: val_fraction=0.1"])
        seen, validated, tested = (
            self.features(model, data, images).double() for images in (data.train, data.val, data.test)
        )
        standardized = standardizer(seen)
        layer = LinearClassifier(seen.shape[1], model.config.classes, seen.device)
        penalty, val_accuracy = layer.fit_best(
            standardized(seen),
            data.train.labels,
            lambda: layer.accuracy(standardized(validated), data.val.labels),
        )
        accuracy = layer.accuracy(standardized(tested), data.test.labels)
        details = {"penalty": penalty, "val_accuracy": val_accuracy}
        return Computed({self.with_value("linear_accuracy"): accuracy}, details=details)


class LinearClassifier:
    """A linear classifier of features (n, D) in float64, which starts at zero."""

    def __init__(self, width: int, classes: int, device: torch.device) -> None:
        self.weight = torch.zeros(classes, width, dtype=torch.float64, device=device, requires_grad=True)
        self.bias = torch.zeros(classes, dtype=torch.float64, device=device, requires_grad=True)

    def fit(self, x: Tensor, targets: Tensor, penalty: float) -> None:
        """Minimize mean cross-entropy + penalty / 2 |weight|^2 from the present weights, until gradients vanish."""
        optimizer = optim.LBFGS(
            [self.weight, self.bias],
            max_iter=ITERATIONS,
            tolerance_grad=1e-7,
            tolerance_change=1e-12,
            history_size=20,
            line_search_fn="strong_wolfe",
        )

        def loss() -> Tensor:
            optimizer.zero_grad()
            total = F.cross_entropy(self.scores(x), targets) + penalty / 2 * self.weight.square().sum()
            total.backward()
            return total

        with torch.enable_grad():
            optimizer.step(loss)

    def fit_best(self, x: Tensor, targets: Tensor, val_accuracy: Callable[[], float]) -> tuple[float, float]:
        """Fit with the penalty of the best validation accuracy, of equals the strongest; return both."""
        fits = []
        for penalty in PENALTIES:
            self.fit(x, targets, penalty)
            fits.append((val_accuracy(), penalty, self.weight.detach().clone(), self.bias.detach().clone()))
        accuracy, penalty, self.weight, self.bias = max(fits, key=itemgetter(0))
        return penalty, accuracy

    def scores(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    @torch.no_grad()
    def accuracy(self, x: Tensor, labels: Tensor) -> float:
        return (self.scores(x).argmax(dim=1) == labels).double().mean().item()


class FewShot(Eval):
    """Probes in closed form, fitted to SHOTS random training images per class, as in arXiv 2010.11929."""

    metrics = {f"fewshot{shots}_accuracy": ACCURACY for shots in SHOTS}

    def check(self, config: Settings) -> None:
        check_has_features("fewshot", config)

    def compute(self, model: Model, data_dir: Path | None = None) -> Computed:
        """Return the test accuracies, averaged over draws; the details hold the accuracy of each draw.

        A number is omitted, with a note, if a class has fewer training images. Draws depend only on the data and the
        trial's data seed, so that paired arms share them.
        """
        self.check(model.config)
        data = trial_data(model, data_dir)
        metrics: dict[str, float] = {}
        notes: list[str] = []
        draws: dict[str, list[float]] = {}
        classes = model.config.classes
        labels = data.train.labels.cpu().numpy()
        test_labels = data.test.labels.cpu()
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
                predicted = ridge_scores(seen, support_set.labels.cpu(), tested, classes).argmax(dim=1)
                draws.setdefault(name, []).append((predicted == test_labels).double().mean().item())
            metrics[name] = float(np.mean(draws[name]))
        return Computed(metrics, notes, {"draws": draws})


def ridge_scores(seen: Tensor, labels: Tensor, tested: Tensor, classes: int) -> Tensor:
    """Return the scores (m, K) of features `tested` (m, D) on the CPU, in float64.

    They are those of a ridge regression to {-1, 1} targets, fitted to features `seen` (n, D) with labels (n,).
    """
    standardized = standardizer(seen.double())
    x = with_bias(standardized(seen.double()))  # (n, D + 1)
    targets = 2 * F.one_hot(labels, classes).double() - 1  # (n, K)
    weights = torch.linalg.solve(x.T @ x + L2 * torch.eye(x.shape[1], dtype=x.dtype), x.T @ targets)
    return with_bias(standardized(tested.double())) @ weights


def with_bias(x: Tensor) -> Tensor:
    return F.pad(x, (0, 1), value=BIAS)


def support(labels: Indices, count: int, data_seed: int, draw: int) -> Indices:
    """Return the indices (count * K,) of `count` random images of each of K classes, from labels (n,).

    With the same labels, seed and draw, a smaller count gives a subset.
    """
    groups = class_indices(labels, np.arange(len(labels)), "few-shot", data_seed, draw)
    return np.concatenate([group[:count] for group in groups])
