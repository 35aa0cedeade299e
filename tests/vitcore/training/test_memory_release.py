"""What a training held is free once it is over, without waiting for Python to look for what refers to itself."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import trainings

from vitcore import train
from vitcore.contracts import tiny
from vitcore.runtime.memory import shrinking
from vitcore.training.loop import Training
from vitcore.training.run import Memory
from vitcore.variants import VARIANTS

LARGE = ("resnet",)  # its channels are the paper's at any width
ENTRIES = [(slot, name) for slot, variants in VARIANTS.items() for name in variants if name not in LARGE]


class Watch:
    """The trainings that were made, their models, weights and images, without keeping any of them."""

    def __init__(self) -> None:
        self.parts: list[weakref.ref[Any]] = []
        self.left: list[list[str]] = []  # what was alive as each training was made

    def see(self, training: Training) -> None:
        data, optimizer = training.data, training.optimizer
        held = [training, training.model, *training.model.parameters(), training.losses, training.order, optimizer]
        held += [part.pixels for part in (data.train, data.val, data.test)]
        self.parts += [weakref.ref(one) for one in held]

    def alive(self) -> list[str]:
        return [type(one).__name__ for reference in self.parts if (one := reference()) is not None]


@pytest.fixture(scope="module")
def imported() -> None:
    """What is imported late is, with what its own errors hold."""
    train(trainings.tiny(steps=1, device="cpu"))


@pytest.fixture
def watch(imported: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Python looks for nothing in the meantime."""
    seen, honest = Watch(), Training.__init__

    def init(self: Training, *args: Any) -> None:
        seen.left.append([name for name in seen.alive() if name != "Tensor"])  # images are shared
        honest(self, *args)
        seen.see(self)

    monkeypatch.setattr(Training, "__init__", init)
    gc.disable()
    yield seen
    gc.enable()


@pytest.mark.parametrize(("slot", "name"), ENTRIES)
def test_a_training_leaves_with_its_model_and_images(watch: Watch, slot: str, name: str) -> None:
    pytest.importorskip("timm.models.resnetv2")  # an import inside of a training keeps frames of it, once
    config = tiny(slot, name).model_copy(update={"steps": 2, "evaluations": 1, "ema": 0.9})
    assert train(config).status == "finished"
    assert (watch.left, watch.alive()) == ([[]], [])


def test_a_training_that_diverged_has_left_before_it_is_tried_again(watch: Watch) -> None:
    """Two of them may not fit into memory: the second is made when nothing of the first is left."""
    assert train(trainings.tiny(lr=1e30, device="cpu"), Memory()).status == "diverged"
    assert (watch.left, watch.alive()) == ([[], []], [])


def test_what_refers_to_itself_is_gone_before_less_is_tried() -> None:
    """Tensors held by a cycle are memory that the next attempt can have."""

    class Holder:
        def __init__(self) -> None:
            self.own, self.tensor = self, torch.zeros(1)

    held: list[weakref.ref[Any]] = []

    def work(size: int) -> int:
        if size > 1:
            held.append(weakref.ref(Holder()))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return sum(reference() is not None for reference in held)

    gc.disable()
    try:
        assert shrinking(work, 8) == (0, 1)
    finally:
        gc.enable()
    assert len(held) == 3
