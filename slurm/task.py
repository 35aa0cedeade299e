"""The program that a job runs on a node: `python -m slurm.task CODE FUNCTION ARGUMENT...`.

FUNCTION is 'module:name', and CODE the folder that this program must be imported from, as no other code may run.
"""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from commonfloor.messages import one_line

REFUSED = 2


def run(function: str, arguments: Sequence[str]) -> int:
    """Call 'module:name' with `arguments`. Return its status, or REFUSED after printing a ValueError."""
    module, _, name = function.partition(":")
    called = getattr(importlib.import_module(module), name)
    try:
        status: int = called(*arguments)
    except ValueError as error:  # a message for the user; other errors, being bugs, keep their tracebacks
        print(one_line(str(error)), file=sys.stderr)
        return REFUSED
    return status


def main() -> None:
    code, function, *arguments = sys.argv[1:]
    if Path(__file__).parents[1] != Path(code):
        sys.exit(f"{code}: the code of this submission is gone, and no other code is run: submit again")
    sys.exit(run(function, arguments))


if __name__ == "__main__":
    main()
