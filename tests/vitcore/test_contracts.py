"""Contract tests and golden losses, over the dictionaries: a new entry is tested with no other edit."""

import itertools
import json
import math

import golden
import pytest
import torch
from torch import nn

from vitcore.config import Config, merge
from vitcore.contracts import Contract, compiles, contracts, tiny
from vitcore.data.splits import load
from vitcore.model.pooling import POOLING, GlobalAverage
from vitcore.model.position import POSITION, Position
from vitcore.model.stem import STEM
from vitcore.training.state import Training
from vitcore.variants import PARTS, VARIANTS

DATA = load(Config())


def marks(slot: str, name: str, check: Contract) -> list[pytest.MarkDecorator]:
    """TorchDynamo takes seconds: here one position and one attention, the others with the slow tests."""
    return [pytest.mark.slow] if check is compiles and name not in ("cpe", "differential") else []


TOGETHER_WITH = {"position": ["1d+rope2d"]}  # further values that the dictionary does not list
CASES = [
    pytest.param(slot, name, check, id=f"{slot}={name} {what}", marks=marks(slot, name, check))
    for slot, parts in VARIANTS.items()
    for name in (*parts, *TOGETHER_WITH.get(slot, ()))
    for what, check in contracts(slot, name)
]


@pytest.mark.parametrize(("slot", "name", "check"), CASES)
def test_entry_keeps_its_contract(slot: str, name: str, check: Contract) -> None:
    check(slot, name)


@pytest.mark.slow
@pytest.mark.parametrize(("slot", "name"), [(slot, name) for slot in PARTS for name in VARIANTS[slot]])
def test_part_is_unchanged_by_inductor(slot: str, name: str) -> None:
    compiles(slot, name, "inductor")


STEMS = list(STEM)
LARGE = ("resnet",)  # its channels are the paper's at any width: seconds for each model
TOGETHER = [
    (position, pool, STEMS[(i + j) % len(STEMS)])
    for (i, position), (j, pool) in itertools.product(enumerate(POSITION), enumerate(POOLING))
]


@pytest.mark.parametrize(
    ("position", "pool", "stem"),
    [pytest.param(*parts, marks=pytest.mark.slow if parts[2] in LARGE else ()) for parts in TOGETHER],
)
def test_parts_go_together(position: str, pool: str, stem: str) -> None:
    """For every two of positions, poolings and stems, a step of training leaves the model finite."""
    others = {"position": position, "position_at": "", "pool": pool}
    training = Training(Config(**merge(tiny("stem", stem).model_dump(), others)), DATA)
    training.advance()
    assert all(parameter.isfinite().all() for parameter in training.model.parameters())


class ReadsRegisters(GlobalAverage):
    numerics = 1

    def forward(self, x: torch.Tensor, prefix: int) -> torch.Tensor:
        return x.mean(dim=1)


class ReadsPatchesAlone(GlobalAverage):
    numerics = 1
    class_token = True


class EveryPatch(GlobalAverage):
    numerics = 1

    def forward(self, x: torch.Tensor, prefix: int) -> torch.Tensor:
        return x[:, prefix:]


class NaNBesideRegisters(Position):
    numerics = 1

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.factor = float("nan") if config.registers else 1.0

    def between(self, x: torch.Tensor, layer: int, grid: tuple[int, int]) -> torch.Tensor:
        return x * self.factor


class Unused(Position):
    """Has a parameter that nothing reads, and no place."""

    numerics = 1

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.unused = nn.Parameter(torch.zeros(3))


class Random(Position):
    numerics = 1

    def tokens(self, x: torch.Tensor, layer: int, grid: tuple[int, int]) -> torch.Tensor:
        return x + torch.rand(()) * 1e-3 if self.training else x


class OneGrid(Position):
    numerics = 1
    said = "no"

    def tokens(self, x: torch.Tensor, layer: int, grid: tuple[int, int]) -> torch.Tensor:
        if grid != (4, 4):
            raise ValueError(self.said.format(grid=grid, count=math.prod(grid)))
        return x


READS = "reads patches, or the class token"
SIZES = "runs at another resolution or says why not"
BROKEN: list[tuple[str, type[nn.Module], str, str]] = [
    ("pool", ReadsRegisters, READS, r"reads the tokens before the patches: read x.*, or set class_token = True"),
    ("pool", ReadsPatchesAlone, READS, "pool=mine: has a class token and does not read it"),
    ("pool", EveryPatch, "trains", r"pool=mine: logits of shape \(8, 16, 10\), not \(B, classes\) = \(8, 10\)"),
    ("position", NaNBesideRegisters, "works beside prefix tokens", "position=mine: logits are not finite"),
    ("position", Unused, "trains", "position.unused: no gradient reaches it"),
    ("position", Unused, "declares its initial values", "position.unused: its value in __init__ is drawn over"),
    ("position", Unused, "says where a patch is", "position=mine: shuffling the patches leaves the logits as they"),
    ("position", OneGrid, SIZES, "not with a ValueError that names the part or the sizes: no"),
    ("position", Random, "deterministic", "position=mine: two training runs with one seed end differently"),
    ("position", Random, "resumes", "position=mine: a resumed training ends differently"),
]


@pytest.mark.parametrize(("slot", "part", "what", "message"), BROKEN)
def test_contract_catches_a_broken_part(
    slot: str, part: type[nn.Module], what: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VARIANTS[slot], "mine", part)
    with pytest.raises(AssertionError, match=message):
        dict(contracts(slot, "mine"))[what](slot, "mine")


@pytest.mark.parametrize("said", ["made for a grid of 4 x 4, not {grid}", "has 16 places and met {count} patches"])
def test_position_that_cannot_be_resized_names_the_sizes(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POSITION, "mine", OneGrid)
    monkeypatch.setattr(OneGrid, "said", said)
    dict(contracts("position", "mine"))[SIZES]("position", "mine")


def test_only_the_packages_own_needs_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    check = dict(contracts("position", "1d"))["says what it is"]
    monkeypatch.setitem(POSITION, "mine", Unused)
    check("position", "mine")
    monkeypatch.setattr(Unused, "__doc__", None)
    with pytest.raises(AssertionError, match="position=mine: has no docstring"):
        check("position", "mine")
    monkeypatch.setattr(POSITION["1d"], "__doc__", "A table.")
    with pytest.raises(AssertionError, match="position=1d: its docstring names no source"):
        check("position", "1d")


PINNED = json.loads(golden.FILE.read_text())


@pytest.mark.parametrize(("slot", "name"), golden.entries())
def test_entry_computes_what_it_did(slot: str, name: str) -> None:
    """The loss after three steps is the pinned one; a new entry is pinned by `make golden`."""
    entry = f"{slot}={name}"
    assert entry in PINNED, f"{entry} is new: `make golden` pins its loss"
    changed = f"{entry} computes something else: raise its numerics, then `make golden`"
    assert golden.loss(slot, name) == pytest.approx(PINNED[entry], rel=golden.TOLERANCE.get(entry, 1e-7)), changed


def test_nothing_is_pinned_that_is_not_there() -> None:
    assert set(PINNED) == {f"{slot}={name}" for slot, name in golden.entries()}
