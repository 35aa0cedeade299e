"""No step waits for a GPU: on one that is pretended, and on a real one where there is one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pretended_gpu import GPU, WaitsError, pretended
from torch import Tensor

from vitcore import Config
from vitcore.contracts import tiny
from vitcore.data import Data, load
from vitcore.device import sent
from vitcore.train import Training
from vitcore.variants import VARIANTS

ENTRIES = [(slot, name) for slot, entries in VARIANTS.items() for name in entries]
SETTINGS: list[dict[str, Any]] = [
    {"mixup": 0.2},
    {"cutmix": 1.0},
    {"dropout": 0.1, "drop_path": 0.1},
    {"ema": 0.9, "clip_norm": 1.0},
    {"micro_batch": 3},
    {"label_smoothing": 0.1, "layer_decay": 0.5},
    {"registers": 2, "qk_norm": True, "layer_scale": 0.1},
]


def on(device: torch.device, data: Data) -> Data:
    """Resident there."""
    parts = (part.to(device, resident=True) for part in (data.train, data.val, data.test))
    return Data(*parts, data.mean.to(device), data.std.to(device))


def step_without_waiting(config: Config, steps: int = 1) -> None:
    data = load(config)
    with pretended() as gpu:
        training = Training(config, on(GPU, data))
        gpu.strict = True
        for _ in range(steps):
            training.advance()
    assert all(parameter.device == GPU for parameter in training.model.parameters())


@pytest.mark.parametrize(("slot", "name"), ENTRIES)
def test_no_step_waits_for_a_gpu(slot: str, name: str) -> None:
    """Whatever the part: nothing is read back, nothing is sent from pageable memory."""
    step_without_waiting(tiny(slot, name))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_no_setting_makes_a_step_wait_for_a_gpu(settings: dict[str, Any]) -> None:
    """Nor what the recipe says of the step."""
    step_without_waiting(Config(**tiny("pool", "gap").model_dump() | settings), steps=2)


WAITING: dict[str, Callable[[Tensor], object]] = {
    "reads a number": lambda x: x.sum().item(),
    "branches on it": lambda x: bool(x.any()),
    "reads all": lambda x: x.tolist(),
    "brings it back": lambda x: x.cpu(),
    "finds places": lambda x: x.nonzero(),
    "takes what a mask shows": lambda x: x[x > 0],
    "puts where a mask shows": lambda x: x.__setitem__(x > 0, x[:2]),
    "takes places of the host": lambda x: x[torch.tensor([1])],
    "sends pageable memory": lambda x: torch.ones(3).to(GPU),
    "sends it without waiting": lambda x: torch.ones(3).to(GPU, non_blocking=True),
    "sends pinned memory and waits": lambda x: torch.ones(3).pin_memory().to(GPU),
    "copies from the host": lambda x: x.copy_(torch.ones(3)),
    "makes a tensor of a list": lambda x: torch.tensor([1.0, 2.0], device=GPU),
    "compares": lambda x: torch.equal(x, x + 1),
}


@pytest.mark.parametrize("what", WAITING)
def test_what_waits_is_found(what: str) -> None:
    """Each of these makes the host wait for a GPU (CUDA semantics, torch.cuda.set_sync_debug_mode)."""
    with pretended() as gpu:
        x = torch.zeros(3, device=GPU)
        gpu.strict = True
        with pytest.raises(WaitsError):
            WAITING[what](x)


def test_what_does_not_wait_is_allowed() -> None:
    """Pinned memory, what a GPU makes itself, a mask that is filled; and the host may read what is its own."""
    with pretended() as gpu:
        gpu.strict = True
        x = sent(torch.arange(3.0), GPU)
        assert x.device == GPU
        x[x > 1] = 0
        x[sent(torch.tensor([1]), GPU)] = torch.full((1,), 2.0, device=GPU)
        assert torch.arange(3).nonzero().tolist() == [[1], [2]]
    host = torch.arange(3)
    assert sent(host, host.device) is host


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("augment", VARIANTS["augment"])
def test_no_augment_makes_a_real_gpu_wait(augment: str) -> None:
    """As CUDA itself tells, from the third step on: the first ones load what they need."""
    config = tiny("augment", augment)
    training = Training(config, load(config).to(torch.device("cuda", 0)))
    try:
        for mode in ("default", "default", "error", "error"):
            torch.cuda.set_sync_debug_mode(mode)
            training.advance()
    finally:
        torch.cuda.set_sync_debug_mode("default")
