"""The local files that a plug-in imports: modules beside it, and modules outside Python's library folders.

Modules beside it come before those of the same name on PYTHONPATH, so that copies of both import the copies.
"""

import ast
import hashlib
import importlib
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import resolve_name, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from ablations.provenance import PACKAGES

SITES = {*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))}
SITES |= {*site.getsitepackages(), site.getusersitepackages()}
LIBRARIES = tuple(Path(folder).resolve() for folder in SITES)
LOADERS = ("import_module", "__import__", "exec", "run_path", "run_module", "spec_from_file_location")
INSTALLED = {"site-packages", "dist-packages"}


@dataclass(frozen=True)
class LocalFile:
    """A local file that a plug-in imports. module: its name, dotted, without the plug-in's own name."""

    module: str
    path: Path
    content: bytes

    @property
    def relative(self) -> Path:
        parts = self.module.split(".")
        return Path(*(parts if self.path.stem == "__init__" else parts[:-1]), self.path.name)


def digest(source: bytes, files: Iterable[LocalFile]) -> str:
    """Return the digest of a plug-in and its local files, whichever folder they are in: 12 hexadecimal digits."""
    hashed = hashlib.sha256(source)
    for file in sorted(files, key=lambda file: file.module):
        hashed.update(f"\0{file.module}\0{hashlib.sha256(file.content).hexdigest()}".encode())
    return hashed.hexdigest()[:12]


class LocalImports:
    """The local files that the text of a plug-in imports, directly or by way of each other.

    neighbors: the top-level modules beside it. unseen: places that load code whose name does not stand there. Raises
    ValueError if a neighbor has the name of another module that Python would find first.
    """

    def __init__(self, path: Path, plugin: ModuleSpec, source: bytes) -> None:
        importlib.invalidate_caches()
        self.path = path
        self.folder = str(path.parent)
        self.plugin = plugin
        self.files: dict[str, LocalFile] = {}
        self.neighbors: set[str] = set()
        self.unseen: list[str] = []
        pending = [(source, plugin.name, path.name)]
        while pending:
            text, package, shown = pending.pop()
            try:
                tree = ast.parse(text)
            except (SyntaxError, ValueError):  # importing it will say so
                continue
            self.unseen += [f"{shown}:{line}" for line in dynamic_loads(tree)]
            for name in imported_names(tree, package):
                for spec in self.local_specs(name):
                    file = self.add(spec)
                    if file is not None:
                        pending.append((file.content, spec.parent or "", str(file.relative)))

    @classmethod
    def of_file(cls, path: Path, source: bytes) -> "LocalImports":
        """Return the imports of a file under its own name, as a package, so that `from . import helper` counts."""
        spec = spec_from_file_location(path.stem, path, submodule_search_locations=[str(path.parent)])
        assert spec is not None  # the name ends in .py
        return cls(path, spec, source)

    def add(self, spec: ModuleSpec) -> LocalFile | None:
        """Add the file of a module, unless it is unreadable. Return it if it is new and Python source."""
        module = spec.name.removeprefix(f"{self.plugin.name}.")
        if spec.origin is None or module in self.files or Path(spec.origin).resolve() == self.path:
            return None
        try:
            content = Path(spec.origin).read_bytes()
        except OSError:
            return None
        self.files[module] = file = LocalFile(module, Path(spec.origin), content)
        return file if spec.origin.endswith(".py") else None

    def local_specs(self, name: str) -> Iterator[ModuleSpec]:
        """Yield the specs of a module and the packages around it, from the outermost, if they are local."""
        top, *rest = name.split(".")
        spec = self.plugin if top == self.plugin.name else self.top_spec(top)
        for part in rest:
            if spec is None or spec.submodule_search_locations is None:
                break
            yield spec
            spec = PathFinder.find_spec(f"{spec.name}.{part}", list(spec.submodule_search_locations))
        if spec is not None:
            yield spec

    def top_spec(self, name: str) -> ModuleSpec | None:
        """Return the spec of a top-level module if it is local, or None. Raises the error of `refuse_shadow`."""
        neighbor = PathFinder.find_spec(name, [self.folder])
        other = elsewhere(name)
        if neighbor is None or (neighbor.origin is None and other is not None and other.origin is not None):
            if other is None or not is_local(other):
                return None
            return other
        refuse_shadow(self.path, neighbor, other)
        if not is_local(neighbor):
            return None
        self.neighbors.add(name)
        return neighbor

    def add_loaded(self, before: set[str]) -> None:
        """Add local modules that are loaded in ways that the text does not show. before: modules loaded earlier."""
        tops = {self.plugin.name, *(module.partition(".")[0] for module in self.files)}
        for name, module in list(sys.modules.items()):
            is_new = name.partition(".")[0] in tops or name not in before
            spec = getattr(module, "__spec__", None)
            if is_new and isinstance(spec, ModuleSpec) and is_local(spec):
                self.add(spec)


def imported_names(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield the names that Python source imports, inside functions too. package: the package that it is in."""
    for node in ast.walk(tree):
        with suppress(ImportError):  # a relative name beyond the outermost package: importing it will say so
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name
            elif isinstance(node, ast.ImportFrom):
                module = resolve_name("." * node.level + (node.module or ""), package)
                for alias in node.names:
                    yield f"{module}.{alias.name}"  # the name may be a submodule
            elif isinstance(node, ast.Call):
                name = literal_import(node)
                if name:
                    yield resolve_name(name, package)


def dynamic_loads(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of Python source that load other code whose name does not stand there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called_name(node) in LOADERS and not literal_import(node):
            yield node.lineno


def called_name(call: ast.Call) -> str:
    """Return the name of a called function, or of a called attribute unless it is `exec`, which may be anything."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr if call.func.attr != "exec" else ""
    return getattr(call.func, "id", "")


def literal_import(call: ast.Call) -> str:
    if called_name(call) not in ("import_module", "__import__") or not call.args:
        return ""
    first = call.args[0]
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value
    return ""


def elsewhere(name: str) -> ModuleSpec | None:
    for finder in sys.meta_path:
        if finder is NEIGHBORS:
            continue
        spec = finder.find_spec(name, None)
        if spec is not None:
            return spec
    return None


def is_local(spec: ModuleSpec) -> bool:
    """Return whether a module is a file or folder outside Python's library folders and outside this suite."""
    if spec.name.partition(".")[0] in PACKAGES:
        return False
    if spec.origin is None:
        return not any(map(in_library, spec.submodule_search_locations or []))
    return spec.has_location and not in_library(spec.origin)


def in_library(place: str) -> bool:
    """Return whether a file is in a library folder, or in one of another prefix, which a cluster puts on PYTHONPATH."""
    path = Path(place).resolve()
    return not INSTALLED.isdisjoint(path.parts) or any(path.is_relative_to(folder) for folder in LIBRARIES)


def refuse_shadow(plugin: Path, neighbor: ModuleSpec, other: ModuleSpec | None) -> None:
    """Raise ValueError if a neighbor has the name of a module of Python, of this suite or of an installed package."""
    if neighbor.origin is None or other is None or other.origin is None or is_local(other):
        return
    file = Path(neighbor.origin)
    if file.resolve() != Path(other.origin).resolve():
        shown = f"{neighbor.name}/" if file.stem == "__init__" else file.name
        both = f"both {shown} beside it and {other.origin} have this name"
        raise ValueError(f"plugin {plugin}: imports {neighbor.name}, and {both}: rename {shown}")


class FromText(SourceFileLoader):
    """Loads a module from its text, never from compiled code that may be older than an edit in the same second."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class NeighborFinder(MetaPathFinder):
    """Finds the modules beside loaded plug-ins, before modules of the same name elsewhere."""

    def __init__(self) -> None:
        self.folders: dict[str, str] = {}  # top-level name -> the folder with it
        self.files: dict[str, LocalFile] = {}  # module -> its file

    def add(self, imports: LocalImports) -> None:
        """Find the neighbors of a plug-in from now on. Raises ValueError if another module has the name of one."""
        files = {name: file for name, file in imports.files.items() if name.partition(".")[0] in imports.neighbors}
        for name, file in files.items():
            loaded = getattr(sys.modules.get(name), "__file__", None)
            if name in self.files:
                loaded = self.files[name].path
            if loaded and Path(loaded) != file.path and Path(loaded).read_bytes() != file.content:
                raise ValueError(f"plugin {imports.path}: imports {file.path}, and {loaded} has its name: rename one")
        self.files |= files
        self.folders |= dict.fromkeys([*imports.neighbors, imports.plugin.name], imports.folder)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        folder = self.folders.get(fullname.partition(".")[0])
        if folder is None:
            return None
        spec = PathFinder.find_spec(fullname, [folder] if path is None else path)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = FromText(spec.loader.name, spec.loader.path)
        return spec


NEIGHBORS = NeighborFinder()
