"""The files of checkpoints: their names, their order, and how many of a trial are kept."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from results.store.files import MEMORY, open_regular

KEEP_CHECKPOINTS = 2
NAME = re.compile(r"[0-9]{9,18}-[0-9a-f]{16}\.safetensors")


def file_name(step: int, payload: bytes) -> str:
    """Return a checkpoint's file name, which contains its step and the start of the SHA-256 of `payload`."""
    return f"{step:09d}-{hashlib.sha256(payload).hexdigest()[:16]}.safetensors"


def step(checkpoint: Path) -> int:
    return int(checkpoint.name.partition("-")[0])


def is_intact(checkpoint: Path) -> bool:
    """Return whether a checkpoint has the checksum in its name. Raises the errors of `open_regular`."""
    with open_regular(checkpoint, MEMORY) as file:
        return hashlib.file_digest(file, "sha256").hexdigest().startswith(checkpoint.stem.partition("-")[2])


def newest_first(folders: Iterable[Path]) -> list[Path]:
    """Return the checkpoints in `folders` by step, attempt and modification time. The newest comes first."""
    files = [file for folder in folders for file in folder.glob("*.safetensors") if NAME.fullmatch(file.name)]
    return sorted(files, key=order, reverse=True)


def order(checkpoint: Path) -> tuple[int, int, int]:
    """Return the sort key of a checkpoint: its step, attempt number and modification time (ns)."""
    try:
        written = checkpoint.stat().st_mtime_ns  # to verify a divergence, an attempt saves the same step twice
    except OSError:  # removed meanwhile: the trial has ended, or another attempt has newer checkpoints
        written = 0
    return step(checkpoint), int(checkpoint.parent.parent.name), written


def prune(checkpoints: Sequence[Path]) -> None:
    """Remove all but the first KEEP_CHECKPOINTS. checkpoints: newest first."""
    for old in checkpoints[KEEP_CHECKPOINTS:]:
        old.unlink(missing_ok=True)
