"""Poolings against naive loops and closed forms; the tests of conversion compare `map` and the norms with timm's."""

from typing import Any

import pytest
import torch
from torch import nn

from vitcore import Config, ViT
from vitcore.contracts import perturbed
from vitcore.model.position import Context

SMALL: dict[str, Any] = {"image_size": 32, "channels": 3, "patch": 8, "width": 48, "depth": 3, "heads": 3}


@torch.no_grad()
def test_gem_is_the_generalised_mean() -> None:
    """(mean max(x, 1e-6)^p)^(1/p); 3 at the start; near the maximum for a large p."""
    pool = ViT(Config(pool="gem", **SMALL)).double().pool
    assert pool.p.tolist() == [3.0]
    x = torch.randn(2, 16, 48, dtype=torch.float64)
    torch.testing.assert_close(pool(x, 0), (x.clamp(min=1e-6) ** 3).mean(dim=1) ** (1 / 3))
    pool.p.fill_(1.0)
    torch.testing.assert_close(pool(x, 0), x.clamp(min=1e-6).mean(dim=1))
    pool.p.fill_(1000.0)
    torch.testing.assert_close(pool(x, 0), x.amax(dim=1).clamp(min=1e-6), rtol=0.01, atol=0)


def test_gem_of_nothing_positive_is_no_nan() -> None:
    """In float32 its value and gradients stay finite where every token is negative and p is large."""
    pool = ViT(Config(pool="gem", **SMALL)).pool
    nn.init.constant_(pool.p, 12.0)
    x = -torch.rand(2, 16, 48, requires_grad=True)
    pooled = pool(x, 0)
    pooled.sum().backward()
    torch.testing.assert_close(pooled, torch.full((2, 48), 1e-6))
    assert pool.p.grad.isfinite().all()


@pytest.mark.parametrize("final_norm", ["before", "after"])
@torch.no_grad()
def test_layers_mix_the_class_token_of_every_layer(final_norm: str) -> None:
    """Softmax weights over the outputs of the blocks, normed before or after, from a loop over the blocks."""
    model = perturbed(Config(pool="layers", final_norm=final_norm, **SMALL))
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    weights = model.pool.logits.softmax(dim=0)
    assert len(weights) == len(weights.unique()) == 3
    context = Context(model.position, (4, 4), prefix=1)
    x, expected = model.embed(images, context), torch.zeros(2, 48, dtype=torch.float64)
    for layer, block in enumerate(model.encoder.blocks):
        x = block(x, context)
        expected += weights[layer] * (model.encoder.norm(x) if final_norm == "before" else x)[:, 0]
    if final_norm == "after":
        expected = model.encoder.norm(expected)
    torch.testing.assert_close(model.pooled(images), expected)
