"""Evals of frozen features and of test predictions, against scikit-learn and loops from the definitions."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, confusion_matrix
from sklearn.neighbors import KNeighborsClassifier

from vitcore.analysis.evals import EVAL, find
from vitcore.analysis.frozen_features import NEIGHBORS, TEMPERATURE, LinearClassifier, votes
from vitcore.analysis.predictions import BINS, brier_score, calibration_error
from vitcore.config import Config
from vitcore.contracts import contracts
from vitcore.data.splits import load
from vitcore.model.vit import ViT

TINY = {"width": 16, "depth": 1, "heads": 2, "patch": 2}


def sample(n: int, width: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features (n, width) with some structure by class, and labels (n,)."""
    generator = torch.Generator().manual_seed(n)
    labels = torch.randint(classes, (n,), generator=generator)
    return torch.randn(n, width, generator=generator, dtype=torch.float64) + torch.eye(classes, width)[labels], labels


@pytest.mark.parametrize("name", EVAL)
def test_an_eval_keeps_its_contracts(name: str) -> None:
    for _, contract in contracts("eval", name):
        contract("eval", name)


@pytest.mark.parametrize("n", [200, 7])
def test_votes_of_neighbors_equal_scikit_learn(n: int) -> None:
    """Also with fewer training images than neighbors."""
    seen, labels = sample(n, 8, 4)
    tested, _ = sample(50, 8, 4)
    unit, unit_tested = (x.numpy() / np.linalg.norm(x.numpy(), axis=1, keepdims=True) for x in (seen, tested))
    theirs = KNeighborsClassifier(
        min(NEIGHBORS, n), metric="euclidean", weights=lambda distance: np.exp((1 - distance**2 / 2) / TEMPERATURE)
    ).fit(unit, labels)
    ours = votes(seen, labels, tested, 4)
    shares = (ours / ours.sum(dim=1, keepdim=True)).numpy()[:, theirs.classes_]
    np.testing.assert_allclose(shares, theirs.predict_proba(unit_tested), atol=1e-10)


@pytest.mark.parametrize("penalty", [1.0, 1e-3])
def test_a_linear_probe_equals_scikit_learn(penalty: float) -> None:
    """The bias has no penalty. Their objective is ours times n / penalty."""
    x, labels = sample(300, 8, 4)
    layer = LinearClassifier(8, 4, x.device)
    layer.fit(x, labels, 10 * penalty)  # an earlier penalty leaves no trace
    layer.fit(x, labels, penalty)
    theirs = LogisticRegression(C=1 / (penalty * len(x)), tol=1e-10, max_iter=10_000).fit(x.numpy(), labels.numpy())
    np.testing.assert_allclose(layer.weight.detach().numpy(), theirs.coef_, atol=1e-5)


def test_calibration_and_brier_score_follow_their_definitions() -> None:
    scores, labels = sample(500, 5, 5)
    probabilities = (2 * scores).softmax(dim=1)
    error = brier = 0.0
    for bin_ in range(BINS):
        inside = []
        for row, label in zip(probabilities.numpy(), labels.numpy(), strict=True):
            if bin_ / BINS < row.max() <= (bin_ + 1) / BINS:
                inside.append((float(row.argmax() == label), row.max()))
        if inside:
            accuracy, confidence = np.mean(inside, axis=0)
            error += len(inside) / len(labels) * abs(accuracy - confidence)
    for row, label in zip(probabilities.numpy(), labels.numpy(), strict=True):
        brier += sum((row[k] - float(k == label)) ** 2 for k in range(5)) / len(labels)
    assert calibration_error(probabilities, labels) == pytest.approx(error, abs=1e-12)
    assert brier_score(probabilities, labels) == pytest.approx(brier)


def test_balanced_accuracy_and_confusions_equal_scikit_learn() -> None:
    model = ViT(Config(pool="gap", **TINY)).eval()
    data = load(model.config)
    found = EVAL["balanced"]().compute(model)
    with torch.no_grad():
        predicted = model(data.standardize(data.test.pixels)).argmax(dim=1)
    assert found.metrics["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(data.test.labels, predicted))
    assert found.details["confusion_matrix"] == confusion_matrix(data.test.labels, predicted).tolist()


def test_features_are_the_class_token_mean_patches_or_both() -> None:
    """With the class token pooled, its features are those that the head reads."""
    model = ViT(Config(pool="cls", registers=2, **TINY)).eval()
    data = load(model.config)
    images = data.test.select(slice(5))
    found = {value: EVAL["knn"](value).features(model, data, images) for value in EVAL["knn"].values}  # type: ignore[attr-defined]
    with torch.no_grad():
        tokens = [*model.states(data.standardize(images.pixels))][-1]
    torch.testing.assert_close(found[""], found["class"])
    torch.testing.assert_close(found["mean"], model.encoder.norm(tokens)[:, 3:].mean(dim=1))
    torch.testing.assert_close(found["both"], torch.cat([found["class"], found["mean"]], dim=1))


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("knn@class", {"pool": "gap"}, "eval knn@class: pool=gap has no class token: use knn@mean"),
        (
            "linear@mean",
            {"model": "timm/resnet18", "image_size": 32},
            "eval linear@mean: the tokens of model=timm/resnet18 are not known: use linear",
        ),
        ("calibration", {"objective": "mae"}, "eval calibration: objective=mae gives images no class"),
        ("balanced", {"objective": "mae"}, "eval balanced: objective=mae gives images no class"),
    ],
)
def test_an_eval_that_does_not_apply_is_refused(name: str, config: dict[str, object], said: str) -> None:
    own = {} if "model" in config else {"pool": "gap", **TINY}
    with pytest.raises(ValueError, match=r"\w") as refusal:
        find(name).check(Config(**own | config))
    assert said in str(refusal.value)
