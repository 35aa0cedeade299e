"""The auxiliary losses that docs/how-to/objectives.md shows, against loops by hand."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import page_examples
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from trainings import advanced, tiny

from vitcore import Config, train
from vitcore.contracts import contracts
from vitcore.model.mlp import MLP
from vitcore.training.objectives import OBJECTIVE
from vitcore.training.run import Memory

PAGE = Path(__file__).parents[3] / "docs/how-to/objectives.md"


@pytest.fixture(autouse=True)
def of_the_page() -> Iterator[None]:
    """Add the page's objectives and its MLP for a test."""
    with patch.dict(MLP), patch.dict(OBJECTIVE):
        for example in page_examples.examples(PAGE.read_text()):
            if example.file.endswith(".py"):
                exec(compile(example.text, example.file, "exec"), {"__name__": example.file})
        yield


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_koleo_is_the_log_distance_to_the_nearest() -> None:
    """By brute force over all pairs of a batch."""
    objective = OBJECTIVE["koleo"](tiny(objective="koleo", **{"objective.koleo": 0.3}))
    logits, features, labels = numbers(7, 10), numbers(7, 5), torch.arange(7)
    unit = features.numpy() / np.linalg.norm(features.numpy(), axis=1, keepdims=True)
    nearest = [min(np.linalg.norm(unit[i] - unit[j]) for j in range(7) if j != i) for i in range(7)]
    wanted = F.cross_entropy(logits, labels).item() - 0.3 * np.log(nearest).mean()
    assert objective.loss((logits, features), labels).item() == pytest.approx(wanted, abs=1e-6)


def test_comparing_objective_refuses_parts_of_a_batch() -> None:
    with pytest.raises(ValueError, match="micro_batch=5: objective=koleo needs the whole batch at once"):
        tiny(objective="koleo", micro_batch=5)
    with pytest.raises(ValueError, match="gpus=2: objective=koleo compares the images of a batch: must be 1"):
        tiny(objective="koleo", gpus=2, device="cpu")
    assert advanced(tiny(objective="koleo")).train_step.indivisible.startswith("objective=koleo needs the whole batch")


def test_objective_with_its_own_model_refuses_another() -> None:
    with pytest.raises(ValueError, match="model=timm/test_vit: objective=koleo works only with this package's ViT"):
        Config(objective="koleo", model="timm/test_vit", image_size=160)
    with pytest.raises(ValueError, match=r"objective\.token=True: objective=koleo has its own model"):
        tiny(objective="koleo", **{"objective.token": True})


def test_experts_are_the_chosen_mlps() -> None:
    """By a loop over tokens: the chosen expert's MLP alone, times its probability."""
    config = tiny(mlp="experts", **{"mlp.experts": 3, "mlp.hidden": 4})
    mlp, x = MLP["experts"](config, 0).double(), numbers(2, 5, 16)
    for parameter in mlp.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    found = mlp(x)
    for image, token in product(range(2), range(5)):
        one = x[image, token]
        probabilities = (mlp.router.weight @ one).softmax(dim=0)
        expert = int(probabilities.argmax())
        rows = slice(4 * expert, 4 * expert + 4)
        hidden = F.gelu(mlp.up.weight[rows] @ one + mlp.up.bias[rows])
        wanted = probabilities[expert] * (mlp.down.weight[:, rows] @ hidden) + mlp.down.bias
        assert torch.allclose(found[image, token], wanted, atol=1e-12)
        assert torch.equal(mlp.routing[image, token], (mlp.router(x)).softmax(dim=2)[image, token])


def test_balance_is_that_of_switch_transformers_for_each_image() -> None:
    """E times the sum over experts of the fraction of tokens and the mean probability: at least 1, if even."""
    objective = OBJECTIVE["balanced"](tiny(objective="balanced", mlp="experts", **{"objective.balance": 0.5}))
    logits, routing, labels = numbers(3, 10), numbers(3, 8, 4).softmax(dim=2), torch.arange(3)
    balances = []
    for image in routing.numpy():
        fractions = [np.mean(image.argmax(axis=1) == expert) for expert in range(4)]
        balances.append(4 * sum(f * p for f, p in zip(fractions, image.mean(axis=0), strict=True)))
    wanted = F.cross_entropy(logits, labels).item() + 0.5 * np.mean(balances)
    assert objective.loss((logits, routing), labels).item() == pytest.approx(wanted, abs=1e-12)


def test_balancing_evens_the_load() -> None:
    """Trained with and without the loss, from the same values on the same images."""
    loads = []
    for balance in (0.0, 1.0):
        settings = {"objective": "balanced", "mlp": "experts", "steps": 60, "batch": 32, "lr": 5e-3}
        training = advanced(tiny(**settings, **{"objective.balance": balance}), 60)
        (routing,) = training.model(training.batch().images)[1:]
        loads.append(torch.bincount(routing.argmax(dim=2).flatten(), minlength=4).double().var().item())
    assert loads[1] < 0.5 * loads[0]


@pytest.mark.parametrize(("slot", "name"), [("objective", "koleo"), ("objective", "balanced"), ("mlp", "experts")])
def test_page_keeps_its_contracts(slot: str, name: str) -> None:
    """All but the two that compile, which `ablate check` runs in the page's own test."""
    for what, check in contracts(slot, name):
        if what not in ("is unchanged by compile", "exports"):
            check(slot, name)


def test_evaluation_sees_logits() -> None:
    run = Memory()
    train(tiny(objective="balanced", mlp="experts", steps=2), run)
    assert run.correct is not None
