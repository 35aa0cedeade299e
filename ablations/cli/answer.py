"""The exit statuses of commands, and their output as JSON."""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from commonfloor.messages import one_line

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130


def fields(record: object) -> dict[str, object] | str:
    """Return the fields of a dataclass for JSON, or a path as text. A field `counts` is replaced by its entries."""
    if isinstance(record, Path):
        return str(record)
    content: dict[str, object] = {}
    for name, value in vars(record).items():
        content |= value if name == "counts" else {name: value}
    return content


@contextlib.contextmanager
def print_damaged(damaged: Sequence[ValueError]) -> Iterator[None]:
    """Print errors of damaged plans when the block ends. If there are any and the block succeeded, exit with FAILED."""
    try:
        yield
    finally:
        for error in damaged:
            print(f"ablate: {one_line(str(error))}", file=sys.stderr)
    fail_if(bool(damaged))


@contextlib.contextmanager
def one_line_failure() -> Iterator[None]:
    """Print a RuntimeError of the block on one line, and exit with FAILED."""
    try:
        yield
    except RuntimeError as error:
        print(f"ablate: {one_line(str(error))}", file=sys.stderr)
        raise typer.Exit(FAILED) from None


def fail_if(failed: bool) -> None:
    """Exit with FAILED if something that was asked for is not done or not as it should be."""
    if failed:
        raise typer.Exit(FAILED)


def show_json(results: Sequence[object]) -> None:
    """Print results as JSON: an object if there is one result, otherwise a list. NaN raises ValueError."""
    print(json.dumps(results[0] if len(results) == 1 else results, default=fields, indent=1, allow_nan=False))


def show(content: object, text: str, as_json: bool) -> None:
    """Print an answer: its content as JSON, or its text."""
    if as_json:
        show_json([content])
    else:
        print(text)
