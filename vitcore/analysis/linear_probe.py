"""A linear probe: logistic regression on frozen features, with the penalty that validation chooses."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, optim

from vitcore.analysis.eval import Computed, trial_data
from vitcore.analysis.few_shot import EPSILON
from vitcore.analysis.token_features import FeatureEval
from vitcore.model.build import Model
from vitcore.training.evaluation import ACCURACY

PENALTIES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # from strong to weak
ITERATIONS = 200  # of L-BFGS at most, for each penalty


class LinearProbe(FeatureEval):
    kind = "linear"
    metrics = {"linear_accuracy": {**ACCURACY, "label": "linear accuracy"}}

    def compute(self, model: Model, data_dir: Path | None = None) -> Computed:
        """See Eval. Of penalties with equal accuracy on validation images, the strongest is chosen."""
        self.check(model.config)
        data = trial_data(model, data_dir)
        if not len(data.val):
            return Computed({}, ["the linear probe needs validation images: val_fraction=0.1"])
        seen = self.features(model, data, data.train).double()  # (n, D)
        mean = seen.mean(dim=0)
        std = seen.std(dim=0, correction=0) + EPSILON
        layer = LinearClassifier(seen.shape[1], model.config.classes, seen.device)
        best = -1.0
        accuracy = 0.0
        chosen = PENALTIES[0]
        validated = (self.features(model, data, data.val).double() - mean) / std
        tested = (self.features(model, data, data.test).double() - mean) / std
        for penalty in PENALTIES:
            layer.fit((seen - mean) / std, data.train.labels, penalty)
            on_validation = layer.accuracy(validated, data.val.labels)
            if on_validation > best:
                best = on_validation
                chosen = penalty
                accuracy = layer.accuracy(tested, data.test.labels)
        return Computed(
            {self.with_value("linear_accuracy"): accuracy}, details={"penalty": chosen, "val_accuracy": best}
        )


class LinearClassifier:
    """A linear classifier of features (n, D) in float64, which starts at zero."""

    def __init__(self, width: int, classes: int, device: torch.device) -> None:
        self.weight = torch.zeros(classes, width, dtype=torch.float64, device=device, requires_grad=True)
        self.bias = torch.zeros(classes, dtype=torch.float64, device=device, requires_grad=True)

    def fit(self, x: Tensor, labels: Tensor, penalty: float) -> None:
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
            total = F.cross_entropy(self.scores(x), labels) + penalty / 2 * self.weight.square().sum()
            total.backward()
            return total

        with torch.enable_grad():
            optimizer.step(loss)

    def scores(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    @torch.no_grad()
    def accuracy(self, x: Tensor, labels: Tensor) -> float:
        return (self.scores(x).argmax(dim=1) == labels).double().mean().item()
