"""The program that runs one task of a job array on a node: `python -m slurm.job FOLDER FUNCTION CODE`.

FUNCTION comes from the script that SLURM stored. So write access to FOLDER is not enough to choose another function.
CODE is the folder that this program must be imported from. If it is gone, Python may find other code.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from slurm import arrays, intent

REFUSED = 2


def run(function: str, arguments: Sequence[str], share: Sequence[str]) -> int:
    """Call 'module:name' with `arguments` and `share`. Return its status, or REFUSED after printing a ValueError."""
    module, _, name = function.partition(":")
    called = getattr(importlib.import_module(module), name)
    try:
        status: int = called(*arguments, *share)
    except ValueError as error:  # a message for the user; other errors, being bugs, keep their tracebacks
        print(escaped(str(error)), file=sys.stderr)
        return REFUSED
    return status


def escaped(text: str) -> str:
    """Return `text` on one line, with unprintable characters escaped."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in " ".join(text.split())
    )


def main() -> None:
    folder, function, code = sys.argv[1:]
    if Path(__file__).parents[1] != Path(code):
        sys.exit(f"{code}: the code of this submission is gone, and no other code is run: submit again")
    os.environ[arrays.FOLDER] = folder
    array = intent.read(Path(folder))
    index = int(os.environ.get("SLURM_ARRAY_TASK_ID", "0"))
    sys.exit(run(function, array.arguments, array.shares[index]))


if __name__ == "__main__":
    main()
