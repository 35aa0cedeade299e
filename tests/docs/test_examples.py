"""The files that pages show are complete and work."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import page_examples
import pytest

from ablations.study import strict_yaml
from results import style
from slurm.profile import Profile

ROOT = Path(__file__).parent.parent.parent


def files(page: str) -> dict[str, str]:
    """Return the files of a page: name -> text."""
    return {one.file: one.text for one in page_examples.examples((ROOT / "docs" / page).read_text()) if one.file}


def python(folder: Path, *words: str) -> str:
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_style_has_every_key() -> None:
    content = strict_yaml.parse(files("how-to/paper.md")["paper.yaml"], "paper.yaml")
    assert style.parse(content).label("position=none") == "no position"
    assert list(content) == list(style.SECTIONS)
    assert {name: {*content[name]} for name in style.KEYS} == {name: {*keys} for name, keys in style.KEYS.items()}


def test_the_profile_has_every_key() -> None:
    content = strict_yaml.parse(files("how-to/slurm-profile.md")["mycluster.yaml"], "mycluster.yaml")
    assert content.keys() == Profile.model_fields.keys()
    assert Profile.parse(content, "mycluster.yaml").gres == "gpu:a100:1"


def test_weights_converted_from_timm_give_equal_logits(tmp_path: Path) -> None:
    (tmp_path / "convert.py").write_text(files("how-to/weights.md")["convert.py"])
    assert python(tmp_path, "convert.py") == "True\n"
    assert (tmp_path / "back.pth").exists()


@pytest.mark.slow
def test_the_tutorials_position_works_inside_the_package(tmp_path: Path) -> None:
    for package in ("vitcore", "ablations", "results", "slurm", "commonfloor"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    source = files("tutorials/position-embedding.md")["fourier.py"]
    public = "from vitcore import POSITION, Config, Grid, Options, Position\n"
    assert public in source
    own = source.replace(public, "from commonfloor.options import Options\n")
    own = own.replace("    class Options", "    numerics = 1\n\n    class Options").replace(": Config", ": Settings")
    with open(tmp_path / "vitcore/model/position/__init__.py", "a") as file:
        file.write("\n\n" + own)
    checks = "for what, check in contracts('position', 'fourier'): check('position', 'fourier')"
    python(tmp_path, "-c", f"from vitcore.contracts import contracts\n{checks}")
    (tmp_path / "s.yaml").write_text("{question: 'Which?', baseline: {position: 1d}, factors: {position: [fourier]}}")
    assert "position=fourier" in python(tmp_path, "-m", "ablations.cli", "plan", "s.yaml")


def test_the_citation_names_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    cited = strict_yaml.parse((ROOT / "CITATION.cff").read_text(), "CITATION.cff")
    assert cited["version"] == version
    assert f"version = {{{version}}}" in (ROOT / "docs/project/citation.md").read_text()
