"""The files of a trial's checkpoints: their names, their order, and how many are kept."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

KEEP_CHECKPOINTS = 2
NAME = re.compile(r"[0-9]{9,18}-[0-9a-f]{16}\.safetensors")


def file_name(step: int, payload: bytes) -> str:
    """Return a checkpoint's file name, which contains its step and the start of the SHA-256 of `payload`."""
    return f"{step:09d}-{hashlib.sha256(payload).hexdigest()[:16]}.safetensors"


def newest_first(folders: Iterable[Path]) -> list[Path]:
    found = [file for folder in folders for file in folder.glob("*.safetensors")]
    return sorted((file for file in found if NAME.fullmatch(file.name)), key=order, reverse=True)


def remove_superseded(checkpoints: Sequence[Path]) -> None:
    """Remove all checkpoints but the newest two. checkpoints: newest first."""
    for old in checkpoints[KEEP_CHECKPOINTS:]:
        old.unlink(missing_ok=True)


def order(checkpoint: Path) -> tuple[int, int, int]:
    """Return the sort key of a checkpoint: its step, attempt number and modification time (ns).

    An attempt that verifies a divergence writes two checkpoints for the same step. The later one sorts last.
    """
    try:
        written = checkpoint.stat().st_mtime_ns
    except OSError:  # removed meanwhile: the trial has ended, or another attempt has newer checkpoints
        written = 0
    return step_of(checkpoint), int(checkpoint.parent.parent.name), written


def matches_digest(checkpoint: Path, digest: str) -> bool:
    """Return whether the checksum in a checkpoint's name matches its content. digest: the content's SHA-256 (hex)."""
    return digest.startswith(checkpoint.stem.partition("-")[2])


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.partition("-")[0])
