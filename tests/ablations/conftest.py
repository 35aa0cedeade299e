"""The command `ablate`, in an empty folder."""

from pathlib import Path

import pytest
from in_process import Ablate
from run_trials import called_serially


@pytest.fixture
def ablate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ablate:
    """Return the command, run in `tmp_path`: exit status, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: called_serially(monkeypatch, *words)
