"""The versions and the size of the installed packages."""

import platform
from importlib import metadata

NAMED = ("vit-ablations", "torch", "timm")


def version() -> str:
    return metadata.version("vit-ablations")


def summary() -> str:
    """Return, for example, "vit-ablations 0.12.0, torch 2.14.1, Python 3.11.2; 6.3 GB with all they need"."""
    found = {one.name: one for one in metadata.distributions()}
    named = [f"{name} {found[name].version}" for name in NAMED if name in found]
    size = sum(file.size or 0 for one in found.values() for file in one.files or ())
    return f"{', '.join([*named, f'Python {platform.python_version()}'])}; {size / 1e9:.1f} GB with all they need"
