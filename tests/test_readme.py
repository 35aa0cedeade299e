"""README: its examples run as they stand, its commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ablations import cli
from ablations.cli import benches, data, profiles
from ablations.study import strict_yaml
from slurm.profiles.profile import Profile

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
FILES = re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", README, re.DOTALL)
COMMANDS = re.findall(r"<!-- run -->\n```sh\n(.*?)```", README, re.DOTALL)
SMALL = ["steps=4", "width=16", "depth=1", "heads=2"]


def ablate(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "ablations.cli", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_examples(folder: Path) -> None:
    for name, text in FILES:
        (folder / name).write_text(text)


@pytest.mark.slow
def test_own_position_embedding_and_study_run_as_printed(tmp_path: Path) -> None:
    """The example outside of the packages: checked, planned, run (smaller) and in the table."""
    write_examples(tmp_path)
    (tmp_path / "ablate.toml").unlink()
    (block,) = COMMANDS
    lines = [line.partition("#")[0].split() for line in block.splitlines() if line.strip()]
    assert [words[:2] for words in lines] == [
        ["ablate", "check"], ["ablate", "plan"], ["ablate", "run"], ["ablate", "table"]
    ]  # fmt: skip
    for _, verb, *words in lines:
        smaller = [] if verb == "check" else ["--seeds", "2", *SMALL] if verb in ("plan", "run") else SMALL
        output = ablate(tmp_path, verb, *words, *smaller)
        assert "FAILED" not in output
    assert "slow-fourier" in output
    assert "position=fourier" in output


def test_settings_file_of_the_readme_loads_the_plugin(tmp_path: Path) -> None:
    """With the README's ablate.toml no --plugin is needed."""
    write_examples(tmp_path)
    assert "fourier" in ablate(tmp_path, "plan", "mine.yaml", *SMALL)


def test_the_style_is_one_and_has_every_key() -> None:
    """What the README shows can be copied."""
    from results import style

    content = strict_yaml.parse(dict(FILES)["paper.yaml"], "paper.yaml")
    assert style.parse(content).label("position=none") == "no position"
    assert list(content) == list(style.SECTIONS)
    assert {*content["size"], *content["fonts"], *content["digits"]} == {*style.SIZES, *style.FONTS, *style.DIGITS}


def test_the_profile_is_one_and_has_every_key() -> None:
    """Read as `submit` reads it."""
    content = strict_yaml.parse(dict(FILES)["mycluster.yaml"], "mycluster.yaml")
    assert content.keys() == Profile.model_fields.keys()
    assert Profile.of(content, "mycluster.yaml").gres == "gpu:a100:1"


def test_python_example_runs(tmp_path: Path) -> None:
    """The model and its training alone."""
    write_examples(tmp_path)
    done = subprocess.run([sys.executable, "alone.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 0 <= float(done.stdout) <= 1


def test_conversion_example_runs(tmp_path: Path) -> None:
    """timm's model becomes ours, with equal logits."""
    write_examples(tmp_path)
    done = subprocess.run([sys.executable, "convert.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr
    assert (tmp_path / "back.pth").exists()


@pytest.mark.slow
def test_the_same_part_works_inside_the_package(tmp_path: Path) -> None:
    """One class and one dict line appended to position.py: the contract tests and the command follow."""
    import shutil

    for package in ("vitcore", "ablations", "results", "slurm"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    source = dict(FILES)["fourier.py"].replace("from vitcore.model.position import POSITION, Grid, Position\n", "")
    own = source.replace("from vitcore.config import Config, Options\n", "from vitcore.config import Options\n")
    own = own.replace("    class Options", "    numerics = 1\n\n    class Options")
    with open(tmp_path / "vitcore/model/position/__init__.py", "a") as file:
        file.write("\n\n" + own)
    code = (
        "from vitcore.contracts import contracts\n"
        "for what, check in contracts('position', 'fourier'): check('position', 'fourier')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    study = "{question: 'Which?', baseline: {position: 1d}, factors: {position: [fourier]}}"
    (tmp_path / "s.yaml").write_text(study)
    assert "position=fourier" in ablate(tmp_path, "plan", "s.yaml", *SMALL)


def test_every_command_is_in_the_readme() -> None:
    """The table of commands names each command and no other."""
    documented = set(re.findall(r"^\| `([a-z ]+)` \|", README, re.MULTILINE))
    commands = {command.name or command.callback.__name__ for command in cli.app.registered_commands}  # type: ignore[union-attr]
    grouped = {
        f"{group} {command.name or command.callback.__name__}"  # type: ignore[union-attr]
        for group, app in (("bench", benches.app), ("data", data.app), ("profile", profiles.app))
        for command in app.registered_commands
    }
    assert documented == commands | grouped


def test_links_and_pictures_exist() -> None:
    """No broken relative link."""
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
