"""`make bench-gpu` and its study on a CPU, with tiny models and batches."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from waits import PATIENCE

from benchmarks import gpu as bench_gpu
from benchmarks import loop
from benchmarks.gpu_experiments import EXPERIMENTS
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

    monkeypatch.setitem(bench_gpu.BENCHES, "step-64", (failing, "a goal"))
    with pytest.raises(SystemExit, match="1"):
        bench_gpu.main([*SMALL, "--out", str(tmp_path), "--only", "step-64", "step-32"])
    assert "step-64: OutOfMemoryError: CUDA out of memory.\n" in capsys.readouterr().out
    assert [file.name for file in tmp_path.glob("*.json")] == ["step-32.json"]


# -- the study ---------------------------------------------------------------------------------------------------------


SETTINGS: dict[str, Any] = {"data": "digits", "width": 16, "depth": 2, "heads": 2, "pool": "gap", "steps": 8}
FAR = float("inf")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record commands without running them: a script takes 30 s, ten trials of ours 20 s."""
    made: list[str] = []

    def timed(command: list[str], deadline: float, folder: Path | None = None) -> tuple[float, bool]:
        made.append(command[-1])
        ours = folder is not None
        return (20.0 if ours else 30.0), not (ours and deadline < FAR)

    monkeypatch.setattr(loop, "timed", timed)
    monkeypatch.setattr(loop, "check_alike", lambda config, source: None)
    monkeypatch.setattr(loop, "SAMPLED", ("no-such-program",))
    return made


def test_an_interrupted_study_goes_on(tmp_path: Path, calls: list[str]) -> None:
    """No script is repeated, and the seconds of an interrupted command count."""
    assert loop.resumable_bench(SETTINGS, tmp_path, deadline=0, arms=4, seeds=2) is None
    assert [word.rpartition("/")[2] for word in calls] == ["1.json", "1"]
    found = loop.resumable_bench(SETTINGS, tmp_path, deadline=FAR, arms=4, seeds=2)
    assert [word.rpartition("/")[2] for word in calls[2:]] == ["1", "2.json", "2"]
    assert found["seconds"][loop.GPU_OURS] == {"median": 7.5, "low": 5.0, "high": 10.0}  # (20 + 20) / 4, 20 / 4
    assert found["ratio"][loop.GPU_SCRIPT]["median"] == 4.0  # 30 s a trial over (20 + 20 + 20) / 8
    assert found["busy"] is None
    assert loop.resumable_bench(SETTINGS, tmp_path, deadline=FAR, arms=4, seeds=2) == found
    assert len(calls) == 5


def test_a_command_is_interrupted_at_the_deadline() -> None:
    """It is interrupted as by Ctrl-C, so that it saves its work; a failure has a reason."""
    sleeping = [sys.executable, "-c", "import time; time.sleep(100_000)"]
    seconds, done = loop.timed(sleeping, time.monotonic() + 0.5)
    assert not done
    assert seconds >= 0.5
    assert loop.timed([sys.executable, "-c", ""], time.monotonic() + PATIENCE)[1]
    with pytest.raises(ValueError, match="no room"):
        loop.timed([sys.executable, "-c", "raise SystemExit('no room')"], time.monotonic() + PATIENCE)


@pytest.mark.slow
def test_a_small_study_runs_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two calls with the real commands complete it; an unfinished study is no figure."""
    words = [*SMALL, "--out", str(tmp_path), "--only", "study"]
    bench_gpu.main([*words, "--seconds", "1"])
    assert "study: goes on at the next call" in capsys.readouterr().out
    assert not (tmp_path / "study.json").exists()
    bench_gpu.main(words)
    assert "| study | ours, a trial | " in capsys.readouterr().out
