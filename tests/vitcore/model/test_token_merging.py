"""Token merging against loops from arXiv 2210.09461: what merges, its average, and how attention counts it."""

import math
from functools import partial
from typing import Any

import pytest
import torch
import trainings
from torch import Tensor

from vitcore import train
from vitcore.analysis.cost import measure
from vitcore.analysis.evals import inspect_eval, merge_eval
from vitcore.analysis.restore import restore_model
from vitcore.contracts import perturbed
from vitcore.data.splits import load
from vitcore.model.position import Context
from vitcore.model.token_merging import merged
from vitcore.options import ConfigError
from vitcore.training.run import Memory

tiny = partial(trainings.tiny, depth=3, patch=2, pool="cls", batch=16, steps=8, token_merging=3)


def by_the_paper(x: Tensor, keys: Tensor, sizes: Tensor, prefix: int, count: int) -> tuple[Tensor, Tensor]:
    """Section 3 for one image x (T, D): sets A and B in turns, an edge from each of A, the `count` most similar."""
    tokens = range(prefix, len(x))
    set_a, set_b = [t for t in tokens if t % 2 == 0], [t for t in tokens if t % 2 == 1]
    edges = []
    for a in set_a:
        alike = {b: float(keys[a] @ keys[b] / keys[a].norm() / keys[b].norm()) for b in set_b}
        best = max(alike, key=alike.__getitem__)
        edges.append((alike[best], a, best))
    edges = sorted(edges, reverse=True)[:count]
    members = {b: [b] for b in set_b}
    for _, a, b in edges:
        members[b].append(a)
    left = [a for a in set_a if a not in [edge[1] for edge in edges]]
    groups = [[t] for t in (*range(prefix), *left)] + [members[b] for b in set_b]
    means = [sum(sizes[t] * x[t] for t in group) / sum(sizes[t] for t in group) for group in groups]
    return torch.stack(means), torch.stack([sum(sizes[t] for t in group) for group in groups])


@pytest.mark.parametrize(("patches", "count"), [(16, 3), (9, 4), (5, 1), (2, 1)])
@pytest.mark.parametrize("prefix", [0, 1, 3])
def test_matching_is_the_papers(patches: int, count: int, prefix: int) -> None:
    """Tokens, their sizes and their order, where some tokens stand for several patches already."""
    generator = torch.Generator().manual_seed(patches)
    x, keys = (torch.randn(4, prefix + patches, width, dtype=torch.float64, generator=generator) for width in (6, 5))
    sizes = torch.randint(1, 4, (4, prefix + patches), generator=generator).double()
    found, grown = merged(x, keys, sizes, prefix, count)
    for image in range(4):
        wanted, wanted_sizes = by_the_paper(x[image], keys[image], sizes[image], prefix, count)
        torch.testing.assert_close(found[image], wanted)
        torch.testing.assert_close(grown[image], wanted_sizes)
        assert torch.equal(found[image, :prefix], x[image, :prefix])  # protected


def test_no_more_than_half_of_the_patches_merge() -> None:
    """As in the reference implementation, whatever is asked for; a single patch stays."""
    x = torch.randn(2, 1 + 7, 4)
    assert merged(x, x, torch.ones(2, 8), 1, 100)[0].shape == (2, 1 + 4, 4)
    assert torch.equal(merged(x[:, :2], x[:, :2], torch.ones(2, 2), 1, 5)[0], x[:, :2])


@pytest.mark.parametrize(
    "settings", [{}, {"registers": 2}, {"pool": "gap"}, {"block": "post"}, {"pool": "gap", "final_norm": "after"}]
)
def test_model_is_a_loop_over_its_layers(settings: dict[str, Any]) -> None:
    """Attention with the log of sizes, merging by the mean key before the MLP, and a mean over patches, not tokens."""
    model = perturbed(config := tiny(**settings)).eval()
    images = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        found = model(images)
        for image in range(2):
            x = model.embed(images[image : image + 1], Context(model.position, (4, 4), model.prefix))[0]
            sizes = torch.ones(len(x), dtype=torch.float64)
            for block in model.encoder.blocks:
                y = block.norm1(x) if config.block == "pre" else x
                q, k, v = block.attention.qkv(y).view(len(y), 3, 2, 8).unbind(1)  # (T, H, d_h)
                logits = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(8) + sizes.log()
                x = x + block.attention.out(torch.einsum("hqk,khd->qhd", logits.softmax(dim=2), v).flatten(1))
                x = x if config.block == "pre" else block.norm1(x)
                x, sizes = by_the_paper(x, k.mean(dim=1), sizes, model.prefix, 3)
                x = x + block.mlp(block.norm2(x)) if config.block == "pre" else block.norm2(x + block.mlp(x))
            assert len(x) == model.prefix + 16 - 9
            if config.pool == "cls":
                pooled = model.encoder.norm(x)[0]
            else:
                patches, own = x[model.prefix :], sizes[model.prefix :, None]
                before = config.final_norm == "before"
                mean = ((model.encoder.norm(patches) if before else patches) * own).sum(dim=0) / 16
                pooled = mean if before else model.encoder.norm(mean)
            torch.testing.assert_close(found[image], model.head(pooled))


def test_flops_are_those_of_the_tokens_that_are_left() -> None:
    """By hand: attention of T tokens, the MLP of T - r, and the comparison of two halves."""
    config, width = tiny(image_size=16, pool="gap"), 16
    total, tokens = 2 * 64 * 4 * width + 2 * width * 10, 64
    for _ in range(3):
        total += 2 * tokens * 4 * width**2 + 4 * tokens**2 * width
        total += 2 * (tokens - tokens // 2) * (tokens // 2) * 8
        tokens -= 3
        total += 2 * tokens * 8 * width**2
    assert measure(config).flops == total


def test_gradients_reach_every_weight_through_merged_tokens() -> None:
    model = perturbed(tiny(dropout=0.1, drop_path=0.1)).train()
    model(torch.randn(2, 1, 8, 8, dtype=torch.float64), torch.arange(2)).square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_a_finished_model_is_tested_with_merged_tokens() -> None:
    """test@mergeR: 0 changes nothing; the logits are those of the config that merges, whose weights are the same."""
    config, run = tiny(token_merging=0, pool="gap", steps=30, lr=4e-3), Memory()
    outcome = train(config, run)
    model = restore_model(config, run.weights)
    merging, data = restore_model(tiny(pool="gap"), run.weights), load(config)
    with torch.no_grad():
        answers = merging(data.standardize(data.test.pixels)).argmax(dim=1)
    found = merge_eval(model, 3).metrics
    assert found["test_accuracy@merge3"] == pytest.approx((answers == data.test.labels).float().mean().item())
    assert found["test_loss@merge3"] != pytest.approx(outcome.metrics["test_loss"], rel=1e-6)
    assert merge_eval(model, 0).metrics["test_loss@merge0"] == pytest.approx(outcome.metrics["test_loss"])


def test_what_is_not_defined_for_merged_tokens_is_refused_later_too() -> None:
    """Attention maps are not of patches, and an eval merges in a model that was trained without."""
    with pytest.raises(ValueError, match=r"^token_merging=3: only a ViT whose patches all stay is inspected: 0"):
        inspect_eval(perturbed(tiny()), 0, None)
    with pytest.raises(ConfigError, match="position=rope2d acts where patches are gone"):
        merge_eval(perturbed(tiny(token_merging=0, position="rope2d")), 2)
