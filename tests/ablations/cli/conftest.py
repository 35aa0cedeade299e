"""The command with a small study and its recipe, not yet run, run, and in a copy of what was run."""

import shutil
from pathlib import Path
from textwrap import dedent

import pytest
from in_process import Ablate
from run_trials import called_serially

RECIPE = """
    description: Small. For tests.
    config: {data: digits, width: 16, depth: 1, heads: 2, patch: 2, pool: gap, steps: 30, batch: 16, lr: 2e-3, evaluations: 3}
    seeds: 3
    axes: {patch: [2, 4], lr: [1e-3, 2e-3], data_fraction: [0.5, 1.0]}
    margin: 0.03
"""  # noqa: E501 - one line of YAML
STUDY = """
    question: Does position matter?
    baseline: {position: 1d}
    factors: {position: [none, 1d]}
    published: {position=none: 0.6}
    claims: [position=none < position=1d]
"""


def write_study(folder: Path) -> None:
    (folder / "r.yaml").write_text(dedent(RECIPE))
    (folder / "s.yaml").write_text(dedent(STUDY))


@pytest.fixture
def ablate(ablate: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ablate:
    monkeypatch.delenv("ABLATE_DATA", raising=False)
    write_study(tmp_path)
    return ablate


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    write_study(folder)
    with pytest.MonkeyPatch.context() as there:
        there.chdir(folder)
        for words in (["run", "s.yaml", "--recipe", "r.yaml"], ["export", "--out", "all.parquet"]):
            assert called_serially(there, *words)[0] == 0
    return folder


@pytest.fixture
def there(finished: Path, monkeypatch: pytest.MonkeyPatch) -> Ablate:
    """The command where the study was run, for what changes nothing."""
    monkeypatch.chdir(finished)
    return lambda *words: called_serially(monkeypatch, *words)


@pytest.fixture
def copied(finished: Path, ablate: Ablate, tmp_path: Path) -> Ablate:
    """The command where there is a copy of what was run."""
    shutil.copytree(finished / "runs", tmp_path / "runs")
    return ablate
