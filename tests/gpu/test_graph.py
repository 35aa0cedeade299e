"""The step as one CUDA graph beside eager steps of the same kernels, on a GPU."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from trainings import finished

from vitcore import Config, train
from vitcore.contracts import tiny
from vitcore.data.splits import load
from vitcore.keyed_random import RngKeys
from vitcore.model.vit import ViT
from vitcore.runtime.memory import release
from vitcore.training.run import Memory
from vitcore.training.state import Training
from vitcore.training.step_graph import NONE, WARM_UP
from vitcore.variants import VARIANTS

STEPS = 20
# A rate that float32 has exactly, as the graph's is; kernels that repeat to the bit.
EXACT = {"schedule": "constant", "schedule.cooldown": 0.0, "warmup": 0.0, "lr": 2.0**-9, "attention": "pinned"}
ENTRIES = [(slot, name) for slot, variants in VARIANTS.items() for name in variants]
UNFUSED = {"lion", "muon", "schedule-free"}  # optimizers that a graph does not hold


@pytest.fixture(autouse=True)
def repeatable() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def small(**settings: Any) -> Config:
    sizes = {"width": 64, "depth": 2, "heads": 2, "pool": "gap", "steps": STEPS, "batch": 32, "evaluations": 2}
    return Config(**(sizes | EXACT | {"device": "cuda"} | settings))


@pytest.mark.filterwarnings("ignore:.*deterministic")
@pytest.mark.parametrize(("slot", "name"), ENTRIES)
def test_every_part_trains_in_a_graph_as_without(slot: str, name: str) -> None:
    """Twenty steps: the weights agree to the bit, whether the part could be captured or has its reason on record."""
    own = tiny(slot, name).model_dump()
    exact = {key: value for key, value in EXACT.items() if not (slot == "schedule" and key.startswith("schedule"))}
    if slot == "schedule":
        exact |= {"weight_decay": 0.0}
    config = Config(**(own | exact | {"steps": STEPS, "device": "cuda"}))
    graph, eager = finished(config), finished(config.model_copy(update={"cuda_graph": "off"}))
    assert not graph.facts["cuda_graph"].startswith(NONE) or name in UNFUSED, graph.facts
    if slot == "schedule":  # its rates are rounded to float32 in a graph
        assert graph.lines[-1]["val_loss"] == pytest.approx(eager.lines[-1]["val_loss"], rel=1e-3)
    else:
        assert graph.weights == eager.weights


@pytest.mark.filterwarnings("ignore:.*deterministic")
@pytest.mark.parametrize(
    "settings",
    [
        {"augment": "flip-crop-randaugment", "mixup": 0.4, "cutmix": 1.0, "dropout": 0.1, "drop_path": 0.2},
        {"ema": 0.99, "micro_batch": 12, "label_smoothing": 0.1},
        {"precision": "bf16", "position": "relative", "pool": "cls", "registers": 2},
        {"objective": "masked-patch", "optimizer": "sgd"},
        {"objective": "mae", "patch": 2, "precision": "bf16"},
        {"objective": "dino", "augment": "flip-crop", "objective.prototypes": 64},
        {"objective": "ijepa", "patch": 2, "drop_path": 0.1},
    ],
    ids=str,
)
def test_settings_together_train_in_a_graph_as_without(settings: dict[str, Any]) -> None:
    graph, eager = finished(small(**settings)), finished(small(**settings, cuda_graph="off"))
    assert graph.facts["cuda_graph"] == "the whole step"
    assert graph.weights == eager.weights


def test_a_compiled_model_is_captured() -> None:
    """After it is compiled; its losses are near those of the model as it is."""
    run = finished(small(compile=True, steps=40))
    assert run.facts["cuda_graph"] == "the whole step"
    assert run.facts["compile_seconds"] > 0
    plain = finished(small(compile=False, steps=40))
    assert run.lines[-1]["val_loss"] == pytest.approx(plain.lines[-1]["val_loss"], rel=0.02)


def test_a_part_that_waits_is_found_before_the_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value read by the host, as a plug-in may: eager steps to the bit, and its memory is free afterwards."""

    class Reading(ViT):
        def forward(self, images: Tensor, keys: RngKeys = None) -> Tensor:
            logits = super().forward(images, keys)
            return logits if logits.is_meta or logits.abs().max().item() < 1e30 else logits * 0

    monkeypatch.setattr("vitcore.training.objectives.classification.ViT", Reading)
    run = finished(small())
    assert "synchronizing" in run.facts["cuda_graph"]
    assert run.weights == finished(small(cuda_graph="off")).weights
    torch.rand(3, device="cuda")  # the generator does not take it for a capture
    del run
    release()
    assert torch.cuda.memory_reserved() - torch.cuda.memory_allocated() < 64 * 2**20


def test_no_step_waits_for_the_gpu() -> None:
    """After the capture: drawing, sending and replaying raise where the host would be synchronized."""
    config = small(augment="flip-crop-randaugment", mixup=0.2, drop_path=0.1, ema=0.9, steps=WARM_UP + 12)
    training = Training(config, load(config).to(torch.device("cuda", 0)))
    for _ in range(WARM_UP + 2):
        training.advance()
    assert training.train_step.graph.replay is not None
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(8):
            training.advance()
    finally:
        torch.cuda.set_sync_debug_mode(before)


def test_out_of_memory_halves_the_micro_batch() -> None:
    device = torch.device("cuda", 0)
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(3 * 2**30 / total)
    try:
        config = small(width=192, heads=3, depth=6, image_size=32, batch=2048, steps=WARM_UP + 3, evaluations=1)
        outcome = train(config, run := Memory())
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    assert 0 < outcome.micro_batch < 2048
    assert run.facts["cuda_graph"]


def test_a_divergence_is_found_at_its_step() -> None:
    graph, eager = (train(small(lr=2.0**99, cuda_graph=graph), Memory()) for graph in ("auto", "off"))
    assert (graph.status, graph.diverged_at_step) == ("diverged", eager.diverged_at_step)


@pytest.mark.parametrize("position", ["relative", "relative-bias"])
def test_a_learned_bias_learns_in_bf16(position: str) -> None:
    settings = {"attention": "fastest", "precision": "bf16", "steps": 200, "evaluations": 4, "lr": 2.0**-8}
    run = finished(small(position=position, **settings))
    assert run.facts["cuda_graph"] == "the whole step"
    assert run.lines[-1]["val_loss"] < 0.7 * run.lines[0]["val_loss"]
