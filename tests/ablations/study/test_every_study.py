"""Every packaged study runs on digits, from its file to its figure, with two seeds and few steps."""

import json
from pathlib import Path

import pytest
from in_process import called

from ablations.study.reading import packaged

SHORT = ["steps=100", "evaluations=1"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("every") / "runs"


@pytest.mark.parametrize("study", packaged("studies"))
def test_study_runs_from_its_file_to_its_figure(study: str, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = [study, *SHORT, "--runs", str(runs)]
    assert called(monkeypatch, "run", *where, "--seeds", "2")[0] == 0
    status, output, _ = called(monkeypatch, "table", *where, "--json", "--strict")
    rows = json.loads(output)["rows"]
    assert (status, {row["n"] + row["diverged"] for row in rows}) == (0, {2})
    status, output, errors = called(monkeypatch, "plot", *where)
    assert (status, errors) == (0, "")
    assert Path(output.strip()).stat().st_size > 10_000
