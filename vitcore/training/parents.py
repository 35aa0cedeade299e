"""Values of `init_from` and `teacher`: another trial, or a file of weights. Importing this loads no torch."""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from vitcore.data.files import open_regular
from vitcore.options import ConfigError
from vitcore.sizes import REFERENCE, is_reference

if TYPE_CHECKING:
    from vitcore.config import Config

NONE = "none"
LINKS = ("init_from", "teacher")  # settings that name other weights
TRIAL = re.compile("[0-9a-f]{12}")
FILES = (".safetensors", ".npz")


def is_trial(value: str) -> bool:
    """Tell whether the value is the id of a trial in a run directory."""
    return TRIAL.fullmatch(value) is not None


def parent_of(config: Config) -> str:
    """Return the setting that names the trial which `config` needs: init_from, teacher, or "" where it needs none."""
    return next((key for key in LINKS if is_trial(getattr(config, key))), "")


def normalized(key: str, value: str) -> str:
    """Return none, a trial's id, or a file with its path made absolute; the file may be missing. Raises ConfigError.

    key: `init_from`, whose files are weights, or `teacher`, whose files are spelled timm/NAME:FILE.
    """
    if value == NONE or is_trial(value):
        return value
    if key == "init_from" and value.endswith(FILES):
        return absolute(value)
    if key == "teacher" and is_reference(value) and ":" in value and value.endswith(".safetensors"):
        name, path = timm_teacher(value)
        return f"{REFERENCE}{name}:{absolute(path)}"
    file = f"a file ({' or '.join(FILES)})" if key == "init_from" else "timm/NAME:FILE (.safetensors)"
    raise ConfigError(f"{key}={value}: none, the id of a trial (12 hex digits), {file}, or in a study a stage of it")


def absolute(path: str) -> str:
    return str(Path(os.path.expanduser(path)).absolute())


def timm_teacher(teacher: str) -> tuple[str, str]:
    """Return timm's name of the model, and the path of its weights."""
    name, _, path = teacher.removeprefix(REFERENCE).partition(":")
    return name, path


def identified(key: str, value: str) -> str | dict[str, str]:
    """Return the identity of a value of `key`: a trial's id, or the sha256 of a file. Raises ConfigError.

    A teacher's file comes with the name of its model.
    """
    if value == NONE or is_trial(value):
        return value
    if key == "init_from":
        return {"sha256": file_sha256(key, value)}
    name, path = timm_teacher(value)
    return {"model": name, "sha256": file_sha256(key, path)}


def file_sha256(key: str, path: str) -> str:
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


def check_teacher(config: Config) -> None:
    """Raise ConfigError for settings that a teacher or the distillation token does not support."""
    if config.teacher != NONE and config.objective != "classification":
        raise ConfigError(f"teacher={config.teacher}: objective={config.objective} has no classes to teach: none")
    if is_trial(config.teacher) and is_trial(config.init_from):
        raise ConfigError(f"teacher={config.teacher}: init_from={config.init_from} is a trial too: one of both")
    if not config.options.get("objective.token"):
        return
    if config.model:
        raise ConfigError(f"objective.token=True: model={config.model} has no such token: False")
    if config.pool == "layers":
        raise ConfigError("objective.token=True: pool=layers reads every layer's class token alone: False")
