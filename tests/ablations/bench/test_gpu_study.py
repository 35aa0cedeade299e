"""The study of `make bench-gpu`: its state between two calls, and its figure; no GPU is needed."""

import sys
import time
from pathlib import Path
from typing import Any

import bench_gpu
import gpu_study
import pytest

pytest.importorskip("timm")
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

    monkeypatch.setattr(gpu_study, "timed", timed)
    monkeypatch.setattr(gpu_study.loop, "check_alike", lambda config, source: None)
    monkeypatch.setattr(gpu_study, "SAMPLED", ("no-such-program",))
    return made


def test_an_interrupted_study_goes_on(tmp_path: Path, calls: list[str]) -> None:
    """No script is repeated, and the seconds of an interrupted command count."""
    assert gpu_study.bench(SETTINGS, tmp_path, deadline=0, arms=4, seeds=2) is None
    assert [word.rpartition("/")[2] for word in calls] == ["1.json", "1"]
    found = gpu_study.bench(SETTINGS, tmp_path, deadline=FAR, arms=4, seeds=2)
    assert [word.rpartition("/")[2] for word in calls[2:]] == ["1", "2.json", "2"]
    assert found["seconds"][gpu_study.OURS] == {"median": 7.5, "low": 5.0, "high": 10.0}  # (20 + 20) / 4, 20 / 4
    assert found["ratio"][gpu_study.SCRIPT]["median"] == 4.0  # 30 s a trial over (20 + 20 + 20) / 8
    assert found["busy"] is None
    assert gpu_study.bench(SETTINGS, tmp_path, deadline=FAR, arms=4, seeds=2) == found
    assert len(calls) == 5


def test_a_command_is_interrupted_at_the_deadline() -> None:
    """It is interrupted as by Ctrl-C, so that it saves its work; a failure has a reason."""
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    seconds, done = gpu_study.timed(sleeping, time.monotonic() + 0.5)
    assert not done
    assert 0.5 <= seconds < 30
    assert gpu_study.timed([sys.executable, "-c", ""], time.monotonic() + 60)[1]
    with pytest.raises(ValueError, match="no room"):
        gpu_study.timed([sys.executable, "-c", "raise SystemExit('no room')"], time.monotonic() + 60)


@pytest.mark.slow
def test_a_small_study_runs_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two calls with the real commands complete it; an unfinished study is no figure."""
    words = ["--device", "cpu", "--small", "--out", str(tmp_path), "--only", "study"]
    bench_gpu.main([*words, "--seconds", "1"])
    assert "study: goes on at the next call" in capsys.readouterr().out
    assert not (tmp_path / "study.json").exists()
    bench_gpu.main(words)
    assert "| study | ours, a trial | " in capsys.readouterr().out
