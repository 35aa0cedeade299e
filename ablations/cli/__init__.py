"""The command `ablate`. Its subcommands are in `app`, which `main` imports once it is known that this will succeed."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

PACKAGES = ("commonfloor", "results", "slurm", "vitcore")  # what the package ablations imports beside itself


def main() -> NoReturn:
    """Run the command `ablate` and exit. The exit status is 2 if another module hides one of our packages."""
    for name in PACKAGES:
        other = hidden_by(name)
        if other is not None:
            folder = other.parent.parent if other.name == "__init__.py" else other.parent
            advice = f"rename it, or leave {folder} out of PYTHONPATH"
            message = f"ablate: {other}: hides the package '{name}' of vit-ablations: {advice}"
            print(message if message.isprintable() else ascii(message)[1:-1], file=sys.stderr)
            sys.exit(2)
    from ablations.cli import app

    app.main()


def hidden_by(name: str) -> Path | None:
    """Return the file that `import name` finds instead of the package beside this one, or None if it finds that."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return None
    ours = Path(__file__).parents[2] / name / "__init__.py"
    other = Path(spec.origin)
    if ours.exists() and ours.samefile(other):
        return None
    return other
