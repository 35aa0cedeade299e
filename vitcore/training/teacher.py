"""Values of `teacher`: another trial, or a timm model with a file of weights. Importing this loads no torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vitcore.options import ConfigError
from vitcore.sizes import REFERENCE, is_reference
from vitcore.training.init_from import NONE, file_sha256, is_trial

if TYPE_CHECKING:
    from vitcore.config import Config

FILE = ".safetensors"


def checked(teacher: str) -> str:
    """Check and normalize: none, a trial's id, or timm/NAME:FILE with an absolute path. Raises ConfigError."""
    if teacher == NONE or is_trial(teacher):
        return teacher
    if not is_reference(teacher) or ":" not in teacher or not teacher.endswith(FILE):
        allowed = f"none, the id of a trial (12 hex digits), timm/NAME:FILE ({FILE}), or in a study a stage of it"
        raise ConfigError(f"teacher={teacher}: {allowed}")
    name, path = named(teacher)
    return f"{REFERENCE}{name}:{Path(os.path.expanduser(path)).absolute()}"


def named(teacher: str) -> tuple[str, str]:
    """Return timm's name of the model, and the path of its weights."""
    name, _, path = teacher.removeprefix(REFERENCE).partition(":")
    return name, path


def identified(teacher: str) -> str | dict[str, str]:
    """Return the teacher's part of an identity: the trial's id, or the model with its file's sha256. Raises
    ConfigError.
    """
    if teacher == NONE or is_trial(teacher):
        return teacher
    name, path = named(teacher)
    return {"model": name, "sha256": file_sha256(path, "teacher")}


def parent_of(config: Config) -> str:
    """Return the setting that names the trial which `config` needs: init_from, teacher, or "" where it needs none."""
    return next((key for key in ("init_from", "teacher") if is_trial(getattr(config, key))), "")


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
