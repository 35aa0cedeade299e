"""The command `ablate`. Its subcommands are in `app`, which `main` imports once it is known that this will succeed."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

PACKAGES = ("commonfloor", "results", "slurm", "vitcore")  # what the package ablations imports beside itself


def main() -> NoReturn:
    """Run the command `ablate` and exit. The exit status is 2 if another module hides one of our packages."""
    for name in PACKAGES:
        if other := hidden_by(name):
            folder = other.parent.parent if other.name == "__init__.py" else other.parent
            advice = f"rename it, or leave {folder} out of PYTHONPATH"
            message = f"ablate: {other}: hides the package '{name}' of vit-ablations: {advice}"
            print(ascii(message)[1:-1] if not message.isprintable() else message, file=sys.stderr)
            sys.exit(2)
    from ablations.cli import app

    app.main()


def hidden_by(name: str) -> Path | None:
    """Return the file that `import name` finds instead of the package beside this one, or None if it finds that."""
    found = find_spec(name)
    if found is None or found.origin is None:
        return None
    own = Path(__file__).parents[2] / name / "__init__.py"
    other = Path(found.origin)
    return None if own.exists() and own.samefile(other) else other
