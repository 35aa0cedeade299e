"""The house: who imports whom, and which commands never load torch."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Container
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MOST_FILES = 19  # in one folder
MAY_IMPORT = {
    "vitcore": {"vitcore"},
    "slurm": {"slurm"},
    "results": {"results"},
    "ablations": {"ablations", "vitcore", "slurm", "results"},
}


def imported(path: Path) -> set[str]:
    """Top-level names of every import in a file, late ones included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_downward(package: str) -> None:
    """The three lower rooms know nothing of each other nor of the one above."""
    for path in (ROOT / package).rglob("*.py"):
        foreign = imported(path) & set(MAY_IMPORT) - MAY_IMPORT[package]
        assert not foreign, f"{path.relative_to(ROOT)} imports {foreign}"


def modules_of(package: str) -> dict[str, Path]:
    """Every module of a package by its dotted name."""
    paths = (ROOT / package).rglob("*.py")
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def runtime_imports(path: Path, modules: Container[str]) -> set[str]:
    """The modules that a file imports when it runs, inside functions too; not what types alone need."""
    names: set[str] = set()
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            full = (f"{node.module}.{alias.name}" for alias in node.names)
            names |= {name if name in modules else str(node.module) for name in full}
        pending.extend(ast.iter_child_nodes(node))
    return {name for name in names if name in modules}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    modules = modules_of(package)
    graph = {name: runtime_imports(path, modules) - {name, package} for name, path in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("room", [*MAY_IMPORT, "tests"])
def test_a_folder_has_few_files(room: str) -> None:
    """A reader can take in a folder at a glance."""
    for folder in (ROOT / room).rglob("*"):
        files = list(folder.glob("*.py"))
        assert len(files) <= MOST_FILES, f"{folder.relative_to(ROOT)} has {len(files)} files"


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_public_names_are_shown_and_load(package: str) -> None:
    """`dir` of a package lists its public names, wherever they are defined."""
    module = importlib.import_module(package)
    assert len(dir(module)) > 3
    for name in dir(module):
        assert getattr(module, name) is not None


def test_results_never_imports_torch() -> None:
    """Not even late: tables and figures work where torch is not installed."""
    for path in (ROOT / "results").rglob("*.py"):
        assert not imported(path) & {"torch", "torchvision", "timm", "safetensors"}, path


def test_importing_loads_no_torch() -> None:
    """The base install reads and draws."""
    modules = (
        *("vitcore", "vitcore.config", "slurm", "ablations.cli", "ablations.study.study"),
        *("ablations.execution.runner", "ablations.reporting.status"),
    )
    code = "".join(f"import {module}; assert 'torch' not in sys.modules, '{module}'\n" for module in modules)
    done = subprocess.run([sys.executable, "-c", f"import sys\n{code}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_trial_loads_only_what_it_needs() -> None:
    """Training with any optimizer loads neither scikit-learn nor other packages that take seconds to import."""
    code = """
import sys
from vitcore import Config, train
from vitcore.training.optimization.optimizers import OPTIMIZER

for name in OPTIMIZER:
    train(Config(width=16, depth=1, heads=2, steps=2, batch=8, optimizer=name))
unneeded = {"sklearn", "scipy", "torchvision", "timm", "pandas", "matplotlib", "rich", "typer", "yaml"}
assert not unneeded & set(sys.modules), unneeded & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_nothing_generated_lies_inside_the_packages() -> None:
    allowed = {".py", ".yaml", ".j2", ".pyc", ".typed", ".sh", ".conf"}
    for package in MAY_IMPORT:
        for path in (ROOT / package).rglob("*"):
            assert path.is_dir() or path.suffix in allowed, path


def test_version_is_the_newest_of_the_changelog() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    newest = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest[1] == version
