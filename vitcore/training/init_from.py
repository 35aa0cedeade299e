"""Values of `init_from`: another trial or a file. Importing this loads no torch."""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from pathlib import Path

from vitcore.data.files import open_regular
from vitcore.options import ConfigError

NONE = "none"
FILES = (".safetensors", ".npz")
TRIAL = re.compile("[0-9a-f]{12}")


def checked(init_from: str) -> str:
    """Check and normalize: none, a trial's id, or an absolute path (which may be missing). Raises ConfigError."""
    if init_from == NONE or is_trial(init_from):
        return init_from
    if not init_from.endswith(FILES):
        allowed = f"none, the id of a trial (12 hex digits), a file ({' or '.join(FILES)}), or in a study a stage of it"
        raise ConfigError(f"init_from={init_from}: {allowed}")
    return str(Path(os.path.expanduser(init_from)).absolute())


def is_trial(init_from: str) -> bool:
    """Tell whether the value is the id of a trial in a run directory."""
    return TRIAL.fullmatch(init_from) is not None


def fingerprint(init_from: str) -> str | dict[str, str]:
    """Return the part of `init_from` in an identity: a trial's id or a file's sha256. Raises ConfigError."""
    return init_from if init_from == NONE or is_trial(init_from) else {"sha256": file_sha256(init_from)}


def file_sha256(path: str, key: str = "init_from") -> str:
    """Return the sha256 of the file that the setting `key` names. Raises ConfigError if it is missing."""
    try:
        about = os.stat(path)
        return sha256(path, about.st_size, about.st_mtime_ns)
    except OSError as error:
        raise ConfigError(f"{key}={path}: {error.strerror}") from None


@cache  # once a file: a plan asks for every trial
def sha256(path: str, size: int, changed: int) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
