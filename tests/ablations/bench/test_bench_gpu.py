"""`make bench-gpu` on a CPU, with tiny models and batches."""

import json
from pathlib import Path
from typing import Any

import bench_gpu
import pytest
import torch
from gpu_experiments import EXPERIMENTS

from vitcore.model import self_attention
from vitcore.model.self_attention import attend

pytest.importorskip("timm")
SMALL = ["--device", "cpu", "--small"]


def test_figures_are_files_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each figure has a JSON file and a row of the page; it is measured once."""
    words = [*SMALL, "--out", str(tmp_path), "--page", str(tmp_path / "page.md")]
    bench_gpu.main([*words, "--only", "step-192x6", "step-64"])
    assert "step-64: " in capsys.readouterr().out
    found = json.loads((tmp_path / "step-192x6.json").read_text())
    assert found["machine"]["torch"]
    assert {"ours, eager", "timm, a plain script", "timm compiled and captured"} <= found["ratio"].keys()
    bench_gpu.main([*words, "--only", "step-64", "input"])
    assert "step-64: " not in capsys.readouterr().out
    page = (tmp_path / "page.md").read_text()
    assert "| step-64 | ours |" in page
    assert "Not measured yet: step-s4," in page
    assert page.startswith("# ")  # a page of the documentation


def test_no_figure_begins_after_the_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After the time limit no figure begins; the next call continues."""
    words = [*SMALL, "--out", str(tmp_path), "--only", "step-64", "step-32"]
    bench_gpu.main(words)
    (tmp_path / "step-32.json").unlink()
    bench_gpu.main([*words, "--seconds", "-1"])
    assert not (tmp_path / "step-32.json").exists()
    assert "Not measured yet: " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's, of FlexAttention on a CPU
def test_each_experiment_runs_and_computes_the_same(tmp_path: Path) -> None:
    """First losses equal those of the product's step, within 1e-5 in float32."""
    bench_gpu.main([*SMALL, "--out", str(tmp_path), "--only", "experiments"])
    for name in EXPERIMENTS:
        found = json.loads((tmp_path / f"experiment-{name}.json").read_text())
        assert "failed" not in found, found["failed"]
        assert found["ratio"].keys() == {name}
    assert self_attention.attend is attend


def test_a_figure_that_fails_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message has the reason, the figure no file, and the command fails; the next call tries again."""

    def failing(scale: bench_gpu.Scale) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")

    monkeypatch.setitem(bench_gpu.FIGURES, "step-64", (failing, "a goal"))
    with pytest.raises(SystemExit, match="1"):
        bench_gpu.main([*SMALL, "--out", str(tmp_path), "--only", "step-64", "step-32"])
    assert "step-64: OutOfMemoryError: CUDA out of memory.\n" in capsys.readouterr().out
    assert [file.name for file in tmp_path.glob("*.json")] == ["step-32.json"]
