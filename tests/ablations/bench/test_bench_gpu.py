"""`make bench-gpu` on a CPU: the same code, with models and batches that take no time."""

import json
from pathlib import Path

import bench_gpu
import pytest

pytest.importorskip("timm")
SMALL = ["--device", "cpu", "--small"]


def test_figures_are_files_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A JSON file a figure with the machine, and one table of all; what was measured is not measured again."""
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


def test_no_figure_begins_after_the_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The next call goes on."""
    words = [*SMALL, "--out", str(tmp_path), "--only", "step-64", "step-32"]
    bench_gpu.main(words)
    (tmp_path / "step-32.json").unlink()
    bench_gpu.main([*words, "--seconds", "-1"])
    assert not (tmp_path / "step-32.json").exists()
    assert "Not measured yet: " in capsys.readouterr().out
