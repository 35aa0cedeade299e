"""Commands say in one line what to install if the package of an extra is missing."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ablations.extras import EXTRAS, to_install

STUDY = "{question: q, baseline: {position: 1d}, factors: {position: [none, 1d]}}"
TRAIN = [name for name, extra in EXTRAS.items() if extra == "train"]
WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({TRAIN}))"  # run by every Python, those of workers too


@pytest.mark.parametrize("words", ["run s.yaml", "plan s.yaml", "train steps=2", "check s.yaml", "bench step"])
def test_what_trains_says_that_torch_is_missing(words: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "s.yaml").write_text(STUDY)
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    command = [sys.executable, "-m", "ablations.cli", *words.split()]
    own = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path / "here", env=own, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "pip install 'vit-ablations[train]'" in done.stderr
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["s.yaml"]


def test_every_optional_package_is_known() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    extras = {key: names for key, names in project["optional-dependencies"].items() if key not in ("dev", "docs")}
    said = {name.partition(">")[0]: extra for extra, names in extras.items() for name in names}
    said["sklearn"] = said.pop("scikit-learn")
    assert said == EXTRAS
    assert to_install(ModuleNotFoundError(name="nothing_of_this_name")) == ""
