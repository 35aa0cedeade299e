"""The contract tests, over the dictionaries: a new entry is tested with no other edit."""

import pytest
import torch
from torch import nn

from vitcore.config import Config, merge
from vitcore.contracts import Contract, compiles, contracts, tiny
from vitcore.data import load
from vitcore.pooling import POOLING
from vitcore.position import POSITION, Position
from vitcore.stem import STEM
from vitcore.train import Training
from vitcore.variants import PARTS, VARIANTS

DATA = load(Config())
CASES = [
    pytest.param(slot, name, check, id=f"{slot}={name} {what}")
    for slot, parts in VARIANTS.items()
    for name in parts
    for what, check in contracts(slot, name)
]


@pytest.mark.parametrize(("slot", "name", "check"), CASES)
def test_entry_keeps_its_contract(slot: str, name: str, check: Contract) -> None:
    """Every entry of every slot keeps every contract."""
    check(slot, name)


@pytest.mark.slow
@pytest.mark.parametrize(("slot", "name"), [(slot, name) for slot in PARTS for name in VARIANTS[slot]])
def test_part_is_unchanged_by_inductor(slot: str, name: str) -> None:
    """The compiler that trainings use, too, keeps logits and gradients."""
    compiles(slot, name, "inductor")


LARGE = ("resnet",)  # its channels are the paper's at any width: seconds for each of sixty models
STEMS = [pytest.param(name, marks=pytest.mark.slow if name in LARGE else ()) for name in STEM]


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("pool", POOLING)
@pytest.mark.parametrize("position", POSITION)
def test_parts_go_together(position: str, pool: str, stem: str) -> None:
    """Every position, pooling and stem build one model, and a step of training leaves it finite."""
    others = {"position": position, "position_at": "", "pool": pool}
    training = Training(Config(**merge(tiny("stem", stem).model_dump(), others)), DATA)
    training.advance()
    assert all(parameter.isfinite().all() for parameter in training.model.parameters())


class Broken(Position):
    """A position that breaks what it can: unused parameter, hidden randomness, no place."""

    numerics = 1

    def __init__(self, config: object) -> None:
        super().__init__(config)
        self.unused = nn.Parameter(torch.zeros(3))

    def tokens(self, x: torch.Tensor, layer: int, grid: tuple[int, int]) -> torch.Tensor:
        return x + torch.rand(()) * 1e-3 if self.training else x


@pytest.mark.parametrize("what", ["trains", "deterministic", "resumes", "says where a patch is", "names its source"])
def test_contract_catches_a_broken_part(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that breaks its contracts is told which, in a sentence that names it."""
    monkeypatch.setitem(POSITION, "broken", Broken)
    check = dict(contracts("position", "broken"))[what]
    if what == "says where a patch is":
        monkeypatch.setattr(Broken, "tokens", Position.tokens)
    with pytest.raises(AssertionError, match=r"broken|unused"):
        check("position", "broken")
