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
MOST_FILES = 20  # in one folder
MOST_LATE_IMPORTS = 33  # inside functions; lower it when you remove one
OPTIONAL = {
    "timm",
    "torchvision",
    "tensorboard",
    "wandb",
    "mlflow",
    "submitit",
    "mcp",
    "anyio",
}  # loaded where they are needed
MAY_IMPORT = {
    "commonfloor": {"commonfloor"},
    "vitcore": {"commonfloor", "vitcore"},
    "slurm": {"commonfloor", "slurm"},
    "results": {"commonfloor", "results"},
    "ablations": {"ablations", "commonfloor", "vitcore", "slurm", "results"},
}


def imports(path: Path, modules: Container[str] = ()) -> set[str]:
    """Return what a file imports, inside functions too: full names of `modules`, otherwise the part before import."""
    names: set[str] = set()
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            full = (f"{node.module}.{alias.name}" for alias in node.names)
            names |= {name if name in modules else str(node.module) for name in full}
        pending.extend(ast.iter_child_nodes(node))
    return names


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_downward(package: str) -> None:
    """The results package needs no torch, not even late: tables and figures work where it is not installed."""
    forbidden = set(MAY_IMPORT) - MAY_IMPORT[package]
    if package == "results":
        forbidden |= {"torch", "torchvision", "timm", "safetensors"}
    for path in (ROOT / package).rglob("*.py"):
        found = {name.partition(".")[0] for name in imports(path)}
        assert not found & forbidden, path.relative_to(ROOT)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    """Imports inside functions and imports for annotations count."""
    paths = [path.relative_to(ROOT) for path in (ROOT / package).rglob("*.py")]
    modules = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    found = {name: imports(ROOT / path, modules) for name, path in modules.items()}
    graph = {name: names & modules.keys() - {name, package} for name, names in found.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")


# Who else imports vitcore. Shrinks to nothing.
KNOW_VITCORE = {"__init__.py"}


def test_only_the_trainable_of_vits_imports_vitcore() -> None:
    """The engine trains anything: what it knows of Vision Transformers is in one folder."""
    for path in (ROOT / "ablations").rglob("*.py"):
        relative = path.relative_to(ROOT / "ablations")
        if relative.parts[0] in KNOW_VITCORE or relative.parts[:2] == ("trainables", "vit"):
            continue
        found = {name for name in imports(path) if name.partition(".")[0] == "vitcore"}
        assert not found, f"{relative}: {found}"


def test_folders_of_ablations_form_no_circle() -> None:
    """Each folder is above or below any other: no two import each other, even by way of different modules."""
    graph: dict[str, set[str]] = {}
    folder_name = re.compile(r"ablations\.(\w+)")
    modules = {f"ablations.{path.stem}" for path in (ROOT / "ablations").glob("*")}
    for path in (ROOT / "ablations").rglob("*.py"):
        folder = path.relative_to(ROOT / "ablations").parts[0].removesuffix(".py")
        found = filter(None, map(folder_name.match, imports(path, modules)))
        graph.setdefault(folder, set()).update(match[1] for match in found)
    graph = {folder: names - {folder} for folder, names in graph.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of folders: {' -> '.join(error.args[1])}")


def late_imports(path: Path) -> list[str]:
    """Return the imports inside the functions of a file, as "file:line module"."""
    found: dict[ast.AST, str] = {}
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.ImportFrom):
                found[node] = str(node.module)
            elif isinstance(node, ast.Import):
                found[node] = node.names[0].name
    return [f"{path.relative_to(ROOT)}:{node.lineno} {name}" for node, name in found.items()]


def test_few_imports_stand_inside_functions() -> None:
    """Imports of optional libraries do not count."""
    found: list[str] = []
    for package in MAY_IMPORT:
        for path in sorted((ROOT / package).rglob("*.py")):
            found += late_imports(path)
    counted = [one for one in found if one.split()[1].partition(".")[0] not in OPTIONAL]
    assert len(counted) <= MOST_LATE_IMPORTS, "\n".join(counted)


@pytest.mark.parametrize("room", [*MAY_IMPORT, "benchmarks", "tests"])
def test_a_folder_has_few_files(room: str) -> None:
    for folder in (ROOT / room, *(ROOT / room).rglob("*")):
        files = list(folder.glob("*.py"))
        assert len(files) <= MOST_FILES, f"{folder.relative_to(ROOT)} has {len(files)} files"


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_public_names_are_shown_and_load(package: str) -> None:
    """`dir` of a package lists its public names, wherever they are defined."""
    module = importlib.import_module(package)
    assert len(dir(module)) > 3
    for name in dir(module):
        assert getattr(module, name) is not None


def test_importing_loads_no_torch() -> None:
    modules = (
        *("vitcore", "vitcore.config", "slurm", "ablations.cli", "ablations.study.study"),
        *("ablations.execution.runner", "ablations.status.study_status", "ablations.cluster.submit"),
    )
    code = "".join(f"import {module}; assert 'torch' not in sys.modules, '{module}'\n" for module in modules)
    done = subprocess.run([sys.executable, "-c", f"import sys\n{code}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_nothing_generated_lies_inside_the_packages() -> None:
    allowed = {".py", ".pyi", ".yaml", ".j2", ".pyc", ".typed"}
    for package in MAY_IMPORT:
        for path in (ROOT / package).rglob("*"):
            assert path.is_dir() or path.suffix in allowed, path


def test_version_is_the_newest_of_the_changelog() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    newest = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest[1] == version
