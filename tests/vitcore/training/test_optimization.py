"""Parameter groups, optimizers, averaged weights and schedules against timm, loops and closed forms."""

import math
import re
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import trainings
from timm.scheduler import CosineLRScheduler
from torch import nn
from trainings import advanced

from vitcore import Config, ViT
from vitcore.analysis.cost import trained_params
from vitcore.training.algorithms import Average
from vitcore.training.evaluation import score
from vitcore.training.optimizers import OPTIMIZER, layer_id, make_optimizer, set_rate
from vitcore.training.schedules import SCHEDULE, learning_rate
from vitcore.variants import PARTS, VARIANTS

Gradients = Callable[[np.ndarray], np.ndarray]
tiny = partial(trainings.tiny, depth=3, pool="cls", steps=20)


def grouped(config: Config, key: str) -> dict[float, set[str]]:
    """Names of the parameters by the value of `key` in their group; each parameter is in one group."""
    model = ViT(config)
    names = {parameter: name for name, parameter in model.named_parameters()}
    members = defaultdict(set)
    seen = []
    for group in make_optimizer(model, config).param_groups:
        members[group[key]] |= {names[parameter] for parameter in group["params"]}
        seen += group["params"]
    assert len(seen) == len(names) == len(set(seen))
    return members


ENTRIES = [(slot, name) for slot in PARTS for name in VARIANTS[slot]]
BESIDES = {"registers": 2, "layer_scale": 0.1, "qk_norm": True, "embedding_norm": True}


@pytest.mark.parametrize(("slot", "name"), ENTRIES)
def test_weight_decay_is_of_matrices_alone(slot: str, name: str) -> None:
    """Weights of dense layers and convolutions decay; biases, norms, tables, tokens and scales do not."""
    on_the_grid = {"pool": "gap", "registers": 0} if name == "axial" else {}  # what axial attention asks for
    members = grouped(tiny(weight_decay=0.3, **BESIDES | on_the_grid | {slot: name}), "weight_decay")
    assert members.keys() == {0.0, 0.3}
    assert all(re.fullmatch(r"(?!position\.|.*norm).*weight", one) for one in members[0.3])
    assert {"head.weight", "encoder.blocks.0.attention.qkv.weight", "encoder.blocks.1.mlp.up.weight"} <= members[0.3]
    spared = {"head.bias", "encoder.blocks.0.scale1.gamma", "encoder.blocks.0.attention.q_norm.weight"}
    assert spared <= members[0.0]
    assert name == "axial" or "registers" in members[0.0]


def test_weight_decay_on_all_parameters() -> None:
    members = grouped(tiny(weight_decay=0.3, weight_decay_on="all", **BESIDES), "weight_decay")
    assert members.keys() == {0.3}
    assert {"class_token", "position.table", "head.bias", "registers"} <= members[0.3]


def changed(weights: dict[str, Any], initial: dict[str, Any]) -> set[str]:
    return {name for name, values in weights.items() if not torch.equal(values, initial[name])}


@pytest.mark.parametrize("optimizer", ["adamw", "schedule-free", "sgd"])
@pytest.mark.parametrize(("trainable", "expected"), [
    ("attention", r"encoder\.blocks\.\d\.attention\.|position\.|head\."),
    ("norm", r".*norm|head\."),
    ("head", r"head\."),
])  # fmt: skip
def test_frozen_parameters_keep_their_bits(trainable: str, expected: str, optimizer: str) -> None:
    """No gradient, decay, average or state of the optimizer touches them; all others move."""
    settings = {"trainable": trainable, "optimizer": optimizer, "weight_decay": 0.3, "weight_decay_on": "all"}
    average = {} if optimizer == "schedule-free" else {"ema": 0.9}
    config = tiny(**settings, **average, qk_norm=True, head_init="lecun-normal")
    initial = ViT(config).state_dict()
    training = advanced(config, 3)
    model = training.model
    moved = changed(model.state_dict(), initial)
    chosen = {name for name in initial if re.match(expected, name)}
    assert moved == changed(training.train_step.average.state_dict(), initial) == chosen
    named = dict(model.named_parameters())
    with_state = {name for name in named if training.train_step.optimizer.state.get(named[name])}
    assert with_state <= chosen
    assert {name for name, parameter in named.items() if parameter.grad is not None} <= chosen
    assert trained_params(config) == sum(named[name].numel() for name in chosen)


def test_layer_decay_follows_the_depth() -> None:
    config = tiny(layer_decay=0.5, **BESIDES)
    for scale, names in grouped(config, "lr_scale").items():
        assert {0.5 ** (config.layers + 1 - layer_id(one, config.layers)) for one in names} == {scale}


OF_A_LAYER = [{"position": "2d", "position_at": "every-layer"}, {"position": "rope2d", "position.mixed": True}]


@pytest.mark.parametrize("settings", [*OF_A_LAYER, {"position": "relative"}])
def test_position_parameters_of_a_layer_have_the_rate_of_its_block(settings: dict[str, Any]) -> None:
    config = tiny(layer_decay=0.5, **settings)
    scales = {name: scale for scale, names in grouped(config, "lr_scale").items() for name in names}
    own = [name for name in scales if name.startswith("position.")]
    assert len(own) in (3, 6), "a stack of all layers has one rate"
    for name in own:
        assert scales[name] == scales[f"encoder.blocks.{name.rpartition('.')[2]}.norm1.weight"]


def test_layers_are_counted_as_beit_does() -> None:
    """get_num_layer_for_vit of microsoft/unilm's beit/optim_factory.py, by its own names."""
    theirs = {
        "class_token": 0, "position.table": 0, "position.class_row": 0, "stem.weight": 0, "registers": 0,
        "encoder.blocks.0.norm1.weight": 1, "encoder.blocks.11.mlp.down.bias": 12,
        "position.tables.3": 4,  # a table inside a block there
        "encoder.embedding_norm.weight": 0, "encoder.norm.weight": 13, "pool.probe": 13, "head.weight": 13,
    }  # fmt: skip
    assert {name: layer_id(name, 12) for name in theirs} == theirs


def test_each_group_steps_at_its_share_of_the_rate() -> None:
    training = advanced(config := tiny(layer_decay=0.5, warmup=0.5))
    for step in range(3):
        training.advance()
        for group in training.optimizer.param_groups:
            assert group["lr"] == learning_rate(step, config) * group["lr_scale"]


MADE = [
    ("adamw", {"beta1": 0.8, "beta2": 0.95, "eps": 1e-3}, torch.optim.AdamW, {"betas": (0.8, 0.95), "eps": 1e-3}),
    ("adam", {"beta2": 0.99}, torch.optim.Adam, {"betas": (0.9, 0.99), "eps": 1e-8}),
    ("sgd", {}, torch.optim.SGD, {"momentum": 0.9, "nesterov": False}),
    ("sgd", {"momentum": 0.5, "nesterov": True}, torch.optim.SGD, {"momentum": 0.5, "nesterov": True}),
]


@pytest.mark.parametrize(("name", "options", "kind", "expected"), MADE)
def test_options_reach_pytorch(name: str, options: dict[str, Any], kind: type, expected: dict[str, Any]) -> None:
    config = tiny(lr=0.01, optimizer=name, **{f"optimizer.{key}": value for key, value in options.items()})
    made = make_optimizer(ViT(config), config)
    assert type(made) is kind
    for group in made.param_groups:
        assert {key: group[key] for key in expected} == expected
        assert (group["fused"], group["lr"]) == (True, 0.01)


def descended(made: torch.optim.Optimizer, weight: torch.nn.Parameter, rates: list[float]) -> torch.Tensor:
    """Return the weight after a step at each rate on a quartic loss."""
    for rate in rates:
        set_rate(made, rate)
        made.zero_grad()
        (weight**4 - weight.cos()).sum().backward()
        made.step()
    return weight.detach()


RATES = [0.01, 0.02, 0.03, 0.03, 0.02]


def start(rows: int = 4, columns: int = 6) -> torch.nn.Parameter:
    generator = torch.Generator().manual_seed(0)
    return torch.nn.Parameter(torch.randn(rows, columns, dtype=torch.float64, generator=generator))


def group(weight: torch.nn.Parameter, **more: Any) -> list[dict[str, Any]]:
    return [{"params": [weight], "weight_decay": 0.1, "lr_scale": 1.0, "apart": False} | more]


def test_muon_steps_as_timms() -> None:
    """It equals timm.optim.Muon up to bf16 rounding; AdamW has the other parameters."""
    from timm.optim import Muon

    config = tiny(optimizer="muon")
    how = {"momentum": 0.95, "nesterov": True, "adjust_lr_fn": "match_rms_adamw", "ns_coefficients": "original"}
    for shape in ((4, 6), (6, 4)):
        mine, theirs = start(*shape), start(*shape)
        groups = group(mine, apart=True) + group(start())
        ours = descended(OPTIMIZER["muon"].make(groups, config), mine, RATES)
        torch.testing.assert_close(ours, descended(Muon(group(theirs), **how), theirs, RATES), rtol=0, atol=3e-3)


def test_muon_orthogonalizes_the_matrices_of_blocks_alone() -> None:
    """Embeddings, head, norms and biases have AdamW's state, the blocks' matrices a momentum."""
    training = advanced(tiny(optimizer="muon"), 1)
    for name, parameter in training.model.named_parameters():
        hidden = name.startswith("encoder.blocks.") and parameter.ndim == 2
        assert training.optimizer.state[parameter].keys() == (
            {"momentum_buffer"} if hidden else {"step", "exp_avg", "exp_avg_sq"}
        ), name


def test_schedule_free_equals_its_algorithm() -> None:
    config = tiny(optimizer="schedule-free")
    mine = start()
    made = OPTIMIZER["schedule-free"].make(group(mine), config)
    ours = descended(made, mine, RATES)
    x = z = start().detach()
    second, total, highest = torch.zeros_like(x), 0.0, 0.0
    for step, rate in enumerate(RATES, 1):
        y = 0.1 * z + 0.9 * x
        gradient = 4 * y**3 + y.sin()
        second = 0.999 * second + 0.001 * gradient**2
        z = z - rate * (gradient / ((second / (1 - 0.999**step)).sqrt() + 1e-8) + 0.1 * y)
        highest = max(highest, rate)
        total += highest**2
        x = x + highest**2 / total * (z - x)
    torch.testing.assert_close(ours, 0.1 * z + 0.9 * x)
    torch.testing.assert_close(made.x(mine).detach(), x)


def lion(w: np.ndarray, gradients: Gradients, rates: list[float]) -> np.ndarray:
    """Algorithm 2 of arXiv 2302.06675."""
    m = np.zeros_like(w)
    for rate in rates:
        g = gradients(w)
        w = w - rate * (np.sign(0.9 * m + 0.1 * g) + 0.1 * w)
        m = 0.99 * m + 0.01 * g
    return w


def lamb(w: np.ndarray, gradients: Gradients, rates: list[float]) -> np.ndarray:
    """Algorithm 2 of arXiv 1904.00962, with phi(x) = x."""
    m = v = np.zeros_like(w)
    for t, rate in enumerate(rates, 1):
        g = gradients(w)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        r = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6) + 0.1 * w
        w = w - rate * np.linalg.norm(w) / np.linalg.norm(r) * r
    return w


def adan(w: np.ndarray, gradients: Gradients, rates: list[float]) -> np.ndarray:
    """Algorithm 1 of arXiv 2208.06677, with the bias corrections of the authors' code."""
    b1, b2, b3 = 0.02, 0.08, 0.01
    m = v = n = np.zeros_like(w)
    before = None
    for t, rate in enumerate(rates, 1):
        g = gradients(w)
        difference = 0 * g if before is None else g - before
        before = g
        m, v = (1 - b1) * m + b1 * g, (1 - b2) * v + b2 * difference
        n = (1 - b3) * n + b3 * (g + (1 - b2) * difference) ** 2
        update = m / (1 - (1 - b1) ** t) + (1 - b2) * v / (1 - (1 - b2) ** t)
        w = (w - rate * update / (np.sqrt(n / (1 - (1 - b3) ** t)) + 1e-8)) / (1 + rate * 0.1)
    return w


def adabelief(w: np.ndarray, gradients: Gradients, rates: list[float]) -> np.ndarray:
    """Algorithm 2 of arXiv 2010.07468, with decoupled weight decay."""
    m = s = np.zeros_like(w)
    for t, rate in enumerate(rates, 1):
        g = gradients(w)
        m = 0.9 * m + 0.1 * g
        s = 0.999 * s + 0.001 * (g - m) ** 2 + 1e-16
        w = w * (1 - rate * 0.1) - rate * m / (1 - 0.9**t) / (np.sqrt(s / (1 - 0.999**t)) + 1e-16)
    return w


def adafactor(w: np.ndarray, gradients: Gradients, rates: list[float]) -> np.ndarray:
    """Algorithms 4 and 5 of arXiv 1804.04235 in loops over the matrix, with decoupled weight decay."""
    rows, columns = np.zeros(w.shape[0]), np.zeros(w.shape[1])
    for t, rate in enumerate(rates, 1):
        g, decay = gradients(w), 1 - t**-0.8
        alpha = max(1e-3, np.sqrt((w**2).mean())) * min(rate, 1 / np.sqrt(t))
        w = w * (1 - rate * 0.1)
        rows = decay * rows + (1 - decay) * (g**2).sum(axis=1)
        columns = decay * columns + (1 - decay) * (g**2).sum(axis=0)
        u = np.zeros_like(w)
        for i, j in np.ndindex(w.shape):
            u[i, j] = g[i, j] / np.sqrt(rows[i] * columns[j] / rows.sum())
        w = w - alpha * u / max(1.0, np.sqrt((u**2).mean()))
    return w


@pytest.mark.parametrize(
    "algorithm", [lion, lamb, adan, adabelief, adafactor], ids=lambda algorithm: algorithm.__name__
)
def test_steps_equal_the_papers_algorithm(algorithm: Callable[..., np.ndarray]) -> None:
    """Five steps with weight decay on a matrix, at rates that change."""
    name, mine = algorithm.__name__, start()
    before = mine.detach().numpy().copy()
    ours = descended(OPTIMIZER[name].make(group(mine), tiny(optimizer=name)), mine, RATES)
    by_hand = algorithm(before, lambda w: 4 * w**3 + np.sin(w), RATES)
    np.testing.assert_allclose(ours.numpy(), by_hand, rtol=1e-12)


def test_lamb_scales_no_parameter_without_weight_decay_and_clips_nothing_itself() -> None:
    """Without weight decay, and however long the gradient, the steps are Adam's."""
    mine, other = start(), start()
    ours = descended(OPTIMIZER["lamb"].make(group(mine, weight_decay=0.0), tiny(optimizer="lamb")), mine, RATES)
    adam = torch.optim.Adam([{"params": [other], "lr_scale": 1.0}], eps=1e-6)
    torch.testing.assert_close(ours, descended(adam, other, RATES))


def test_schedule_free_keeps_the_average() -> None:
    """x is evaluated and saved; training continues from y, bit for bit."""
    training = advanced(tiny(optimizer="schedule-free"), 3)
    before = [parameter.detach().clone() for parameter in training.train_step.parameters]
    kept = safetensors.torch.load(training.weights())
    with training.average.in_place():
        assert all(torch.equal(p, kept[name]) for name, p in training.model.named_parameters())
        assert not torch.equal(training.train_step.parameters[-2], before[-2])
    assert all(torch.equal(*pair) for pair in zip(before, training.train_step.parameters, strict=True))


def test_schedule_free_counts_on_the_host_after_a_resumption() -> None:
    """Each step reads its scalars, and would wait for a GPU."""
    training = advanced(tiny(optimizer="schedule-free"), 1)
    payload = safetensors.torch.save(training.checkpoint())
    training.device = torch.device("meta")  # stands for a GPU
    training.restore(payload)
    for state in training.optimizer.state.values():
        places = {name: own.device.type for name, own in state.items()}
        assert places == {"z": "meta", "square": "meta", "step": "cpu", "highest": "cpu", "weight_sum": "cpu"}


# -- averaged weights --------------------------------------------------------------------------------------------------


class Counting(nn.Module):
    """A batch norm, which has a parameter, floating-point buffers and an integer buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def move(self, step: int) -> None:
        with torch.no_grad():
            self.norm.weight.fill_(step)
            self.norm.running_mean.fill_(10.0 * step)
            self.norm.num_batches_tracked.fill_(step)


@pytest.mark.parametrize("read", [float, torch.tensor])
def test_average_equals_its_formula(read: Callable[[float], float | torch.Tensor]) -> None:
    """It equals a running mean in plain floats; integer buffers are copied."""
    model = Counting()
    average, expected = Average(model, 0.9), 1.0
    for step in range(1, 300):
        model.move(step)
        average.update(read(average.rate(step)))
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    state = average.state_dict()
    assert state["norm.weight"].tolist() == pytest.approx([expected] * 3, rel=1e-5)
    assert state["norm.num_batches_tracked"] == 299
    assert state["norm.running_mean"][0] == pytest.approx(expected * 10, rel=1e-4)


def test_averaged_weights_are_evaluated_and_kept() -> None:
    training = advanced(trainings.tiny(ema=0.99, steps=12), 8)
    live = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
    loss, correct = score(training, training.data.val)
    assert all(torch.equal(tensor, live[name]) for name, tensor in training.model.state_dict().items())
    kept = safetensors.torch.load(training.weights())
    assert not torch.equal(kept["head.weight"], live["head.weight"])
    plain = advanced(trainings.tiny(steps=12))
    plain.model.load_state_dict(kept)
    again, same = score(plain, training.data.val)
    assert (loss, correct.tolist()) == (again, same.tolist())


# -- schedules ---------------------------------------------------------------------------------------------------------


def rates(**settings: Any) -> list[float]:
    config = Config(lr=1.0, **settings)
    return [learning_rate(step, config) for step in range(config.steps)]


CURVES: list[tuple[dict[str, Any], Any]] = [
    ({"schedule": "cosine"}, lambda x: (1 + math.cos(math.pi * x)) / 2),
    ({"schedule": "cosine", "schedule.floor": 0.1}, lambda x: 0.1 + 0.9 * (1 + math.cos(math.pi * x)) / 2),
    ({"schedule": "linear"}, lambda x: 1 - x),
    ({"schedule": "linear", "schedule.floor": 0.25}, lambda x: 1 - 0.75 * x),
    ({"schedule": "step"}, lambda x: 1.0 if x < 0.5 else 0.1 if x < 0.75 else 0.01),
    ({"schedule": "cosine-restarts", "schedule.cycles": 1}, lambda x: (1 + math.cos(math.pi * x)) / 2),
    ({"schedule": "constant"}, lambda x: 1.0 if x < 0.8 else (1 - x) / 0.2),
    ({"schedule": "constant", "schedule.cooldown": 0.5}, lambda x: 1.0 if x < 0.5 else (1 - x) / 0.5),
    ({"schedule": "constant", "schedule.cooldown": 1.0}, lambda x: 1 - x),
    ({"schedule": "constant", "schedule.cooldown": 0.0}, lambda x: 1.0),
    ({"schedule": "wsd"}, lambda x: 1.0 if x < 0.8 else 1 - math.sqrt((x - 0.8) / 0.2)),
    ({"schedule": "wsd", "schedule.cooldown": 1.0}, lambda x: 1 - math.sqrt(x)),
]


@pytest.mark.parametrize(("settings", "after"), CURVES)
@pytest.mark.parametrize("warmup", [0.0, 0.2])
def test_schedule_equals_its_closed_form(settings: dict[str, Any], after: Any, warmup: float) -> None:
    """A linear warm-up to the full rate, then a curve over the remaining steps."""
    begin = round(warmup * 50)
    expected = [(step + 1) / begin for step in range(begin)] + [after(i / (50 - begin)) for i in range(50 - begin)]
    assert rates(steps=50, warmup=warmup, **settings) == pytest.approx(expected)


@pytest.mark.parametrize(("cycles", "growth", "first"), [(3, 2, 10), (5, 1, 7), (2, 3, 9)])
def test_restarts_are_those_of_pytorch_and_timm(cycles: int, growth: int, first: int) -> None:
    """Every step has PyTorch's rate, and timm's, with a floor; each cycle begins at the full rate."""
    steps, weight = first * sum(growth**cycle for cycle in range(cycles)), torch.zeros(1)
    settings = {"schedule.cycles": cycles, "schedule.growth": growth, "schedule.floor": 0.2}
    ours = rates(steps=steps, warmup=0.0, schedule="cosine-restarts", **settings)
    pytorchs, timms = (torch.optim.SGD([weight], lr=1.0) for _ in range(2))
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(pytorchs, first, growth, eta_min=0.2)
    other = CosineLRScheduler(timms, t_initial=first, lr_min=0.2, cycle_mul=growth, cycle_limit=cycles)
    for step, rate in enumerate(ours):
        other.step(step)
        assert [pytorchs.param_groups[0]["lr"], timms.param_groups[0]["lr"]] == pytest.approx([rate, rate])
        pytorchs.step()
        schedule.step()
    assert [rate == 1 for rate in ours].count(True) == cycles


def test_no_restart_is_late_where_lengths_are_rounded() -> None:
    settings = {"schedule.cycles": 4, "schedule.growth": 1.1}  # cycles of 1,000, 1,100, 1,210 and 1,331 steps
    ours = rates(steps=4641, warmup=0.0, schedule="cosine-restarts", **settings)
    assert [step for step, rate in enumerate(ours) if rate == 1] == [0, 1000, 2100, 3310]


def test_milestones_are_those_of_pytorch() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [30, 60, 80], gamma=0.3)
    settings = {"schedule.milestones": [0.3, 0.6, 0.8], "schedule.gamma": 0.3}
    for rate in rates(steps=100, warmup=0.0, schedule="step", **settings):
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate)
        optimizer.step()
        schedule.step()


def test_every_schedule_has_a_closed_form() -> None:
    assert {settings["schedule"] for settings, _ in CURVES} == set(SCHEDULE)


@pytest.mark.parametrize("schedule", SCHEDULE)
@pytest.mark.parametrize(("steps", "warmup"), [(1, 0.0), (1, 0.9), (2, 0.9), (10, 0.99)])
def test_last_step_still_learns(schedule: str, steps: int, warmup: float) -> None:
    """However short the training, no step has a rate of 0 or divides by 0."""
    assert all(0 < rate <= 1 for rate in rates(steps=steps, warmup=warmup, schedule=schedule))
