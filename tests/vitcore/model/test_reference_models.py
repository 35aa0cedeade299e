"""Reference models: a classifier of timm's in the same loop, table and plot."""

import json
from typing import Any

import pytest
import torch

from ablations.study.confounds import model_differences
from vitcore import Config
from vitcore.analysis.cost import measure
from vitcore.config import merge
from vitcore.identity import identity, trial_id
from vitcore.model.build import build
from vitcore.model.dropout import Dropout
from vitcore.model.position import POSITION
from vitcore.options import ConfigError

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
