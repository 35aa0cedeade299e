"""The few-shot probe against the normal equations of big_vision's evaluator, solved by NumPy."""

from collections import Counter

import numpy as np
import pytest
import torch

from vitcore.analysis.eval import features, trial_data
from vitcore.analysis.evals import find
from vitcore.analysis.frozen_features import DRAWS, ridge_scores, support
from vitcore.config import Config
from vitcore.data.splits import load
from vitcore.model.vit import ViT

TINY = {"width": 16, "depth": 1, "heads": 2, "patch": 2, "pool": "gap"}


def sample(n: int, width: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(n, width, generator=generator, dtype=torch.float64) * 3 + 1
    return x, torch.arange(n) % classes


def direct(x: np.ndarray, labels: np.ndarray, classes: int, tests: np.ndarray) -> np.ndarray:
    """Return the scores (m, K) from the normal equations, with the constants of the evaluator's source."""
    mean, std = x.mean(axis=0), x.std(axis=0) + 1e-5

    def whiten(values: np.ndarray) -> np.ndarray:
        return np.pad((values - mean) / std, ((0, 0), (0, 1)), constant_values=100.0)

    targets = 2.0 * np.eye(classes)[labels] - 1.0
    gram = whiten(x).T @ whiten(x) + 2.0**10 * np.eye(x.shape[1] + 1)
    return whiten(tests) @ np.linalg.solve(gram, whiten(x).T @ targets)


@pytest.mark.parametrize(("n", "width"), [(60, 8), (20, 8), (9, 9), (10, 64)])
def test_probe_equals_a_direct_solve(n: int, width: int) -> None:
    """For more and for fewer images than features, one of which is constant."""
    x, labels = sample(n, width, 5)
    x[:, 2] = 5.0
    tests, _ = sample(33, width, 5)
    expected = direct(x.numpy(), labels.numpy(), 5, tests.numpy())
    np.testing.assert_allclose(ridge_scores(x, labels, tests, 5), expected, rtol=1e-8, atol=1e-10)


def test_support_is_balanced_nested_and_a_function_of_seed_and_draw() -> None:
    labels = np.repeat(np.arange(7), 40)
    five, ten = support(labels, 5, 0, 0), support(labels, 10, 0, 0)
    assert Counter(labels[ten].tolist()) == dict.fromkeys(range(7), 10)
    assert set(five) < set(ten)
    np.testing.assert_array_equal(five, support(labels, 5, 0, 0))
    assert set(five) != set(support(labels, 5, 0, 1))
    assert set(five) != set(support(labels, 5, 1, 0))


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_features_are_the_pre_logits(head: str) -> None:
    """The last layer, applied to the features, gives the model's logits."""
    model = ViT(Config(head=head, head_init="lecun-normal", **TINY)).eval()
    data = load(model.config)
    logits = features(model, data, data.test.select(slice(8))) @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(logits, model(data.standardize(data.test.pixels[:8])))


def test_accuracy_is_that_of_a_direct_solve() -> None:
    model = ViT(Config(data="digits", data_seed=3, **TINY)).eval()
    data = trial_data(model)
    found = find("fewshot").compute(model)
    tests = features(model, data, data.test).double().numpy()
    accuracies = found.details["draws"]["fewshot5_accuracy"]
    assert len(accuracies) == DRAWS
    for draw, accuracy in enumerate(accuracies):
        chosen = data.train.select(support(data.train.labels.numpy(), 5, 3, draw))
        scores = direct(features(model, data, chosen).double().numpy(), chosen.labels.numpy(), 10, tests)
        assert accuracy == pytest.approx((scores.argmax(axis=1) == data.test.labels.numpy()).mean())
    assert found.metrics["fewshot5_accuracy"] == pytest.approx(np.mean(accuracies))


def test_shots_that_a_class_does_not_have_are_left_out_by_name() -> None:
    """A tenth of digits, about 13 training images per class, has no 25 shots, which a note says."""
    model = ViT(Config(data="digits", data_fraction=0.1, **TINY)).eval()
    found = find("fewshot").compute(model)
    assert list(found.metrics) == ["fewshot1_accuracy", "fewshot5_accuracy", "fewshot10_accuracy"]
    (note,) = found.notes
    assert note.startswith("fewshot25_accuracy is left out: class ")
    assert note.endswith(" training images")
