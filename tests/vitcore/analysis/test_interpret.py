"""Numbers about the inside of a model, against closed forms, loops and scikit-learn."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from vitcore.analysis.cost import measure, summary
from vitcore.analysis.interpret import (
    filters,
    inspect,
    layers,
    mean_distance,
    middle_patch,
    pooled_shares,
    principal_components,
    rollout,
    rollout_caption,
    similarity,
)
from vitcore.config import Config
from vitcore.contracts import perturbed, some_images
from vitcore.data.shuffle import random_order
from vitcore.data.splits import load
from vitcore.model.block import BLOCK
from vitcore.model.position import POSITION
from vitcore.model.self_attention import SELF_ATTENTION
from vitcore.model.stem import STEM
from vitcore.model.vit import ViT

TINY = {"data": "digits", "width": 16, "depth": 3, "heads": 2, "patch": 2}
VARIED = [{"position": name} for name in POSITION] + [{"pool": "gap"}, {"registers": 3}, {"qk_norm": True}]
ATTENTIONS = [{"self_attention": name, "pool": "gap"} for name in SELF_ATTENTION]
BLOCKS = [*({"block": name} for name in BLOCK), {"embedding_norm": True}, {"layer_scale": 0.1}]
STEMS = [{"stem": stem, "patch": 4} for stem in STEM]


def made(**settings: object) -> ViT:
    return perturbed(Config(**(TINY | settings))).float().eval()


@pytest.mark.parametrize("settings", [*VARIED, *ATTENTIONS], ids=str)
@torch.no_grad()
def test_weights_are_those_of_the_fused_kernel(settings: dict[str, str]) -> None:
    """Weights times values give the attention's output, and the model is left as it was."""
    model, name = made(**settings), settings.get("self_attention")
    before = model(images := some_images(model.config).float())
    given: list[tuple[Tensor, ...]] = []
    attention = model.encoder.blocks[1].attention
    attention.register_forward_hook(lambda module, inputs, output: given.append((*inputs, output)))
    weights = layers(model, images)[1].weights
    x, context, output = given[0]
    mixed = weights @ attention.inputs(x, context)[2]
    if name == "differential":
        mixed = attention.sub_norm(mixed) * (1 - attention.lambda_init)
    else:
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))
    gate = attention.gate(x).sigmoid() if name == "gated" else 1
    expected = attention.out(gate * mixed.transpose(1, 2).flatten(2))
    torch.testing.assert_close(expected, output, rtol=1e-4, atol=1e-5)
    assert torch.equal(model(images), before)
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("prefix", [0, 1, 3])
def test_mean_distance_is_that_of_a_loop(prefix: int) -> None:
    """The distance between patches of 4 pixels is weighted by attention, without prefix tokens as query or key."""
    places = [(4 * row, 4 * column) for row in range(2) for column in range(3)]
    weights = torch.rand(2, 5, 6 + prefix, 6 + prefix, generator=torch.Generator().manual_seed(0)).softmax(dim=-1)
    expected = np.zeros((2, 5))
    for image, head in np.ndindex(2, 5):
        for query, row in zip(places, weights[image, head, prefix:, prefix:].tolist(), strict=True):
            expected[image, head] += np.dot(row, [math.dist(query, key) for key in places]) / sum(row) / 6
    np.testing.assert_allclose(mean_distance(weights, (2, 3), 4, prefix), expected, rtol=1e-6)


def test_rollout_is_that_of_a_loop() -> None:
    """Then it is read where the pooling reads: in the class token's row, or in the mean of the patches' rows."""
    generator = torch.Generator().manual_seed(0)
    weights = [torch.rand(2, 3, 5, 5, generator=generator).softmax(dim=-1) for _ in range(3)]
    rolled = rollout(weights)
    for image in range(2):
        expected = np.eye(5)
        for layer in weights:
            mixed = layer[image].double().numpy().mean(axis=0) + np.eye(5)
            expected = (mixed / mixed.sum(axis=1, keepdims=True)) @ expected
        np.testing.assert_allclose(rolled[image], expected, atol=1e-7)
        np.testing.assert_allclose(pooled_shares(rolled, 1, True)[image], expected[0, 1:], atol=1e-7)
        np.testing.assert_allclose(pooled_shares(rolled, 1, False)[image], expected[1:, 1:].mean(axis=0), atol=1e-7)


def test_components_are_those_of_scikit_learn() -> None:
    """Up to the sign, by which their largest value is positive."""
    from sklearn.decomposition import PCA

    weight = torch.randn(60, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    components, share = principal_components(weight)
    expected = PCA(n_components=28).fit(weight.flatten(1).double().numpy())
    assert components.shape == (28, 3, 4, 4)
    np.testing.assert_allclose(components.flatten(1).abs(), np.abs(expected.components_), atol=1e-9)
    np.testing.assert_allclose(share, expected.explained_variance_ratio_, atol=1e-12)
    assert (components.flatten(1).amax(dim=1) == components.flatten(1).abs().amax(dim=1)).all()


@pytest.mark.parametrize("settings", STEMS, ids=str)
def test_every_stem_has_filters_that_see_the_image(settings: dict[str, object]) -> None:
    assert filters(ViT(Config(**(TINY | settings))))[0].shape[1] == 1


def test_learned_tables_are_compared_by_cosine() -> None:
    for at in ("input", "every-layer"):
        model = made(position="1d", position_at=at)
        own = [p.detach().double() for name, p in model.position.named_parameters() if name.startswith("table")]
        tables = np.stack(own)
        units = tables / np.linalg.norm(tables, axis=-1, keepdims=True)
        maps = units @ units.swapaxes(1, 2)
        (found,) = similarity(model, None, None, (4, 4))
        assert found.site == "tokens"
        np.testing.assert_allclose(found.pairs, maps.mean(axis=0), atol=1e-7)
        np.testing.assert_allclose(found.centre[:, 0], maps[:, 10], atol=1e-7)


def test_rotation_is_seen_as_the_mean_cosine_of_the_angles() -> None:
    (found,) = similarity(made(position="rope2d"), None, None, (4, 4))
    offsets = [np.subtract.outer(places, places) for places in divmod(np.arange(16), 4)]
    expected = np.mean([np.cos(rate * offset) for offset in offsets for rate in (1, 0.1)], axis=0)
    assert found.site == "rotate"
    np.testing.assert_allclose(found.pairs, expected, atol=1e-6)
    assert found.centre.shape == (1, 1, 16)  # layers and heads that are alike are one


def test_kind_without_vectors_or_bias_says_so() -> None:
    for name, said in (("cpe", "mixes neighboring tokens"), ("none", "has no position embedding")):
        model = ViT(Config(**(TINY | {"position": name})))
        (found,) = similarity(model, None, None, (4, 4))
        assert found.site == ""
        assert said in found.note


def test_bias_is_the_mean_over_the_images_of_what_is_added_to_the_logits() -> None:
    model = made(position="relative")
    arrays, facts = inspect(model, data := load(model.config), 5)
    assert [site["site"] for site in facts["sites"]] == ["bias"]
    found = layers(model, data.standardize(data.test.pixels[random_order(len(data.test), "inspect")[:5].copy()]))
    biases = np.stack([layer.bias[:, :, 1:, 1:].numpy() for layer in found])  # (L, B, H, N, N)
    np.testing.assert_allclose(arrays["bias_pairs"], biases.mean(axis=(0, 1, 2)), atol=1e-5)
    np.testing.assert_allclose(arrays["bias_centre"], biases[:, :, :, middle_patch((4, 4))].mean(axis=1), atol=1e-5)


@pytest.mark.parametrize("settings", [*VARIED, *ATTENTIONS, *BLOCKS, *STEMS], ids=str)
def test_summary_adds_up_to_what_the_model_costs(settings: dict[str, object]) -> None:
    config = Config(**(TINY | settings))
    rows, whole = summary(config), measure(config)
    assert (sum(row.params for row in rows), sum(row.flops for row in rows)) == (whole.params, whole.flops)
    assert "other" not in {row.part for row in rows}


def test_summary_of_b16_is_that_of_the_paper() -> None:
    rows = {row.part: row for row in summary(Config(model="B/16", image_size=224, channels=3, classes=1000))}
    mlp = rows["encoder.blocks.7.mlp"]
    expected = ([197, 768], 2 * 768 * 3072 + 3072 + 768, 2 * 2 * 197 * 768 * 3072)
    assert (mlp.shape, mlp.params, mlp.flops) == expected
    attention = rows["encoder.blocks.0.attention"]
    assert attention.flops == 2 * 197 * 768 * 4 * 768 + 2 * 2 * 197 * 197 * 768


@pytest.mark.parametrize(
    "settings", [{}, {"pool": "gap", "stem": "conv"}, {"registers": 2}, {"objective": "dino"}], ids=str
)
def test_arrays_are_plain_numbers_of_the_shapes_that_the_figures_expect(settings: dict[str, object]) -> None:
    model = made(**settings)
    arrays, facts = inspect(model, load(model.config), 10)
    expected = {"distance": (3, 2), "rollout": (8, 4, 4), "images": (8, 1, 8, 8), "tokens_pairs": (16, 16)}
    assert {name: arrays[name].shape for name in expected} == expected
    assert all(np.isfinite(array).all() for array in arrays.values())
    assert {str(array.dtype) for array in arrays.values()} <= {"float32", "int64", "uint8"}
    assert ("predicted" in arrays) == ("objective" not in settings)
    assert facts["images"] == 10
    assert facts["uniform_distance"] == pytest.approx(mean_distance(torch.ones(1, 1, 16, 16), (4, 4), 2, 0).item())
    assert 0 < arrays["distance"].min() < arrays["distance"].max() < 8 * math.sqrt(2)
    assert (arrays["rollout"].sum(axis=(1, 2)) <= 1 + 1e-5).all()


def test_branches_show_their_heads_side_by_side() -> None:
    model = made(block="branches")
    found = layers(model, some_images(model.config).float())
    assert [layer.weights.shape[1] for layer in found] == [4, 4, 4]
    model.encoder.blocks[0].further[0].attention.qkv.weight.data.zero_()
    changed = layers(model, some_images(model.config).float())[0].weights
    assert torch.equal(changed[:, :2], found[0].weights[:, :2])
    assert not torch.allclose(changed[:, 2:], found[0].weights[:, 2:])


def test_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made(position="relative")
    whole, _ = inspect(model, data := load(model.config), 20)
    monkeypatch.setattr("vitcore.analysis.interpret.MOST", 1)
    single, _ = inspect(model, data, 20)
    for name, array in whole.items():
        np.testing.assert_allclose(single[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


def test_rollout_names_weights_that_it_leaves_out() -> None:
    patches, token = "mean of the patches", "class token"
    for pool, shown, weights in (("cls", token, 0), ("gap", patches, 0), ("map", patches, 1), ("layers", token, 1)):
        said = rollout_caption(ViT(Config(**(TINY | {"pool": pool}))))
        assert (said.startswith(shown), f"pool={pool} has weights of its own" in said) == (True, weights)
