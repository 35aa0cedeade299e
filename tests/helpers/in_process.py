"""Run the command `ablate` in this process, which saves its start."""

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ablations import cli

Ablate = Callable[..., tuple[int, str, str]]  # the command, by its words: exit status, standard output and error


def called(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["ablate", *words])
    for name in ("ABLATE_DATA", "ABLATE_MORE_DATA", "ABLATE_PACKS"):  # it says to its own process where data lie
        monkeypatch.setenv(name, os.environ.get(name, ""))
    output, errors, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            cli.main()
        except SystemExit as end:
            status = int(end.code or 0)
    return status, output.getvalue(), errors.getvalue()


def json_output(ablate: Ablate, *words: str) -> Any:
    """Return what the command prints with --json. Raises AssertionError if it fails."""
    status, output, errors = ablate(*words, "--json")
    assert status == 0, errors
    return json.loads(output)


def refusal(ablate: Ablate, *words: str) -> str:
    """Return the line in which the command refuses. Raises AssertionError if it does or prints anything else."""
    status, output, errors = ablate(*words)
    assert (status, output, errors.count("\n")) == (2, "", 1), errors
    return errors
