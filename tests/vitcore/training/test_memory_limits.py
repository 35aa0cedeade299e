"""What cannot fit into memory is refused in one line before anything is built."""

from pathlib import Path

import pytest
import torch
from in_process import called

from vitcore import Config, train
from vitcore.analysis.cost import measure
from vitcore.model.build import build
from vitcore.options import ConfigError
from vitcore.runtime.host import least_bytes

HUGE = {"width": 32_768, "depth": 16, "heads": 16, "patch": 8, "pool": "gap"}


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_the_estimate_is_what_a_step_keeps(optimizer: str) -> None:
    """Weights, gradients, the optimizer's numbers and each block's input, counted on tensors of torch."""
    model = build(config := Config(width=32, depth=3, heads=2, patch=2, optimizer=optimizer))
    inputs: list[torch.Tensor] = []
    for block in model.encoder.blocks:
        block.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    model(torch.zeros(1, 1, 8, 8)).sum().backward()
    stepping = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[optimizer](model.parameters())
    stepping.step()
    kept = [value for state in stepping.state.values() for value in state.values() if value.ndim]
    tensors = [*model.parameters(), *(p.grad for p in model.parameters() if p.grad is not None), *kept, *inputs]
    assert least_bytes(dict(config), measure(config)) == sum(4 * tensor.numel() for tensor in tensors)


def test_a_model_beyond_the_memory_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the library and the command line: its sizes, what it needs and what there is."""
    with pytest.raises(ConfigError, match=r"width=32768, depth=16, image_size=8: a training needs 3,29.*GB at least"):
        train(Config(**HUGE))
    monkeypatch.chdir(tmp_path)
    words = [f"{name}={value}" for name, value in HUGE.items()]
    status, _, errors = called(monkeypatch, "train", *words, "--runs", str(tmp_path / "runs"))
    assert (status, len(errors.splitlines())) == (2, 1)
    assert "depth=16" in errors
    assert not (tmp_path / "runs").exists()


def test_seeds_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred million seeds are refused before one is planned."""
    status, _, errors = called(monkeypatch, "plan", "pooling", "--seeds", "100000000", "--runs", str(tmp_path / "runs"))
    assert (status, "'--seeds'" in errors) == (2, True)
    (tmp_path / "r.yaml").write_text("{description: d, config: {data: digits}, seeds: 100000000}")
    words = ("plan", "pooling", "--recipe", str(tmp_path / "r.yaml"), "--runs", str(tmp_path / "runs"))
    status, _, errors = called(monkeypatch, *words)
    assert (status, "seeds=100000000" in errors) == (2, True)
