"""Parameter groups, their rates, and the options of the optimisers."""

from collections import defaultdict
from typing import Any

import pytest
import torch

from vitcore import Config, ViT
from vitcore.data.splits import load
from vitcore.options import ConfigError
from vitcore.training.loop import Training
from vitcore.training.optimizers import layer_id, optimizer
from vitcore.training.schedules import learning_rate
from vitcore.variants import PARTS, VARIANTS


def tiny(**settings: Any) -> Config:
    defaults = {"width": 16, "depth": 3, "heads": 2, "patch": 4, "pool": "cls", "steps": 20, "batch": 8}
    return Config(**(defaults | settings))


def grouped(config: Config, key: str) -> dict[float, set[str]]:
    """Names of the parameters by the value of `key` in their group; each parameter is in one group."""
    model = ViT(config)
    names = {parameter: name for name, parameter in model.named_parameters()}
    members = defaultdict(set)
    seen = []
    for group in optimizer(model, config).param_groups:
        members[group[key]] |= {names[parameter] for parameter in group["params"]}
        seen += group["params"]
    assert len(seen) == len(names) == len(set(seen))
    return members


ENTRIES = [(slot, name) for slot in PARTS for name in VARIANTS[slot]]
BESIDES = {"registers": 2, "layer_scale": 0.1, "qk_norm": True, "embedding_norm": True}
ON_THE_GRID = {"pool": "gap", "registers": 0}  # what axial attention asks for


def with_part(slot: str, name: str) -> dict[str, Any]:
    return BESIDES | (ON_THE_GRID if name == "axial" else {}) | {slot: name}


@pytest.mark.parametrize(("slot", "name"), ENTRIES)
def test_weight_decay_is_of_matrices_alone(slot: str, name: str) -> None:
    """Weights of dense layers and convolutions decay; biases, norms, tables, tokens and scales do not."""
    members = grouped(tiny(weight_decay=0.3, **with_part(slot, name)), "weight_decay")
    assert members.keys() == {0.0, 0.3}
    assert all(one.endswith("weight") and "norm" not in one for one in members[0.3])
    assert not any(one.startswith("position.") for one in members[0.3])
    assert {"head.weight", "encoder.blocks.0.attention.qkv.weight", "encoder.blocks.1.mlp.up.weight"} <= members[0.3]
    spared = {"head.bias", "encoder.blocks.0.scale1.gamma", "encoder.blocks.0.attention.q_norm.weight"}
    assert spared <= members[0.0]
    assert name == "axial" or "registers" in members[0.0]


def test_weight_decay_on_all_parameters() -> None:
    """As the paper's own code, which spares none."""
    members = grouped(tiny(weight_decay=0.3, weight_decay_on="all", **BESIDES), "weight_decay")
    assert members.keys() == {0.3}
    assert {"class_token", "position.table", "head.bias", "registers"} <= members[0.3]


@pytest.mark.parametrize(("slot", "name"), ENTRIES)
def test_layer_decay_follows_the_depth(slot: str, name: str) -> None:
    """0.5 to the power of the layers above: all that embeds lowest, norm, pooling and head at the whole rate."""
    config = tiny(layer_decay=0.5, **with_part(slot, name))
    top = config.layers + 1
    for scale, names in grouped(config, "lr_scale").items():
        for one in names:
            expected = top
            if one.startswith(("stem.", "class_token", "registers", "encoder.embedding_norm")):
                expected = 0
            if one.startswith("encoder.blocks."):
                expected = int(one.split(".")[2]) + 1
            if one.startswith("position."):
                assert scale == 0.5 ** (top - layer_id(one, config.layers))
            else:
                assert scale == 0.5 ** (top - expected), one


@pytest.mark.parametrize(
    "settings",
    [
        {"position": "1d", "position_at": "every-layer"},
        {"position": "2d", "position_at": "every-layer"},
        {"position": "rope2d", "position.mixed": True, "width": 16},
        {"position": "relative"},
    ],
)
def test_what_a_layer_has_of_the_position_decays_with_it(settings: dict[str, Any]) -> None:
    """A table or rates of one layer alone, wherever they stand: the rate of that layer's block."""
    config = tiny(layer_decay=0.5, **settings)
    scales = {name: scale for scale, names in grouped(config, "lr_scale").items() for name in names}
    for name, parameter in ViT(config).named_parameters():
        moved = name.startswith("position.")
        if moved:
            assert scales[name] == scales[f"encoder.blocks.{name.rpartition('.')[2]}.norm1.weight"]
            assert parameter.shape[0] != config.layers, "a stack of all layers has one rate"
    assert sum(name.startswith("position.") for name in scales) % config.layers == 0


def test_layers_are_counted_as_beit_does() -> None:
    """get_num_layer_for_vit of microsoft/unilm's beit/optim_factory.py, by its own names."""
    theirs = {
        "class_token": 0, "position.table": 0, "position.class_row": 0, "stem.weight": 0, "registers": 0,
        "encoder.blocks.0.norm1.weight": 1, "encoder.blocks.11.mlp.down.bias": 12,
        "position.tables.3": 4,  # a table inside a block there
        "encoder.norm.weight": 13, "pool.probe": 13, "head.weight": 13,
    }  # fmt: skip
    assert {name: layer_id(name, 12) for name in theirs} == theirs


def test_no_layer_decay_is_one_rate() -> None:
    """Two groups, as if there were no such rule."""
    assert grouped(tiny(), "lr_scale").keys() == {1.0}


def test_each_group_steps_at_its_share_of_the_rate() -> None:
    """The training sets every group's rate from the schedule and the group's share."""
    config = tiny(layer_decay=0.5, warmup=0.5)
    training = Training(config, load(config))
    for step in range(3):
        training.advance()
        for group in training.optimizer.param_groups:
            assert group["lr"] == learning_rate(step, config) * group["lr_scale"]


MADE = [
    ("adamw", {}, torch.optim.AdamW, {"betas": (0.9, 0.999), "eps": 1e-8}),
    ("adamw", {"beta1": 0.8, "beta2": 0.95, "eps": 1e-3}, torch.optim.AdamW, {"betas": (0.8, 0.95), "eps": 1e-3}),
    ("adam", {"beta2": 0.99}, torch.optim.Adam, {"betas": (0.9, 0.99), "eps": 1e-8}),
    ("sgd", {}, torch.optim.SGD, {"momentum": 0.9, "nesterov": False}),
    ("sgd", {"momentum": 0.5, "nesterov": True}, torch.optim.SGD, {"momentum": 0.5, "nesterov": True}),
]


@pytest.mark.parametrize(("name", "options", "kind", "expected"), MADE)
def test_options_reach_pytorchs_optimiser(
    name: str, options: dict[str, Any], kind: type, expected: dict[str, Any]
) -> None:
    """Each entry is PyTorch's own class with its fused kernel and the options of the config."""
    config = tiny(lr=0.01, optimizer=name, **{f"optimizer.{key}": value for key, value in options.items()})
    made = optimizer(ViT(config), config)
    assert type(made) is kind
    for group in made.param_groups:
        assert {key: group[key] for key in expected} == expected
        assert (group["fused"], group["lr"]) == (True, 0.01)


def test_nesterov_needs_momentum() -> None:
    """Said before anything trains."""
    with pytest.raises(ConfigError, match=r"optimizer.nesterov=True needs an optimizer.momentum above 0"):
        tiny(optimizer="sgd", **{"optimizer.nesterov": True, "optimizer.momentum": 0.0})


def test_options_belong_to_their_optimiser() -> None:
    """A word of another optimiser is an error that says so."""
    with pytest.raises(ConfigError, match="optimizer=adamw: unknown key 'momentum'"):
        tiny(**{"optimizer.momentum": 0.5})
