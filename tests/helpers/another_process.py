"""Run several commands in one other process, in which packages are missing."""

import json
import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

EACH = """
import contextlib, io, json, sys
from ablations.cli import main
ended = []
for words in json.load(sys.stdin):
    sys.argv = ["ablate", *words.split()]
    output, errors, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
    ended.append((status, output.getvalue(), errors.getvalue()))
print(json.dumps(ended))
"""
ROOT = Path(__file__).parents[2]


def called_without(
    missing: Collection[str], site: Path, folder: Path, commands: Sequence[str]
) -> dict[str, tuple[int, str, str]]:
    """Return command -> (exit status, standard output and error), called one after the other in `folder`.

    missing: packages that the process and its workers cannot import. site: a folder for the file that hides them.
    """
    hidden = f"import sys; sys.modules.update(dict.fromkeys({[*missing]}))"
    (site / "sitecustomize.py").write_text(hidden)  # every Python that starts runs it, workers included
    done = subprocess.run(
        [sys.executable, "-c", EACH],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])},
        input=json.dumps(commands),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(commands, map(tuple, json.loads(done.stdout)), strict=True))
