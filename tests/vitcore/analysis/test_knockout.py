"""Knockouts against forward passes by hand."""

import pytest
import torch
from torch import Tensor, nn

from vitcore.analysis.evals import find
from vitcore.analysis.knockout import position_tables
from vitcore.config import Config
from vitcore.data.splits import Data, load
from vitcore.model.build import build
from vitcore.model.position import POSITION, Grid, Position
from vitcore.model.vit import ViT
from vitcore.settings import Settings

TINY = {"width": 16, "depth": 2, "heads": 2, "patch": 2, "pool": "cls", "registers": 2, "head_init": "lecun-normal"}


@pytest.fixture(scope="module")
def model() -> ViT:
    """Return a model whose predictions depend on registers and positions."""
    torch.manual_seed(0)
    model = ViT(Config(**TINY)).eval()
    for name, parameter in model.named_parameters():
        if name.startswith(("registers", "position", "class_token")):
            parameter.data.normal_()
        elif name.endswith(("stem.weight", "out.weight", "qkv.weight")):
            parameter.data.mul_(6)  # else one class is predicted for every image
    return model


@pytest.fixture(scope="module")
def data(model: ViT) -> Data:
    return load(model.config)


@torch.no_grad()
def by_hand(model: ViT, data: Data, replacements: list[torch.Tensor]) -> tuple[float, list[torch.Tensor]]:
    """Return the accuracy with registers replaced after each block, and the registers (n, 2, D) before that."""
    images = data.standardize(data.test.pixels)
    context = model.context(images, None)
    x = model.embed(images, context)
    seen = []
    for block, replacement in zip(model.encoder.blocks, replacements, strict=True):
        x = block(x, context)
        seen.append(x[:, 1:3].clone())
        x[:, 1:3] = replacement
    logits = model.head(model.encoder.norm(x)[:, 0])
    return (logits.argmax(dim=1) == data.test.labels).double().mean().item(), seen


def test_registers_are_replaced_after_each_block(model: ViT, data: Data) -> None:
    """Zeros and means are those of a forward pass by hand; the model is as before at the end."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = find("knockout@registers").compute(model).metrics
    zeros = [torch.zeros(2, 16)] * 2
    assert found["knockout_zero_accuracy@registers"] == pytest.approx(by_hand(model, data, zeros)[0])
    intact = find("calibration").compute(model).metrics
    _, first = by_hand(model, data, zeros)
    with torch.no_grad():
        states = [state[:, 1:3].mean(dim=0) for state in model.states(data.standardize(data.test.pixels))]
    torch.testing.assert_close(first[0].mean(dim=0), states[0])
    assert found["knockout_mean_accuracy@registers"] == pytest.approx(by_hand(model, data, states)[0], abs=1 / 360)
    assert find("calibration").compute(model).metrics == intact
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_distillation_token_is_no_register() -> None:
    """Zeros replace the two tokens after the class token, not the one after the registers."""
    model = build(Config(**TINY | {"objective.token": True})).eval()
    zeroed = set()

    def note(block: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        zeroed.add(tuple(inputs[0].eq(0).all(dim=2).all(dim=0).nonzero().flatten().tolist()))

    assert isinstance(model, ViT)
    model.encoder.blocks[1].register_forward_pre_hook(note)
    find("knockout@registers").compute(model)
    assert zeroed == {(), (1, 2)}


def test_zeros_for_positions_are_a_model_without_positions(model: ViT, data: Data) -> None:
    found = find("knockout@position").compute(model).metrics
    bare = ViT(Config(**TINY, position="none")).eval()
    bare.load_state_dict({name: value for name, value in model.state_dict().items() if not name.startswith("position")})
    bare.class_token.data += model.position.class_row
    with torch.no_grad():
        predicted = bare(data.standardize(data.test.pixels)).argmax(dim=1)
        intact = model(data.standardize(data.test.pixels)).argmax(dim=1)
    assert (predicted == data.test.labels).sum() != (intact == data.test.labels).sum()
    accuracy = (predicted == data.test.labels).double().mean().item()
    assert found["knockout_zero_accuracy@position"] == pytest.approx(accuracy)
    assert len(found) == 4


class Mixed(Position):
    """A table of embeddings as in timm, which a layer transforms, and parameters that are no tables."""

    numerics = 1

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.table = nn.Parameter(torch.empty(1, 16, config.width))
        self.layer = nn.Linear(config.width, config.width)
        self.kernel = nn.Conv2d(config.width, config.width, 3, padding=1)
        self.by_head = nn.Parameter(torch.empty(2, 16, config.width))

    def tokens(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        return x if layer else x + self.layer(self.table)


def test_only_tables_of_positions_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of layers, kernels and stacks are no positions: they stay, and a note names them."""
    monkeypatch.setitem(POSITION, "mixed", Mixed)
    model = ViT(Config(**TINY, position="mixed")).eval()
    assert list(position_tables(model)) == ["table"]
    computed = find("knockout@position").compute(model)
    assert len(computed.metrics) == 4
    others = "by_head, layer.weight, layer.bias, kernel.weight, kernel.bias"
    assert computed.notes == [f"only tables of position embeddings are replaced, not {others}"]
    for kind, tables in {"2d": ["x_table", "y_table"], "relative-bias": ["tables.0", "tables.1"]}.items():
        assert list(position_tables(ViT(Config(**TINY, position=kind)))) == tables


def test_a_convolution_has_no_positions_to_replace() -> None:
    computed = find("knockout@position").compute(ViT(Config(**TINY, position="cpe")).eval())
    assert computed.metrics == {}
    assert computed.notes == [
        "position=cpe has no learned embeddings to replace",
        "only tables of position embeddings are replaced, not convolution.weight, convolution.bias",
    ]


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("knockout@registers", {"registers": 0}, "eval knockout@registers: registers=0: the model has none"),
        ("knockout@class", {"pool": "gap"}, "eval knockout@class: pool=gap has no class token"),
        ("knockout@heads", {}, "evals: knockout@heads: one of registers, class, position"),
    ],
)
def test_a_knockout_of_what_is_not_there_is_refused(name: str, settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as refusal:
        find(name).check(Config(**TINY | settings))
    assert said in str(refusal.value)
