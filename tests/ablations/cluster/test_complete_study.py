"""`ablate submit` of a complete study, and `--dry-run`, with SLURM's commands recorded."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from closed_form import HELPERS, RECIPE, STUDY
from devcluster import wait_until
from in_process import Ablate
from run_trials import called_serially
from small_study import PROFILE, SUBMIT, results
from waits import PATIENCE

COMMANDS = ("sbatch", "squeue", "scontrol", "scancel", "sinfo", "sacct", "sacctmgr")


def write(folder: Path) -> None:
    """Write a study of curves, its recipe for one seed, and a profile."""
    (folder / "s.yaml").write_text(STUDY)
    (folder / "r.yaml").write_text(RECIPE.replace("seeds: 3", "seeds: 1"))
    (folder / "p.yaml").write_text(PROFILE)


@pytest.fixture
def calls(tmp_path: Path, ablate: Ablate, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that records calls of SLURM's commands; the working directory has a small study."""
    folder, file = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()
    for name in COMMANDS:
        (folder / name).write_text(f"#!/bin/sh\necho {name} >> '{file}'\nexit 1\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "study").mkdir()
    monkeypatch.chdir(tmp_path / "study")
    monkeypatch.setenv("PYTHONPATH", HELPERS)  # for workers
    write(Path())
    return file


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run directory of the complete small study."""
    folder = tmp_path_factory.mktemp("trained")
    write(folder)
    with pytest.MonkeyPatch.context() as there:
        there.chdir(folder)
        assert called_serially(there, "run", *SUBMIT[1:-2])[0] == 0
    return folder / "runs"


def files(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return every file and folder with its modification time and size."""
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in [folder, *folder.rglob("*")]}


def test_submit_of_a_complete_study_writes_the_missing_report(trained: Path, calls: Path, ablate: Ablate) -> None:
    shutil.copytree(trained, "runs")
    report = Path("runs/report.html")
    status, output, errors = ablate(*SUBMIT)
    assert (status, errors) == (0, "")
    assert "2 done, 0 to train, 0 tasks already queued, 0 submitted" in output
    assert "report written" in output
    written = report.stat().st_mtime_ns
    status, output, errors = ablate(*SUBMIT)
    assert (status, errors) == (0, "")
    assert "report written" not in output
    assert report.stat().st_mtime_ns == written
    assert not calls.exists()
    assert not list(Path("runs/submissions").glob("[0-9]*"))


@pytest.mark.parametrize(
    ("complete", "arms", "trials"),
    [(True, "*", "0 trials"), (False, "*", "2 trials"), (False, "rate=0.2*", "1 trial")],
)
def test_dry_run_writes_nothing(
    trained: Path, calls: Path, tmp_path: Path, ablate: Ablate, complete: bool, arms: str, trials: str
) -> None:
    """It shows the script if trials are left, asks SLURM nothing, and makes no file, even in the home directory."""
    if complete:
        shutil.copytree(trained, "runs")
    before = files(tmp_path)
    status, output, errors = ablate(*SUBMIT, "--dry-run", "--arm", arms)
    assert (status, errors) == (0, "")
    assert output.startswith(f"# {trials}")
    shown = "#SBATCH --partition=main", "ablations.cluster.node:work", "ablations.cluster.node:last"
    assert all((line in output) is not complete for line in shown)
    assert files(tmp_path) == before


def test_submission_to_this_machine_ends_with_its_report(trained: Path, calls: Path, ablate: Ablate) -> None:
    """submitit starts the code's copy in the background, SLURM is not asked, and results equal those of `run`."""
    command = [sys.executable, "-m", "ablations.cli", *SUBMIT[:-1], "local"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "2 trials to train on this machine" in told
    wait_until(Path("runs/report.html").exists, "the report", PATIENCE)
    assert results(Path("runs")) == results(trained)
    (payload,) = Path("runs").glob("submissions/*/arrays/0001/logs/*_submitted.pkl")
    assert payload.parent.stat().st_mode & 0o777 == 0o700
    assert "nothing is left to train" in ablate(*SUBMIT[:-1], "local")[1]
    assert not calls.exists()


def test_files_that_are_no_profiles_are_refused(calls: Path, ablate: Ablate) -> None:
    for text in ("[main]", "main", ""):
        Path("p.yaml").write_text(text)
        assert ablate(*SUBMIT) == (2, "", "ablate: p.yaml: is not a mapping of keys to values\n")
    assert not calls.exists()
    assert not Path("runs").exists()
