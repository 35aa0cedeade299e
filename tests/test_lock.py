"""The lock: what `make` installs is what constraints.txt pins, each file by its hash."""

import itertools
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LOCKED = ("train", "slurm", "docs", "dev")  # the extras of `make lock`


def blocks() -> list[list[str]]:
    """Return each requirement of requirements.lock with its hashes after it."""
    text = (ROOT / "requirements.lock").read_text().replace(" \\\n    ", "\n")
    return [block.splitlines() for block in re.split(r"\n(?=\w)", text)]


def pins(lines: list[str]) -> dict[str, str]:
    found = map(Requirement, lines)
    return {canonicalize_name(one.name): str(one.specifier) for one in found}


def test_every_locked_file_has_a_hash_and_no_index_is_named() -> None:
    """pip needs the hashes for --require-hashes."""
    for requirement, *hashes in blocks():
        assert re.fullmatch(r"[\w.-]+==[\w.]+( ; .*)?", requirement)
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes)


def test_lock_and_constraints_pin_the_same_versions() -> None:
    """`make lock` writes the lock from the constraints."""
    constrained = pins((ROOT / "constraints.txt").read_text().splitlines())
    assert pins([requirement for requirement, *_ in blocks()]) == constrained


def test_lock_has_what_the_project_needs_to_run_and_to_be_built() -> None:
    """A dependency that is added to pyproject.toml is locked, at a version that it allows."""
    locked = pins([requirement for requirement, *_ in blocks()])
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    optional = about["project"]["optional-dependencies"]
    extras = [needed for extra, needed in optional.items() if extra in LOCKED]
    needed = [*about["build-system"]["requires"], *about["project"]["dependencies"], *(n for e in extras for n in e)]
    for one in map(Requirement, needed):
        assert one.specifier.contains(locked[canonicalize_name(one.name)].removeprefix("==")), one
    assert all("==" in requirement for requirement in about["build-system"]["requires"])


def test_the_oldest_versions_are_those_that_pyproject_names() -> None:
    """`make test-oldest` reads a lower bound of each dependency from pyproject.toml."""
    text, recipe = ((ROOT / name).read_text() for name in ("pyproject.toml", "Makefile"))
    (pattern,) = re.findall(r"grep -oE '(.*?)' pyproject.toml \| sed 's/>=/==/'", recipe)
    bounds = dict(one.split(">=") for one in re.findall(pattern, text))
    about = tomllib.loads(text)["project"]
    extras = (about["optional-dependencies"][extra] for extra in ("train", "slurm", "dev"))
    for one in map(Requirement, itertools.chain(about["dependencies"], *extras)):
        assert f">={bounds[one.name]}" in str(one.specifier).split(",")
    assert bounds["torch"] == "2.11"


def test_make_installs_by_hash_and_builds_without_downloads() -> None:
    """pip fetches no source archive and no build environment."""
    recipe = (ROOT / "Makefile").read_text().partition("$(STAMP):")[2].partition("\n\n")[0]
    commands = re.findall(r"pip install (.*)", recipe)
    assert commands == [
        "--quiet --require-hashes --only-binary :all: -r requirements.lock",
        "--quiet --no-deps --no-build-isolation -e .",
    ]
