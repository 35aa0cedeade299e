"""Patches of several sizes against timm and the closed form; merged tokens against loops from arXiv 2210.09461."""

import math
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import trainings
from timm.layers.patch_embed import resample_patch_embed
from torch import Tensor

from ablations.study.budget import training_flops
from vitcore import Config, ViT, train
from vitcore.analysis.cost import measure
from vitcore.analysis.evals import inspect_eval, merge_eval, patch_eval
from vitcore.analysis.restore import restore_model
from vitcore.contracts import perturbed
from vitcore.data.splits import load
from vitcore.model.position import POSITION, Context
from vitcore.model.stem.patch import inverse_resize, resized
from vitcore.model.token_merging import merged
from vitcore.options import ConfigError
from vitcore.training.evaluation import evaluate
from vitcore.training.run import Memory
from vitcore.training.state import Training

flexible = partial(trainings.tiny, depth=2, patch=2, pool="cls", batch=16, steps=8, **{"stem.patches": [1, 2, 4]})


@pytest.mark.parametrize(("old", "new"), [(2, 1), (2, 4), (4, 6), (16, 8), (16, 14), (8, 12), (14, 16)])
def test_resized_weights_are_those_of_timm(old: int, new: int) -> None:
    """`resample_patch_embed`, bilinear and without antialiasing as in the paper's code, up and down."""
    weight = 0.05 * torch.randn(5, 3, old, old, generator=torch.Generator().manual_seed(0))
    theirs = resample_patch_embed(weight, [new, new], interpolation="bilinear", antialias=False)
    torch.testing.assert_close(resized(weight, inverse_resize(old, new)), theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("form", ["linear", "convolution"])
def test_images_are_cut_into_patches_of_the_size(form: str) -> None:
    """As a strided convolution by the resized weights; afterwards the model has its own patch again."""
    model = perturbed(flexible(**{"stem.form": form})).eval()
    images = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    weight = resized(model.stem.weight, inverse_resize(2, 4))
    with torch.no_grad(), model.at_patch(4):
        expected = F.conv2d(images, weight, model.stem.bias, stride=4).flatten(2).transpose(1, 2)
        assert torch.allclose(model.patches(images), expected, atol=1e-6)  # the matrix is kept in float32
    assert model.patches(images).shape == (2, 16, 16)


@pytest.mark.parametrize("position", [name for name in POSITION if name != "relative"])
def test_every_step_draws_a_size_and_every_position_goes_along(position: str) -> None:
    """By a draw that only seed and step decide; evaluations have the model's own patch."""
    training = Training(config := flexible(position=position, steps=30), load(flexible()))
    seen: list[int] = []
    training.model.stem.register_forward_hook(lambda module, inputs, tokens: seen.append(tokens.shape[1]))
    for _ in range(12):
        training.advance()
    assert set(seen) == {64, 16, 4}
    other = Training(config, training.data)
    other.step = 5
    with other.patches_of_step():
        assert (8 // other.model.patch) ** 2 == seen[5]
    seen.clear()
    evaluate(training)
    assert set(seen) == {16}


def test_sizes_are_equally_likely_and_drawn_anew_by_each_seed() -> None:
    drawn: list[list[int]] = [[], []]
    for seed, sizes in enumerate(drawn):
        training = Training(flexible(seed=seed), load(flexible()))
        for training.step in range(300):
            with training.patches_of_step():
                sizes.append(training.model.patch)
        assert all(abs(sizes.count(size) - 100) < 40 for size in (1, 2, 4))
    assert drawn[0] != drawn[1]


def test_accuracy_by_patch_is_that_of_the_model_there() -> None:
    """By hand, from resized weights in a ViT of that patch; at its own patch it is the result's."""
    config, run = flexible(position="sincos2d", pool="gap", steps=40), Memory()
    outcome = train(config, run)
    model = restore_model(config, run.weights)
    assert patch_eval(model, 2).metrics["test_accuracy@patch2"] == pytest.approx(outcome.metrics["test_accuracy"])
    native, state = ViT(Config(**config.model_dump() | {"patch": 4, "options": {}})).eval(), model.state_dict()
    theirs = resample_patch_embed(state["stem.weight"], [4, 4], interpolation="bilinear", antialias=False)
    native.load_state_dict(state | {"stem.weight": theirs})
    data = load(config)
    with torch.no_grad():
        loss = F.cross_entropy(native(data.standardize(data.test.pixels)), data.test.labels).item()
    assert patch_eval(model, 4).metrics["test_loss@patch4"] == pytest.approx(loss, rel=1e-4)


def test_training_costs_the_mean_over_the_sizes() -> None:
    config = flexible()
    each = [measure(Config(**config.model_dump() | {"patch": size, "options": {}})).flops for size in (1, 2, 4)]
    assert training_flops(config) == 3 * round(sum(each) / 3) * config.batch
    assert measure(config).flops == each[1]


def test_a_stem_without_resizable_weights_is_refused() -> None:
    with pytest.raises(ConfigError, match="patches of 4 pixels: stem=conv has no weights that resize"):
        patch_eval(ViT(Config(width=16, heads=2, patch=2, stem="conv")), 4)


merged_tiny = partial(trainings.tiny, depth=3, patch=2, pool="cls", batch=16, steps=8, token_merging=3)


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
    model = perturbed(config := merged_tiny(**settings)).eval()
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
    config, width = merged_tiny(image_size=16, pool="gap"), 16
    total, tokens = 2 * 64 * 4 * width + 2 * width * 10, 64
    for _ in range(3):
        total += 2 * tokens * 4 * width**2 + 4 * tokens**2 * width
        total += 2 * (tokens - tokens // 2) * (tokens // 2) * 8
        tokens -= 3
        total += 2 * tokens * 8 * width**2
    assert measure(config).flops == total


def test_gradients_reach_every_weight_through_merged_tokens() -> None:
    model = perturbed(merged_tiny(dropout=0.1, drop_path=0.1)).train()
    model(torch.randn(2, 1, 8, 8, dtype=torch.float64), torch.arange(2)).square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_a_finished_model_is_tested_with_merged_tokens() -> None:
    """test@mergeR: 0 changes nothing; the logits are those of the config that merges, whose weights are the same."""
    config, run = merged_tiny(token_merging=0, pool="gap", steps=30, lr=4e-3), Memory()
    outcome = train(config, run)
    model = restore_model(config, run.weights)
    merging, data = restore_model(merged_tiny(pool="gap"), run.weights), load(config)
    with torch.no_grad():
        answers = merging(data.standardize(data.test.pixels)).argmax(dim=1)
    found = merge_eval(model, 3).metrics
    assert found["test_accuracy@merge3"] == pytest.approx((answers == data.test.labels).float().mean().item())
    assert found["test_loss@merge3"] != pytest.approx(outcome.metrics["test_loss"], rel=1e-6)
    assert merge_eval(model, 0).metrics["test_loss@merge0"] == pytest.approx(outcome.metrics["test_loss"])


def test_what_is_not_defined_for_merged_tokens_is_refused_later_too() -> None:
    """Attention maps are not of patches, and an eval merges in a model that was trained without."""
    with pytest.raises(ValueError, match=r"^token_merging=3: only a ViT whose patches all stay is inspected: 0"):
        inspect_eval(perturbed(merged_tiny()), 0, None)
    with pytest.raises(ConfigError, match="position=rope2d acts where patches are gone"):
        merge_eval(perturbed(merged_tiny(token_merging=0, position="rope2d")), 2)
