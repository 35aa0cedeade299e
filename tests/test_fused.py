"""Trainings as one: each member ends as alone, whatever the parts, the settings, and what becomes of the others."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap

from vitcore import Config, folding, fused, train
from vitcore.config import merge
from vitcore.contracts import EQUAL, tiny
from vitcore.data import load
from vitcore.folding import LOWER, PROMOTED, Folding, known, taken_in
from vitcore.fused import TRIED, Group, Member, Stack, together, train_fused, unequal_as_declared, unfit
from vitcore.kin import KIN, PACE
from vitcore.options import ConfigError
from vitcore.pooling import POOLING
from vitcore.position import POSITION
from vitcore.run import Memory, Outcome
from vitcore.train import Training
from vitcore.variants import VARIANTS

BIASED = ("relative", "relative-bias")
LARGE = ("resnet",)  # its channels are the paper's at any width
MARKS = {name: pytest.mark.slow for name in LARGE}


def small(**settings: Any) -> Config:
    defaults = {"width": 16, "depth": 2, "heads": 2, "patch": 4, "batch": 16, "steps": 12, "evaluations": 3}
    return Config(**(defaults | {"pool": "cls", "device": "cpu"} | settings))


def alone(configs: Sequence[Config]) -> list[tuple[Memory, Outcome]]:
    return [(run := Memory(), train(config, run)) for config in configs]


def as_one(configs: Sequence[Config], runs: Sequence[Memory] | None = None, **how: Any) -> list[tuple[Memory, Outcome]]:
    runs = runs or [Memory() for _ in configs]
    found = []
    for run, outcome in zip(runs, train_fused(configs, runs, **how), strict=True):
        assert isinstance(outcome, Outcome), outcome
        found.append((run, outcome))
    return found


def same(one: tuple[Memory, Outcome], other: tuple[Memory, Outcome]) -> None:
    """All that a training leaves but its seconds."""
    (run, outcome), (expected_run, expected) = one, other
    for field in ("status", "steps", "images", "params", "flops", "diverged_at_step", "suspect_hardware"):
        assert getattr(outcome, field) == getattr(expected, field), field
    assert outcome.metrics == pytest.approx(expected.metrics, rel=EQUAL, abs=EQUAL)
    for line, expected_line in zip(run.lines, expected_run.lines, strict=True):
        without = {key: value for key, value in expected_line.items() if key != "seconds"}
        assert {key: line[key] for key in without} == pytest.approx(without, rel=EQUAL, abs=EQUAL)
    assert (run.weights is None) == (expected_run.weights is None)
    if run.weights is not None and expected_run.weights is not None:
        weights = safetensors.torch.load(run.weights)
        for name, tensor in safetensors.torch.load(expected_run.weights).items():
            torch.testing.assert_close(weights[name], tensor, rtol=EQUAL, atol=EQUAL, msg=name)
    if run.correct is not None and expected_run.correct is not None:
        assert all(map(np.array_equal, run.correct, expected_run.correct))


@pytest.fixture
def double() -> Any:
    """Models and the statistics of data that are made inside are in float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


ENTRIES = [
    pytest.param(slot, name, id=f"{slot}={name}", marks=MARKS.get(name, ()))
    for slot, variants in VARIANTS.items()
    for name in variants
]


@pytest.mark.parametrize(("slot", "name"), ENTRIES)
def test_every_variant_is_trained_together(slot: str, name: str) -> None:
    """Two steps of two members leave weights, moments and losses as alone, with no line of the variant's own for it."""
    assert unfit(Config(**tiny(slot, name).model_dump() | {"dropout": 0.1, "drop_path": 0.1})) == ""


@pytest.mark.parametrize("pool", POOLING)
@pytest.mark.parametrize("position", POSITION)
def test_parts_go_together_as_one(position: str, pool: str) -> None:
    """Every position with every pooling."""
    assert unfit(Config(**merge(tiny("position", position).model_dump(), {"pool": pool}))) == ""


@pytest.mark.parametrize(
    "settings",
    [
        {"stem": "conv", "stem.norm": "batch"},
        {"position": "rope2d", "position.mixed": True, "heads": 4},
        {"position": "1d", "position_at": "every-layer"},
        {"position": "1d", "position.combine": "concat"},
        {"qk_norm": True, "layer_scale": 0.1, "registers": 2, "head": "mlp", "final_norm": "after"},
        {"precision": "bf16", "layer_decay": 0.7, "ema": 0.9, "clip_norm": 0.0},
        {"mixup": 0.2, "cutmix": 1.0, "label_smoothing": 0.1, "weight_decay_on": "all"},
        {"optimizer": "sgd", "optimizer.nesterov": True, "optimizer.momentum": 0.9},
    ],
)
def test_settings_are_carried(settings: dict[str, Any]) -> None:
    """What is no entry of a dictionary: options, norms of a batch, what is done to gradients and weights."""
    assert unfit(small(**settings)) == ""


def test_what_cannot_be_mapped_says_so() -> None:
    """A part that looks at its numbers, or whose members are not what the first one is, is found out by one check."""

    class Looks(POOLING["gap"]):  # type: ignore[misc]
        def forward(self, x: Tensor, prefix: int) -> Tensor:
            return super().forward(x, prefix) * (2 if x.sum().item() > 0 else 1)

    class Seeded(POOLING["gap"]):  # type: ignore[misc]
        def __init__(self, config: Config) -> None:
            super().__init__(config)
            self.seed = config.seed

        def forward(self, x: Tensor, prefix: int) -> Tensor:
            return super().forward(x, prefix) * (1 + self.seed)

    with pytest.MonkeyPatch.context() as patch:
        for name, kind in {"looks": Looks, "seeded": Seeded}.items():
            patch.setitem(POOLING, name, kind)
        assert unfit(small(pool="looks")).startswith("RuntimeError: ")
        assert unfit(small(pool="seeded")).endswith(" is another one after 2 steps together")


class Scaled(POOLING["gap"]):  # type: ignore[misc]
    """With a parameter of no axis."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor, prefix: int) -> Tensor:
        return super().forward(x, prefix) * self.scale


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("clip_norm", [0.0, 0.1])
@pytest.mark.usefixtures("double")
def test_a_scalar_parameter_is_each_members_own(
    clip_norm: float, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its moments have no axis either, as the count of steps; members end one after the other."""
    monkeypatch.setitem(POOLING, "scaled", Scaled)
    settings = {"pool": "scaled", "clip_norm": clip_norm, "optimizer": optimizer}
    configs = [small(**settings, seed=seed, steps=4 + 2 * (seed // 2)) for seed in range(4)]
    assert unfit(configs[0]) == ""
    for one, other in zip(as_one(configs), alone(configs), strict=True):
        same(one, other)


def test_stopped_before_the_first_step() -> None:
    """Each has stopped, in no time."""
    outcomes = train_fused([small(seed=seed) for seed in range(2)], [Memory(), Memory()], stop=lambda: True)
    for outcome in outcomes:
        assert isinstance(outcome, Outcome), outcome
        assert (outcome.status, outcome.steps, outcome.train_seconds) == ("stopped", 0, 0.0)


GROUPS = {
    "seeds": [{"seed": seed, "dropout": 0.1, "augment": "flip-crop", "augment.pad": 1} for seed in range(3)],
    "rates": [{"seed": n // 2, "lr": 10.0 ** -(2 + n % 2), "weight_decay": 0.5 * (n // 3)} for n in range(5)],
    "subsets": [{"data_fraction": 0.1 + 0.3 * n, "data_seed": n, "ema": 0.9} for n in range(3)],
    "lengths": [
        {"steps": 6 + 3 * n, "evaluations": 1 + n, "schedule": kind} for n, kind in enumerate(["linear", "cosine"])
    ],
    "batch norm": [{"stem": "conv", "stem.norm": "batch", "seed": seed} for seed in range(2)],
    "one": [{"seed": 7}],
}


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.usefixtures("double")
def test_members_end_as_alone(name: str) -> None:
    """Metrics, lines, answers and weights of each, whatever it differs in."""
    configs = [small(**settings) for settings in GROUPS[name]]
    for one, other in zip(as_one(configs), alone(configs), strict=True):
        same(one, other)


def in_bf16(config: Config) -> str:
    """What its first steps in bfloat16 have together that they have not alone."""
    start = {"precision": "bf16", "steps": TRIED, "evaluations": 1, "head_init": "lecun-normal"}
    pair = [config.model_copy(update=start | {"seed": seed}) for seed in range(2)]
    return unequal_as_declared(pair, together(pair, None))


@pytest.mark.parametrize(("slot", "name"), ENTRIES)
def test_every_variant_has_the_types_of_one_alone(slot: str, name: str) -> None:
    """In bfloat16 each operation returns what it returns alone, and the losses are as near as that allows.

    Attention with a learned bias goes another way alone on a CPU; that is told, so that such trials stay alone.
    """
    assert (in_bf16(tiny(slot, name)) == "") == (name not in BIASED)


@pytest.mark.parametrize(
    "settings",
    [
        {"stem": "conv", "stem.norm": "batch"},
        {"position": "1d", "position.combine": "concat"},
        {"qk_norm": True, "layer_scale": 0.1, "registers": 2, "head": "mlp", "final_norm": "after", "dropout": 0.1},
    ],
)
def test_settings_have_the_types_of_one_alone(settings: dict[str, Any]) -> None:
    """Norms whose input is bfloat16 and whose weights are not among them."""
    assert in_bf16(small(**settings)) == ""


def test_autocast_below_vmap_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which float64 shows nothing of: there, nothing is cast."""
    monkeypatch.setattr(folding, "taken_in", lambda *_: None)
    monkeypatch.setattr(folding, "linear", F.linear)
    assert unfit(small()) == ""
    assert unfit(small(precision="bf16")) == "linear returns float32 together, and bfloat16 alone"


def test_losses_in_bfloat16_are_those_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a value that is rounded the other way; more is told, whatever the types are."""
    config = small(precision="bf16")
    monkeypatch.setitem(fused.NEAR, "bf16", 1e-3)
    assert in_bf16(config) == ""
    honest = folding.linear
    monkeypatch.setattr(folding, "linear", lambda *args: honest(*args) * 1.02)
    assert in_bf16(config).startswith("losses of the first 2 steps are ")


@pytest.mark.parametrize("axes", [(0, 0, 0), (None, 0, 0), (0, None, 0), (0, 0, None)])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.usefixtures("double")
def test_linear_layers_of_members_are_those_of_each(biased: bool, axes: tuple[int | None, ...]) -> None:
    """Output and gradients beside a loop over the members, what has no axis shared by all."""
    members, shapes = 3, ((2, 5, 8), (4, 8), (4,))
    leaves = [
        torch.randn(*(shape if axis is None else (members, *shape)), requires_grad=True)
        for shape, axis in zip(shapes, axes, strict=True)
    ][: 2 + biased]
    axes = axes[: 2 + biased]
    found = vmap(folding.linear, in_dims=axes)(*leaves)
    each = [F.linear(*(t if a is None else t[i] for t, a in zip(leaves, axes, strict=True))) for i in range(members)]
    direction = torch.randn_like(found)
    torch.testing.assert_close(found, torch.stack(each), rtol=1e-12, atol=1e-12)
    gradients = torch.autograd.grad(torch.stack(each), leaves, direction)
    for one, other in zip(torch.autograd.grad(found, leaves, direction), gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_autocast_is_as_pytorch_states_it() -> None:
    """Beside its own header: what is cast to less precision, on a GPU to float32, or to neither."""
    text = (Path(torch.__file__).parent / "include/ATen/autocast_mode.h").read_text()
    stated = {
        what: {name for name in re.findall(r"\b_\((\w+)", lines) if not name.startswith("_") and "_cell" not in name}
        for what, lines in re.findall(r"#define AT_FORALL_(\w+)\(_\)((?:.*\\\n)+.*)", text)
    }
    assert {*stated["LOWER_PRECISION_FP"], "convolution"} == {*LOWER, "convolution"}
    assert stated["PROMOTE"] <= PROMOTED
    on_gpu = (stated["FP32"] | stated["FP32_SET_OPT_DTYPE"]) & known("cuda")
    assert {"layer_norm", "softmax", "logsumexp"} <= on_gpu
    assert {taken_in(name, "cuda", torch.bfloat16) for name in on_gpu} == {torch.float32}
    assert {taken_in(name, "cpu", torch.bfloat16) for name in ("layer_norm", "softmax", "gelu", "cat")} == {None}


def test_rounding_is_all_that_differs_in_float32() -> None:
    """Losses of the first steps agree to a float's last digits."""
    configs = [small(seed=seed, steps=5, evaluations=5) for seed in range(3)]
    for (run, _), (expected, _) in zip(as_one(configs), alone(configs), strict=True):
        losses, others = ([line["train_loss"] for line in lines] for lines in (run.lines, expected.lines))
        np.testing.assert_allclose(losses, others, rtol=1e-5)


@pytest.mark.usefixtures("double")
def test_checkpoints_of_one_kind_resume_the_other() -> None:
    """Stopped at different steps, together or alone, and gone on with the other way: as never stopped."""
    configs = [small(seed=seed, augment="flip") for seed in range(3)]
    expected = alone(configs)
    stopped, left = [Memory() for _ in configs], iter(range(3 * 5))
    train_fused(configs, stopped, stop=lambda: next(left, None) is None)
    assert [run.weights for run in stopped] == [None] * 3
    assert all(run.checkpoints for run in stopped)
    for config, run, other in zip(configs, stopped, expected, strict=True):
        same((run, train(config, run)), other)
    runs = [Memory() for _ in configs]
    for at, (config, run) in enumerate(zip(configs, runs, strict=True)):
        left = iter(range(3 * at))
        train(config, run, stop=lambda left=left: next(left, None) is None)  # type: ignore[misc]
    for one, other in zip(as_one(configs, runs), expected, strict=True):
        same(one, other)


@pytest.mark.usefixtures("double")
def test_a_member_that_diverges_changes_no_other() -> None:
    """It is verified and recorded as alone, at its own step; the others end as if it had not been there."""
    configs = [small(seed=seed, lr=lr) for seed, lr in enumerate([1e-3, 1e30, 1e-3])]
    found = as_one(configs)
    assert [outcome.status for _, outcome in found] == ["finished", "diverged", "finished"]
    for one, other in zip(found, alone(configs), strict=True):
        same(one, other)


@pytest.mark.usefixtures("double")
def test_a_divergence_that_does_not_come_back_is_one_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes back to its checkpoint while the others go on, and ends as alone, its hardware suspected."""
    configs = [small(seed=seed) for seed in range(3)]
    honest, due = Stack.step, [7]

    def step(self: Stack) -> None:
        if due and self.members[1].step + 1 == due[0]:
            due.pop()
            for parameter in self.parameters.values():
                if parameter.grad is not None:
                    parameter.grad[1] = torch.nan
        honest(self)

    monkeypatch.setattr(Stack, "step", step)
    found = as_one(configs)
    assert [outcome.suspect_hardware for _, outcome in found] == [None, 8, None]
    for (run, outcome), expected in zip(found, alone(configs), strict=True):
        assert outcome.status == "finished"
        same((run, Outcome(**vars(outcome) | {"suspect_hardware": None})), expected)


@pytest.mark.usefixtures("double")
def test_an_error_of_one_run_is_its_own() -> None:
    """A member whose run refuses what it is given ends with the error; the others as alone."""

    class Refuses(Memory):
        def log(self, line: dict[str, Any]) -> None:
            raise OSError("no room")

    configs = [small(seed=seed) for seed in range(3)]
    runs = [Memory(), Refuses(), Memory()]
    first, second, third = train_fused(configs, runs)
    assert isinstance(second, OSError)
    for number, outcome in ((0, first), (2, third)):
        assert isinstance(outcome, Outcome)
        same((runs[number], outcome), *alone([configs[number]]))


@pytest.mark.usefixtures("double")
def test_memory_that_runs_out_takes_fewer_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halved until they fit, for good; the same members, to the same end."""
    sizes: list[int] = []
    honest = Stack.logits

    def logits(self: Stack, weights: Any, batch: Any) -> Tensor:
        sizes.append(len(batch.images))
        if sizes[-1] > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return honest(self, weights, batch)

    monkeypatch.setattr(Stack, "logits", logits)
    configs = [small(seed=seed, steps=3) for seed in range(5)]
    for one, other in zip(as_one(configs), alone(configs), strict=True):
        same(one, other)
    assert sizes == [5, 2, 2, 1, *[2, 2, 1] * 2]


def test_seconds_of_all_are_those_of_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that ticks once a step: each member has its share, evaluations are nobody's."""
    now = [0.0]
    monkeypatch.setattr(fused.time, "perf_counter", lambda: now[0])
    honest = Group.advance

    def advance(self: Group, members: Sequence[Training]) -> None:
        honest(self, members)
        now[0] += 1.0

    monkeypatch.setattr(Group, "advance", advance)
    measured = Training.measure

    def measure(self: Training, *images: Any) -> Any:
        now[0] += 100.0
        return measured(self, *images)

    monkeypatch.setattr(Training, "measure", measure)
    found = as_one([small(seed=0), small(seed=1), small(seed=2, steps=6)])
    assert [outcome.train_seconds for _, outcome in found] == pytest.approx([6 / 3 + 6 / 2] * 2 + [6 / 3])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([{"width": 16}, {"width": 32}], "width=16 and 32: trained together they have to agree in it"),
        ([{}, {"position.combine": "concat"}], "options=.*: trained together they have to agree"),
        ([{"micro_batch": 4}], "micro_batch=4: trained together it has to be 0"),
        ([{"compile": True}], "compile=True: trained together it has to be False"),
    ],
)
def test_who_cannot_be_a_member_is_told(settings: list[dict[str, Any]], message: str) -> None:
    """One line, before anything trains."""
    configs = [small(**one) for one in settings]
    with pytest.raises(ConfigError, match=message):
        train_fused(configs, [Memory() for _ in configs])


def test_images_that_do_not_fit_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each member keeps its own subset on the device."""
    taken = sum(part.pixels.nbytes for part in (load(small()).train, load(small()).val, load(small()).test))
    monkeypatch.setattr(fused, "room", lambda device: 2.5 * taken)
    train_fused([small(seed=seed, steps=1) for seed in range(2)], [Memory(), Memory()])
    with pytest.raises(ConfigError, match=r"^data=digits: those of 3 trials do not fit into memory together$"):
        train_fused([small(seed=seed) for seed in range(3)], [Memory() for _ in range(3)])


MASKS: dict[str, tuple[int, ...] | None] = {
    "none": None,
    "all": (5, 5),
    "heads": (2, 5, 5),
    "batch": (1, 2, 5, 5),
    "images": (3, 2, 5, 5),
    "queries": (3, 1, 5, 5),
}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.usefixtures("double")
def test_attention_of_members_is_that_of_each(mask: str, shared: bool) -> None:
    """Output and gradients beside a loop over the members, the mask each one's own or one for all."""
    shape, members = MASKS[mask], 4
    leaves = [torch.randn(members, 3, 2, 5, 8, requires_grad=True) for _ in range(3)]
    if shape is not None:
        leaves.append(torch.randn(*(shape if shared else (members, *shape)), requires_grad=True))
    axes = (0, 0, 0, *([None if shared else 0] if shape is not None else []))
    with Folding("cpu"):
        found = vmap(F.scaled_dot_product_attention, in_dims=axes)(*leaves)
    expected = torch.stack(
        [
            F.scaled_dot_product_attention(*(t if a is None else t[i] for t, a in zip(leaves, axes, strict=True)))
            for i in range(members)
        ]
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    direction = torch.randn_like(found)
    for one, other in zip(
        torch.autograd.grad(found, leaves, direction), torch.autograd.grad(expected, leaves, direction), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_the_optimiser_steps_once_for_members_of_one_rate() -> None:
    """As many calls as there are rates, not members: that is what the stack is for."""
    group = Group(torch.device("cpu"))
    configs = [small(seed=seed, lr=lr) for lr in (1e-3, 2e-3) for seed in range(3)]
    members = [Member(group, config, load(config), None) for config in configs]
    group.advance(members)
    assert group.stack is not None
    assert [len(steps.members) for steps in group.stack.optimizers] == [3, 3]


def test_kin_differ_in_known_fields_alone() -> None:
    """Every field that is free is one of Config's."""
    assert set(Config.model_fields) >= PACE
    assert PACE > KIN
