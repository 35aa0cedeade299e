"""Stems and poolings against timm, naive loops, closed forms and published parameter counts."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from timm.layers.norm import LayerNorm2d
from torch import nn

from vitcore import Config, ViT
from vitcore.analysis.cost import measure
from vitcore.contracts import perturbed
from vitcore.model.position import Context
from vitcore.model.stem import HMLPStem

SMALL: dict[str, Any] = {"image_size": 32, "channels": 3, "patch": 8, "width": 48, "depth": 2, "heads": 3}
IMAGENET = {"image_size": 224, "channels": 3, "classes": 1000}


def test_patch_stem_is_a_strided_convolution() -> None:
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    found = []
    for form in ("linear", "convolution"):
        with torch.no_grad():
            stem = perturbed(Config(**SMALL, **{"stem.form": form})).stem
        tokens = stem(images)
        (tokens * torch.linspace(-1, 1, 48, dtype=torch.float64)).square().sum().backward()
        found.append((tokens.detach(), {name: value.grad for name, value in stem.named_parameters()}))
    torch.testing.assert_close(*found)


XIAO: dict[str, Any] = {"patch": 16, "stem": "conv", "stem.norm": "batch", "stem.fewer_blocks": 1, "depth": 12}


@pytest.mark.parametrize(
    ("settings", "millions", "gflops"),
    [
        ({"width": 192, "heads": 3, "mlp_ratio": 3, "stem.channels": [24, 48, 96, 192]}, 4.6, 1.1),
        ({"width": 384, "heads": 6, "mlp_ratio": 3, "stem.channels": [48, 96, 192, 384]}, 17.8, 4.0),
        ({"width": 768, "heads": 12, "stem.channels": [64, 128, 128, 256, 256, 512]}, 81.6, 17.7),
    ],
)
def test_conv_stem_is_that_of_the_paper(settings: dict[str, Any], millions: float, gflops: float) -> None:
    """ViT_C of 1, 4 and 18 GF: parameters and multiply-adds of arXiv 2106.14881, Table 1, with one block fewer."""
    config = Config(**IMAGENET, **XIAO, **settings)
    with torch.device("meta"):
        assert len(ViT(config).encoder.blocks) == 11
    cost = measure(config)
    assert round(cost.params / 1e6, 1) == millions
    assert cost.flops / 2e9 == pytest.approx(gflops, abs=0.06)


HYBRIDS = {  # the stems S1 to S4 of a ViT of 4 GF: (strides of the four convolutions, channels)
    2: ([2, 2, 2, 2], [42, 104, 208, 416]),
    4: ([2, 2, 1, 4], [32, 64, 128, 256]),
    8: ([2, 1, 1, 8], [17, 34, 68, 136]),
    16: ([1, 1, 1, 16], [8, 16, 32, 64]),
}


@pytest.mark.parametrize("patchify", HYBRIDS)
@torch.no_grad()
def test_stems_between_convolutions_and_patches_are_those_of_the_paper(patchify: int) -> None:
    """S1 to S4 of arXiv 2106.14881, Table 3: three convolutions of 3 x 3, then patches, at the costs of ViT_C."""
    strides, channels = HYBRIDS[patchify]
    options = {"stem.patchify": patchify, "stem.channels": channels}
    size = {"width": 384, "heads": 6, "mlp_ratio": 3}
    cost = measure(Config(**IMAGENET, **XIAO, **size, **options))
    assert (cost.params / 1e6, cost.flops / 2e9) == (pytest.approx(17.5, abs=0.3), pytest.approx(3.95, abs=0.05))
    ours = perturbed(Config(**{**SMALL, **XIAO, "depth": 2} | options)).stem.eval()
    theirs = nn.Sequential()
    for before, after, stride, side, padding in zip(
        [3, *channels], channels, strides, [3, 3, 3, patchify], [1, 1, 1, 0], strict=False
    ):
        theirs.append(nn.Conv2d(before, after, side, stride, padding, bias=False))
        theirs.extend([nn.BatchNorm2d(after), nn.ReLU()])
    theirs.append(nn.Conv2d(channels[-1], 48, 1))
    theirs.double().eval().load_state_dict(dict(zip(theirs.state_dict(), ours.state_dict().values(), strict=True)))
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(ours(images), theirs(images).flatten(2).transpose(1, 2))


@torch.no_grad()
@pytest.mark.parametrize("stem", ["conv", "resnet", "resnet-small"])
def test_stem_sees_each_image_alone(stem: str) -> None:
    tokens = perturbed(Config(stem=stem, **SMALL)).stem.train()
    images = torch.randn(3, 3, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(tokens(images)[:1], tokens(images[:1]))


@pytest.mark.parametrize("patch", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("stem", ["patch", "conv", "resnet-small", "resnet"])
def test_stem_divides_the_side_by_the_patch(stem: str, patch: int) -> None:
    """It gives (64 / patch)^2 tokens of the model's width; the papers' ResNet refuses patches below 4."""
    patch = max(4, patch) if stem == "resnet" else patch
    with torch.device("meta"):
        tokens = ViT(Config(stem=stem, patch=patch, image_size=64, channels=3)).stem
        assert tokens(torch.empty(2, 3, 64, 64)).shape == (2, (64 // patch) ** 2, 192)


def deits_stem(channels: int, width: int, norm: Callable[[int], nn.Module]) -> nn.Sequential:
    """As hMLP_stem of https://github.com/facebookresearch/deit."""
    return nn.Sequential(
        *[nn.Conv2d(channels, width // 4, 4, stride=4), norm(width // 4), nn.GELU()],
        *[nn.Conv2d(width // 4, width // 4, 2, stride=2), norm(width // 4), nn.GELU()],
        *[nn.Conv2d(width // 4, width, 2, stride=2), norm(width)],
    )


@pytest.mark.parametrize(("norm", "theirs"), [("batch", nn.BatchNorm2d), ("layer", partial(LayerNorm2d, eps=1e-5))])
def test_hmlp_equals_deits(norm: str, theirs: Any) -> None:
    """At patches of 16, in training and after it; layer norms are timm's."""
    settings = SMALL | {"image_size": 64, "patch": 16, "stem": "hmlp", "stem.norm": norm}
    stem, theirs = ViT(Config(**settings)).stem.double(), deits_stem(3, 48, theirs).double()
    theirs.load_state_dict({name.removeprefix("layers."): values for name, values in stem.state_dict().items()})
    for training in (True, False):
        stem.train(training), theirs.train(training)
        images = torch.randn(2, 3, 64, 64, dtype=torch.float64)
        torch.testing.assert_close(stem(images), theirs(images).flatten(2).transpose(1, 2))


@pytest.mark.parametrize("patch", [1, 2, 4, 8])
def test_hmlp_keeps_patches_apart(patch: int) -> None:
    """Another patch changes its own token and no other, and the convolutions' sides multiply to the patch."""
    stem = ViT(Config(patch=patch, width=32, depth=1, heads=2, stem="hmlp")).stem
    assert math.prod(HMLPStem.sides(patch)) == patch
    images = torch.randn(1, 1, 8, 8)
    changed = images.clone()
    changed[..., :patch, patch * (8 // patch - 1) :] += 1
    moved = (stem(images) - stem(changed)).abs().amax(dim=2)[0] > 0
    assert moved.nonzero().flatten().tolist() == [8 // patch - 1]


DEEPER: dict[str, Any] = {"image_size": 32, "channels": 3, "patch": 8, "width": 48, "depth": 3, "heads": 3}


@torch.no_grad()
def test_gem_is_the_generalised_mean() -> None:
    """(mean max(x, 1e-6)^p)^(1/p); 3 at the start; near the maximum for a large p."""
    pool = ViT(Config(pool="gem", **DEEPER)).double().pool
    assert pool.p.tolist() == [3.0]
    x = torch.randn(2, 16, 48, dtype=torch.float64)
    torch.testing.assert_close(pool(x, 0), (x.clamp(min=1e-6) ** 3).mean(dim=1) ** (1 / 3))
    pool.p.fill_(1.0)
    torch.testing.assert_close(pool(x, 0), x.clamp(min=1e-6).mean(dim=1))
    pool.p.fill_(1000.0)
    torch.testing.assert_close(pool(x, 0), x.amax(dim=1).clamp(min=1e-6), rtol=0.01, atol=0)


def test_gem_of_nothing_positive_is_no_nan() -> None:
    """In float32 its value and gradients stay finite where every token is negative and p is large."""
    pool = ViT(Config(pool="gem", **DEEPER)).pool
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
    model = perturbed(Config(pool="layers", final_norm=final_norm, **DEEPER))
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
