"""Parameter groups, and each optimiser's steps against its formula in float64."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vitcore import Config, ViT
from vitcore.data import load
from vitcore.optim import OPTIMIZER, layer_id, optimizer
from vitcore.options import ConfigError
from vitcore.schedule import learning_rate
from vitcore.train import Training
from vitcore.updates import clip
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
BESIDES = {"registers": 2, "layer_scale": 0.1, "qk_norm": True}


@pytest.mark.parametrize(("slot", "name"), ENTRIES)
def test_weight_decay_is_of_matrices_alone(slot: str, name: str) -> None:
    """Weights of dense layers and convolutions decay; biases, norms, tables, tokens and scales do not."""
    members = grouped(tiny(weight_decay=0.3, **(BESIDES | {slot: name})), "weight_decay")
    assert members.keys() == {0.0, 0.3}
    assert all(one.endswith("weight") and "norm" not in one for one in members[0.3])
    assert not any(one.startswith("position.") for one in members[0.3])
    assert {"head.weight", "encoder.blocks.0.attention.qkv.weight", "encoder.blocks.1.mlp.up.weight"} <= members[0.3]
    spared = {"head.bias", "registers", "encoder.blocks.0.scale1.gamma", "encoder.blocks.0.attention.q_norm.weight"}
    assert spared <= members[0.0]


def test_weight_decay_on_all_parameters() -> None:
    """As the paper's own code, which spares none."""
    members = grouped(tiny(weight_decay=0.3, weight_decay_on="all", **BESIDES), "weight_decay")
    assert members.keys() == {0.3}
    assert {"class_token", "position.table", "head.bias", "registers"} <= members[0.3]


@pytest.mark.parametrize(("slot", "name"), ENTRIES)
def test_layer_decay_follows_the_depth(slot: str, name: str) -> None:
    """0.5 to the power of the layers above: all that embeds lowest, norm, pooling and head at the whole rate."""
    config = tiny(layer_decay=0.5, **(BESIDES | {slot: name}))
    top = config.layers + 1
    for scale, names in grouped(config, "lr_scale").items():
        for one in names:
            expected = top
            if one.startswith(("stem.", "class_token", "registers")):
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


Step = Callable[[Tensor, Tensor, int], Tensor]
LR, DECAY = 0.01, 0.3


def adam_direction(beta1: float, beta2: float, eps: float) -> Callable[[Tensor, int], Tensor]:
    """Algorithm 1 of arXiv 1412.6980."""
    m, v = torch.zeros(()), torch.zeros(())

    def direction(gradient: Tensor, t: int) -> Tensor:
        nonlocal m, v
        m = beta1 * m + (1 - beta1) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
        return (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + eps)

    return direction


def written_adamw(beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> Step:
    direction = adam_direction(beta1, beta2, eps)
    return lambda w, g, t: w - LR * DECAY * w - LR * direction(g, t)


def written_adam(beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> Step:
    direction = adam_direction(beta1, beta2, eps)
    return lambda w, g, t: w - LR * direction(g + DECAY * w, t)


def written_sgd(momentum: float = 0.9, nesterov: bool = False) -> Step:
    velocity = torch.zeros(())

    def step(w: Tensor, g: Tensor, t: int) -> Tensor:
        nonlocal velocity
        g = g + DECAY * w
        velocity = momentum * velocity + g
        return w - LR * (g + momentum * velocity if nesterov else velocity)

    return step


WRITTEN = [
    ("adamw", {}, written_adamw),
    ("adamw", {"beta1": 0.8, "beta2": 0.95, "eps": 1e-3}, written_adamw),
    ("adam", {}, written_adam),
    ("adam", {"beta2": 0.99}, written_adam),
    ("sgd", {}, written_sgd),
    ("sgd", {"momentum": 0.5, "nesterov": True}, written_sgd),
    ("sgd", {"momentum": 0.0}, written_sgd),
]


def gradients() -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(5, dtype=torch.float64, generator=generator) for _ in itertools.count())


@pytest.mark.parametrize(("name", "options", "written"), WRITTEN)
def test_optimiser_equals_its_formula(name: str, options: dict[str, Any], written: Callable[..., Step]) -> None:
    """Four steps in float64, weight decay included."""
    weight = nn.Parameter(torch.linspace(-1, 1, 5, dtype=torch.float64))
    config = tiny(lr=LR, optimizer=name, **{f"optimizer.{key}": value for key, value in options.items()})
    mine = OPTIMIZER[name].make([{"params": [weight], "weight_decay": DECAY}], config)
    expected, step = weight.detach().clone(), written(**options)
    for t, gradient in zip(range(1, 5), gradients(), strict=False):
        weight.grad = gradient.clone()
        mine.step()
        expected = step(expected, gradient, t)
        torch.testing.assert_close(weight.detach(), expected, rtol=1e-12, atol=1e-12)


THEIRS = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}


@pytest.mark.parametrize(("name", "options"), [(name, options) for name, options, _ in WRITTEN])
def test_optimiser_is_pytorchs_bit_by_bit(name: str, options: dict[str, Any]) -> None:
    """Weights and what is kept of them, Adam's with a weight whose gradients begin late; and after a resume."""
    config = tiny(lr=LR, optimizer=name, **{f"optimizer.{key}": value for key, value in options.items()})
    spelt = {"betas": (options.get("beta1", 0.9), options.get("beta2", 0.999)), "eps": options.get("eps", 1e-8)}
    if name == "sgd":
        spelt = {"momentum": options.get("momentum", 0.9), "nesterov": options.get("nesterov", False)}
    ours, theirs = ([nn.Parameter(torch.linspace(-1, 1, size)) for size in (1, 7, 40, 1000)] for _ in range(2))
    mine = OPTIMIZER[name].make(halves(ours), config)
    reference = THEIRS[name](halves(theirs), lr=LR, fused=True, **spelt)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    for step in range(6):
        if step == 4:
            resumed = OPTIMIZER[name].make(halves(ours), config)
            for weight in ours:
                resumed.state[weight] = {key: kept.clone() for key, kept in mine.state[weight].items()}
            mine = resumed
        for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            gradient = torch.randn(a.shape, generator=generator)
            late = name != "sgd" and number == 1 and step < 2  # PyTorch's fused SGD has no word for it
            a.grad, b.grad = (None, None) if late else (gradient.clone(), gradient.clone())
        mine.step()
        reference.step()
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a, b)
            assert mine.state[a].keys() == reference.state[b].keys()
            assert all(torch.equal(kept, reference.state[b][key]) for key, kept in mine.state[a].items())
    mine.zero_grad()
    assert all(weight.grad is None for weight in ours)


def halves(weights: list[nn.Parameter]) -> list[dict[str, Any]]:
    """Two groups, one of which decays."""
    return [{"params": weights[:2], "weight_decay": DECAY}, {"params": weights[2:], "weight_decay": 0.0}]


@pytest.mark.parametrize("bound", [0.1, 1e6])
def test_clipping_is_pytorchs_bit_by_bit(bound: float) -> None:
    """Gradients above the bound and below it; weights that have none are left alone."""
    sizes = [(1,), (17, 3), (1000,), (2,)]
    ours, theirs = ([nn.Parameter(torch.zeros(size)) for size in sizes] for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    for a, b in zip(ours[:-1], theirs[:-1], strict=True):
        a.grad = torch.randn(a.shape, generator=generator)
        b.grad = a.grad.clone()
    clip(ours, bound)
    nn.utils.clip_grad_norm_(theirs, bound)
    assert ours[-1].grad is None
    for a, b in zip(ours[:-1], theirs[:-1], strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert torch.equal(a.grad, b.grad)


def test_nesterov_needs_momentum() -> None:
    """Said before anything trains."""
    with pytest.raises(ConfigError, match=r"optimizer.nesterov=True needs an optimizer.momentum above 0"):
        tiny(optimizer="sgd", **{"optimizer.nesterov": True, "optimizer.momentum": 0.0})


def test_options_belong_to_their_optimiser() -> None:
    """A word of another optimiser is an error that says so."""
    with pytest.raises(ConfigError, match="optimizer=adamw: unknown key 'momentum'"):
        tiny(**{"optimizer.momentum": 0.5})
