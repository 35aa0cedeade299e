"""Job arrays, with a stand-in for sbatch, and their tasks."""

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from slurm import arrays, intent, job
from slurm.arrays import Tasks

SBATCH = """#!{python}
import json, sys
from pathlib import Path
array = Path(sys.argv[1]).parent
seen = json.loads((array / "intent.json").read_text()), Path(sys.argv[1]).read_text()
(array / "seen.json").write_text(json.dumps(seen))
print("** job 99 ends at noon **\\nSubmitted batch job 7 on cluster a\\nyour job 8 is next")
"""


def test_task_that_is_refused_ends_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert job.run("json:loads", ["{"], []) == job.REFUSED
    assert capsys.readouterr().err == "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)\n"
    with pytest.raises(ZeroDivisionError):
        job.run("operator:floordiv", [1, 0], [])


def test_task_calls_the_function_of_its_script_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function in the folder of a waiting array, where others may write, is not called."""
    intent.write(tmp_path, "vit:0001", "os:rmdir", [str(tmp_path / "kept")], [[]])
    (tmp_path / "kept").mkdir()
    words = shlex.split(
        arrays.task_command(tmp_path / "0001", Tasks("os.path:exists", [], [[]]), Path(job.__file__).parents[1])
    )
    monkeypatch.setattr(sys, "argv", ["job", str(tmp_path), *words[words.index("slurm.job") + 2 :]])
    with pytest.raises(SystemExit) as end:
        job.main()
    assert end.value.code is True
    assert (tmp_path / "kept").exists()


def test_array_is_on_disk_before_sbatch_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "sbatch").write_text(SBATCH.format(python=sys.executable))
    (tmp_path / "sbatch").chmod(0o755)
    array = tmp_path / "0001"
    tasks = Tasks("os.path:exists", ["/"], [[], []])
    assert arrays.send(array, "vit:0001", tasks, {"partition": "gpu", "stderr_to_stdout": True}, tmp_path) == 7
    written, script = json.loads((array / "seen.json").read_text())
    assert written == intent.read(array).model_dump()
    assert (written["tag"], written["function"], written["shares"]) == ("vit:0001", "os.path:exists", [[], []])
    assert "#SBATCH --array=0-1\n" in script
    assert (array / "script.sh").stat().st_mode & 0o777 == 0o600
    assert intent.was_taken(array)
