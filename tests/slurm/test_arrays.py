"""Job arrays, with a stand-in for sbatch, and their tasks."""

import os
import sys
from pathlib import Path

import pytest

from slurm import arrays, task
from slurm.arrays import JobArray
from slurm.profile import Profile

SBATCH = """#!{python}
print("** job 99 ends at noon **\\nSubmitted batch job 7 on cluster a\\nyour job 8 is next")
"""


def test_task_that_is_refused_ends_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert task.run("json:loads", ["{"]) == task.REFUSED
    assert capsys.readouterr().err == "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)\n"
    with pytest.raises(ZeroDivisionError):
        task.run("operator:floordiv", [1, 0])


def test_script_is_private_and_complete_before_sbatch_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job id is read from sbatch's own line, whatever a banner says."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "sbatch").write_text(SBATCH.format(python=sys.executable))
    (tmp_path / "sbatch").chmod(0o755)
    array = JobArray(tmp_path / "0001", "vit:0001", "os.path:exists", ["/"], Profile(), tmp_path, count=2)
    assert arrays.submit(array) == 7
    assert "#SBATCH --array=0-1\n" in array.script.read_text()
    assert array.script.stat().st_mode & 0o777 == 0o600


def test_script_reads_as_an_experts(tmp_path: Path) -> None:
    """Nothing is said that SLURM would take for granted, and PYTHONPATH is extended, not replaced."""
    profile = Profile(partition="gpu", cpus=4, memory="16G", time="1-00:00:00", setup=("module load cuda",))
    array = JobArray(tmp_path / "a", "vit:0001", "m:f", ["x y"], profile, tmp_path / "code", "pooling", count=8)
    code = tmp_path / "code"
    python = f"{sys.executable} -u -P -m slurm.task {code} m:f 'x y'"
    assert (
        arrays.script(array)
        == f"""#!/bin/bash
#SBATCH --job-name=pooling:vit:0001
#SBATCH --comment=vit:0001
#SBATCH --array=0-7
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --time=1-00:00:00
#SBATCH --requeue
#SBATCH --gres=gpu:1
#SBATCH --chdir={tmp_path}
#SBATCH --output={tmp_path}/a/logs/%A_%a_log.out
#SBATCH --open-mode=append

module load cuda
export PYTHONPATH={code}${{PYTHONPATH:+:$PYTHONPATH}} PYTHONSAFEPATH=1

srun --unbuffered --cpus-per-task=4 {python}
"""
    )
