"""What a node runs: the share of one task of a submission. `python -m slurm.job FOLDER`."""

import importlib
import os
import sys
from pathlib import Path

from slurm import submission

REFUSED = 2


def main() -> None:
    intent = submission.read(Path(sys.argv[1]))
    share = intent["shares"][int(os.environ.get("SLURM_ARRAY_TASK_ID", "0"))]
    module, _, name = intent["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    try:
        status = function(*intent["arguments"], *share)
    except ValueError as error:  # told as to a user: bugs keep their tracebacks
        print(" ".join(str(error).split()), file=sys.stderr)
        sys.exit(REFUSED)
    sys.exit(status)


if __name__ == "__main__":
    main()
