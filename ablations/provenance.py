"""The provenance of results: the code, the versions and the machine, recorded with every attempt."""

import hashlib
import os
import platform
import socket
import subprocess
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

from results import store
from results.store.schemas.base import Fact

HOME = Path(__file__).parents[1]
PACKAGES = ("ablations", "commonfloor", "results", "slurm", "vitcore")
VERSIONS = ("numpy", "scikit-learn", "timm", "torch", "torchvision")


@cache
def source_digest(home: Path = HOME) -> str:
    """Return the first 12 hexadecimal digits of the source code's SHA-256. home: the directory of the packages."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((home / package).rglob("*.py")):
            digest.update(str(path.relative_to(home)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def code_digest(plugins: dict[str, str]) -> str:
    """Return the digests of the packages and of the plug-ins (file -> digest), joined by "+"."""
    return "+".join([source_digest(), *sorted(plugins.values())])


@cache
def revision() -> str | None:
    """Return the code's revision as `git describe` names it, with `-dirty` after edits; None if it is unknown."""
    if not (HOME / ".git").exists():
        return None
    command = ["git", "-C", str(HOME), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


@cache
def versions() -> dict[str, str]:
    installed = {"python": platform.python_version()}
    for package in VERSIONS:
        with suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package)
    return installed


def environment_record(of_trainable: dict[str, Fact], plugins: dict[str, str]) -> dict[str, Fact]:
    """Return the content of env.json, the record of an attempt's environment."""
    node = os.environ.get("SLURMD_NODENAME")  # SLURM's name of the node
    return {
        "schema": store.SCHEMA,
        "started": store.timestamp(),
        "code": code_digest(plugins),
        "revision": revision(),
        "plugins": {Path(path).name: digest for path, digest in plugins.items()},
        "host": socket.gethostname(),
        **({"node": node} if node else {}),
        **of_trainable,
        **versions(),
    }
