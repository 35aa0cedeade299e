"""The versions and the size of the installed packages."""

import platform
from importlib import metadata

NAMED = ("vit-ablations", "torch", "timm")


def version() -> str:
    return metadata.version("vit-ablations")


def summary() -> str:
    """Return the versions of the packages and of Python, and the size of all installed packages, as text."""
    found = {one.name: one for one in metadata.distributions()}
    named = [f"{name} {found[name].version}" for name in NAMED if name in found]
    size = sum(file.size or 0 for one in found.values() for file in one.files or ())
    return f"{', '.join([*named, f'Python {platform.python_version()}'])}; {size / 1e9:.1f} GB with all they need"
