"""Stems against timm, explicit formulas and published parameter counts."""

from typing import Any

import pytest
import torch

from vitcore import Config, ViT
from vitcore.config import ConfigError
from vitcore.contracts import perturbed

IMAGENET = {"image_size": 224, "channels": 3, "classes": 1000}


def parameters(**settings: Any) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in ViT(Config(**IMAGENET, **settings)).parameters())


@pytest.mark.parametrize(
    ("settings", "params"),
    [
        ({"model": "B/16"}, 98_659_112),  # R50+B/16; the others as timm counts them
        ({"model": "S/32", "stem.layers": 26}, 36_431_912),
        ({"model": "L/32"}, 328_994_856),
    ],
)
def test_hybrids_have_the_published_parameters(settings: dict[str, Any], params: int) -> None:
    """R50+B/16, R26+S/32 and R50+L/32 have as many parameters as the published models."""
    assert parameters(stem="resnet", **settings) == params


@pytest.mark.parametrize(("name", "patch", "layers"), [("base_r50_s16", 16, 50), ("base_r26_s32", 32, 26)])
@torch.no_grad()
def test_resnet_stem_equals_timm(name: str, patch: int, layers: int) -> None:
    """With the weights of timm's hybrid, the tokens are its: root, stages, 'same' padding and projection."""
    timm = pytest.importorskip("timm")
    theirs = timm.create_model(f"vit_{name}_224", img_size=64, embed_dim=48, depth=1, num_heads=3).patch_embed
    ours = ViT(Config(stem="resnet", width=48, depth=1, patch=patch, image_size=64, channels=3,
                      **{"stem.layers": layers})).stem  # fmt: skip
    ours.load_state_dict({name.replace("proj.", "projection."): value for name, value in theirs.state_dict().items()})
    images = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(ours(images), theirs(images), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_resnet_stem_sees_each_image_alone() -> None:
    """No statistic of the batch enters an image's tokens."""
    stem = perturbed(Config(stem="resnet", width=48, depth=1, patch=8, image_size=32, channels=3)).stem.train()
    images = torch.randn(3, 3, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(stem(images)[:1], stem(images[:1]))


@pytest.mark.parametrize("patch", [4, 8, 16, 32])
def test_resnet_stem_divides_the_side_by_the_patch(patch: int) -> None:
    """It gives (64 / patch)^2 tokens of the model's width, cut after as many stages as that takes."""
    with torch.device("meta"):
        stem = ViT(Config(stem="resnet", patch=patch, image_size=64, channels=3)).stem
        assert stem(torch.empty(2, 3, 64, 64)).shape == (2, (64 // patch) ** 2, 192)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patch": 2}, "patch=2: stem=resnet divides the side by 4, 8, 16 or 32"),
        ({"stem.layers": 101}, "stem=resnet: layers=101: input should be 26 or 50"),
    ],
)
def test_resnet_stem_refuses_what_it_cannot_build(settings: dict[str, Any], message: str) -> None:
    """What is no ResNet of the papers is one line with key, value and what is allowed."""
    with pytest.raises(ConfigError, match=f"^{message}"):
        Config(stem="resnet", image_size=64, channels=3, **settings)
