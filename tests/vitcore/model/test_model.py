"""The model against timm, explicit formulas and published parameter counts; classifiers of timm's in its place."""

import json
import math
from itertools import product
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from ablations.trainables.vit.notes import model_differences
from commonfloor.options import ConfigError
from vitcore import Config, ViT
from vitcore.analysis.cost import count_cost, measure
from vitcore.config import merge
from vitcore.contracts import perturbed
from vitcore.identity import identity, trial_id
from vitcore.model.build import build, meta_model, zero_model
from vitcore.model.dropout import Dropout
from vitcore.model.position import POSITION, Context

IMAGENET = {"image_size": 224, "channels": 3, "classes": 1000}


@pytest.mark.parametrize(
    ("settings", "params"),
    [
        ({"model": "Ti/16"}, 5_717_416),
        ({"model": "S/16"}, 22_050_664),
        ({"model": "B/16"}, 86_567_656),
        ({"model": "B/32"}, 88_224_232),
        ({"model": "L/16"}, 304_326_632),
        ({"model": "H/14"}, 632_045_800),
        ({"model": "B/16", "pool": "gap", "position": "none"}, 86_415_592),
        ({"model": "B/16", "stem": "resnet"}, 98_659_112),  # R50+B/16; the other hybrids as timm counts them
        ({"model": "S/32", "stem": "resnet", "stem.layers": 26}, 36_431_912),
        ({"model": "L/32", "stem": "resnet"}, 328_994_856),
    ],
)
def test_named_sizes_have_the_published_parameters(settings: dict[str, Any], params: int) -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in ViT(Config(**settings, **IMAGENET)).parameters()) == params


LARGEST = {"SoViT-400m": "so400m_patch14_siglip_gap", "g": "giant_patch14", "G": "gigantic_patch14"}


@pytest.mark.parametrize("size", LARGEST)
def test_largest_sizes_have_timms_parameters(size: str) -> None:
    """In blocks and patches; timm's heads and poolings differ."""
    timm = pytest.importorskip("timm")
    with torch.device("meta"):
        theirs = timm.create_model(f"vit_{LARGEST[size]}_224", num_classes=1000)
        ours = ViT(Config(model=f"{size}/14", pool="gap", **IMAGENET))
    for part, other in ((ours.encoder.blocks, theirs.blocks), (ours.stem, theirs.patch_embed)):
        assert sum(p.numel() for p in part.parameters()) == sum(p.numel() for p in other.parameters())


SMALL = {"image_size": 32, "channels": 3, "patch": 8, "width": 48, "depth": 2, "heads": 3}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("vit_small_patch16_224", [{"model": "S/16"}, {"model": "timm/vit_small_patch16_224"}]),
        ("vit_base_r50_s16_224", [{"model": "B/16", "stem": "resnet"}]),
    ],
)
def test_flops_are_those_of_timms_model(name: str, settings: list[dict[str, Any]]) -> None:
    """Within 1% of what PyTorch counts on timm's model, and so is the model named as a reference."""
    timm = pytest.importorskip("timm")
    with torch.device("meta"):
        theirs = timm.create_model(name, num_classes=1000).eval()
        images = torch.empty(1, 3, 224, 224)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        theirs(images)
    for model in settings:
        cost = measure(Config(**model, **IMAGENET))
        assert cost.flops == pytest.approx(counter.get_total_flops(), rel=0.01)
        assert cost.params == sum(parameter.numel() for parameter in theirs.parameters())


@pytest.mark.parametrize("pool", ["cls", "gap"])
@torch.no_grad()
def test_relative_attention_equals_explicit_softmax(pool: str) -> None:
    """Fused attention is softmax((q.k + q.r) / sqrt(d_h)) v, r from a double loop, 0 for the class token."""
    config = Config(position="relative", pool=pool, **SMALL)
    model = perturbed(config)
    attention, prefix = model.encoder.blocks[1].attention, model.prefix
    x = torch.randn(2, prefix + 16, 48, dtype=torch.float64)
    q, k, v = (part.view(2, -1, 3, 16).transpose(1, 2) for part in attention.qkv(x).chunk(3, dim=-1))
    logits = q @ k.transpose(-1, -2)
    for query, key in product(range(16), range(16)):
        r = model.position.tables[1][query - key + 15]
        logits[:, :, prefix + query, prefix + key] += q[:, :, prefix + query] @ r
    mixed = (logits / math.sqrt(16)).softmax(dim=-1) @ v
    expected = attention.out(mixed.transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x, Context(model.position, config.grid, prefix)), expected)


@pytest.mark.parametrize(
    "settings",
    [
        {"position": "relative"},
        {"position": "alibi2d", "registers": 2},
        {"self_attention": "axial", "pool": "gap"},
        {"self_attention": "differential", "pool": "map", "mlp": "swiglu"},
        {"stem": "resnet-small"},
        {"objective": "mae"},
        {"objective": "masked-patch"},
        {"model": "timm/test_resnet"},
        {"image_size": 64, "patch": 8},
    ],
)
def test_flops_are_those_of_pytorchs_counter(settings: dict[str, Any]) -> None:
    """A small model is counted on the CPU, a large one on the meta device."""
    config = Config(**{"width": 32, "depth": 2, "heads": 2, **settings} if "model" not in settings else settings)
    model, images = meta_model(config)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(images)
    for counted in (zero_model(config), meta_model(config)):
        assert count_cost(*counted).flops == counter.get_total_flops()


def test_flops_equal_the_closed_form() -> None:
    """Two a multiply-add: stem, four projections and two products with the tokens a layer, MLP, head."""
    D, N, L, K = 48, 16, 2, 10
    layer = N * 4 * D * D + 2 * N * N * D + 2 * N * D * 4 * D
    expected = 2 * (N * 8 * 8 * 3 * D + L * layer + D * K)
    assert measure(Config(pool="gap", **SMALL)).flops == expected
    relative = measure(Config(pool="gap", position="relative", **SMALL)).flops
    assert relative - expected == 2 * L * N * N * D


def test_images_that_do_not_fit_are_named() -> None:
    model = ViT(Config(width=16, depth=1, heads=2, patch=2, stem="conv")).eval()
    with pytest.raises(ConfigError, match=r"^images of 8 x 9 pixels: patch=2 does not divide them$"):
        model(torch.zeros(1, 1, 8, 9))
    with pytest.raises(ConfigError, match=r"^images of 3 channels: the model has channels=1$"):
        model(torch.zeros(1, 3, 8, 8))
    assert model.features(torch.zeros(1, 1, 8, 10)).shape == (1, 16)


timm = pytest.importorskip("timm")
SHORT: dict[str, Any] = {"data": "digits", "steps": 4, "batch": 8, "evaluations": 2}


def test_initial_values_are_timms_own() -> None:
    torch.manual_seed(5)
    expected = timm.create_model("test_resnet", num_classes=10, in_chans=1).state_dict()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    found = build(Config(model="timm/test_resnet", seed=5, **SHORT)).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    assert {name.removeprefix("model.") for name in found} == set(expected)
    assert all(torch.equal(found[f"model.{name}"], value) for name, value in expected.items())


def test_what_is_dropped_follows_from_the_images() -> None:
    model = build(Config(model="timm/test_vit", image_size=32, channels=3, classes=10, dropout=0.3, drop_path=0.2))
    images, keys = torch.randn(4, 3, 32, 32), torch.arange(4)
    before = torch.get_rng_state()
    assert torch.equal(model(images, keys), model(images, keys))
    assert not torch.equal(model(images, keys), model(images, keys + 4))
    assert torch.equal(torch.get_rng_state(), before)
    model.eval()
    assert torch.equal(model(images), model(images, keys))
    rates = {module.drop_prob for module in model.modules() if isinstance(module, timm.layers.DropPath)}
    assert max(rates) == pytest.approx(0.2)
    assert not any(isinstance(module, Dropout) for module in model.modules())


def test_rate_left_at_zero_drops_nothing() -> None:
    """A default of timm's own, as Swin's stochastic depth of 0.1, is no unwritten part of the recipe."""
    size = {"image_size": 32, "channels": 3, "classes": 10}
    with torch.device("meta"):
        model = build(Config(model="timm/swin_tiny_patch4_window7_224", **size))
        assert timm.create_model("swin_tiny_patch4_window7_224").layers[3].blocks[1].drop_path1.drop_prob > 0
    assert not model.drops


def test_later_layer_chooses_the_model() -> None:
    recipe = {"width": 32, "stem": "conv", "stem.norm": "batch", "options": {"optimizer.beta1": 0.8}, "lr": 0.1}
    arm = merge(recipe, {"model": "timm/test_resnet"})
    assert arm == {"model": "timm/test_resnet", "optimizer.beta1": 0.8, "lr": 0.1}
    back = merge(arm, {"model": "Ti/2"})
    assert "model" not in back
    assert (back["width"], back["patch"], back["lr"]) == (192, 2, 0.1)
    assert "model" not in merge(arm, {"model": ""})
    with pytest.raises(ConfigError, match=r"^depth=3: model=timm/test_resnet has its own"):
        Config(**merge(arm, {"depth": 3}))


def test_dump_makes_the_config_anew() -> None:
    config = Config(model="timm/test_resnet", **SHORT)
    dumped = json.loads(json.dumps(config.model_dump()))
    assert not {"width", "position", "position_at", "pool", "stem", "head", "init"} & dumped.keys()
    assert Config(**dumped) == config


def test_identity_has_the_model_and_no_part_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(model="timm/test_resnet", **SHORT)
    fields = identity(config)
    assert not {"width", "position", "pool", "stem", "options"} & fields.keys()
    assert not {"position", "pool", "stem"} & fields["parts"].keys()
    assert trial_id(config) != trial_id(Config(model="timm/test_efficientnet", **SHORT))
    before = trial_id(config)
    monkeypatch.setattr(POSITION["1d"], "numerics", 2)
    assert trial_id(config) == before


def test_cost_is_that_of_timms_model() -> None:
    """Parameters and multiply-adds as in timm's results tables; no footnote compares tokens."""
    cost, ours = measure(Config(model="timm/resnet18", image_size=224, channels=3, classes=1000)), measure(Config())
    assert (cost.params, cost.flops) == (11_689_512, pytest.approx(2 * 1.82e9, rel=0.01))
    notes = [*model_differences(cost, ours), *model_differences(ours, cost)]
    assert [note.split()[0] for note, _ in notes] == ["parameters", "FLOPs"] * 2
