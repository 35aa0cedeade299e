"""Values of the settings `init_from` and `teacher`, which name another trial or a file of weights.

Importing this module does not import torch.
"""

import hashlib
import os
import re
from functools import cache
from pathlib import Path

from commonfloor.files import open_regular
from commonfloor.messages import reason
from commonfloor.options import ConfigError
from vitcore.data.homes import parent_folders
from vitcore.settings import Settings
from vitcore.sizes import REFERENCE, is_reference, registered_digest

NONE = "none"
LINKS = ("init_from", "teacher")  # settings that name other weights
TRIAL = re.compile("[0-9a-f]{12}")
FILES = (".safetensors", ".npz")
PUBLIC = re.compile(r"timm/[\w.-]+")  # a value of init_from, and a file in the folder WEIGHTS of the data
WEIGHTS = "weights"


def is_trial(value: str) -> bool:
    return TRIAL.fullmatch(value) is not None


def is_public(key: str, value: str) -> bool:
    """Return whether a value of the setting `key` names weights that `ablate weights` has stored."""
    return key == "init_from" and PUBLIC.fullmatch(value) is not None and not value.endswith(FILES)


def names_file(key: str, value: str) -> bool:
    return value.endswith(FILES) or is_public(key, value)


def parent_of(config: Settings) -> str:
    """Return the setting of `config` that names another trial: "init_from" or "teacher", or "" if neither does."""
    return next((key for key in LINKS if is_trial(getattr(config, key))), "")


def check_links(config: Settings) -> None:
    """Raise ConfigError if the model cannot start from other weights or learn from a teacher."""
    if config.model and config.init_from != NONE:
        raise ConfigError(f"init_from={config.init_from}: model={config.model} has other parts: must be none")
    if config.teacher != NONE and config.objective != "classification":
        raise ConfigError(
            f"teacher={config.teacher}: objective={config.objective} has no classes to teach: must be none"
        )
    if is_trial(config.teacher) and is_trial(config.init_from):
        raise ConfigError(
            f"teacher={config.teacher}: init_from={config.init_from} is a trial too: set only one of them"
        )


def normalized(key: str, value: str) -> str:
    """Return a value of the setting `key`, with a file's path made absolute. Raises ConfigError if it is invalid."""
    if value == NONE or is_trial(value) or is_public(key, value):
        return value
    if key == "init_from" and value.endswith(FILES):
        return absolute_path(value)
    if key == "teacher" and is_reference(value) and ":" in value and value.endswith(".safetensors"):
        name, path = timm_teacher(value)
        return f"{REFERENCE}{name}:{absolute_path(path)}"
    file = f"timm/NAME, a file ({' or '.join(FILES)})" if key == "init_from" else "timm/NAME:FILE (.safetensors)"
    raise ConfigError(f"{key}={value}: none, the id of a trial (12 hex digits), {file}, or in a study a stage of it")


def weights_file(value: str) -> str:
    """Return the path of a file that init_from names; raise ConfigError if it is to be downloaded first."""
    if not is_public("init_from", value):
        return value
    folders = [folder / WEIGHTS for folder in parent_folders(None)]
    for folder in folders:
        if (folder / f"{value}.safetensors").is_file():
            return str(folder / f"{value}.safetensors")
    where = (
        f"not in {' or '.join(map(str, folders))}" if folders else "no --data-dir and no ABLATE_DATA says where it is"
    )
    how = f"`ablate weights download {value}` stores it there, or `ablate weights add {value} FILE` without a network"
    raise ConfigError(f"init_from={value}: {where}: {how}")


def absolute_path(path: str) -> str:
    return str(Path(os.path.expanduser(path)).absolute())


def timm_teacher(teacher: str) -> tuple[str, str]:
    """Return (timm's name of the model, path of its weights) from timm/NAME:PATH."""
    name, _, path = teacher.removeprefix(REFERENCE).partition(":")
    return name, path


def identifying_value(key: str, value: str) -> str | dict[str, str]:
    """Return a value of `key` for a trial's id, a file replaced by its SHA-256. Raises ConfigError if unreadable."""
    if value == NONE or is_trial(value):
        return value
    if key == "init_from":
        return {"sha256": file_sha256(key, weights_file(value))}
    name, path = timm_teacher(value)
    digest = registered_digest(name)
    identity = {"model": name, "sha256": file_sha256(key, path)}
    if digest:
        identity["digest"] = digest
    return identity


def file_sha256(key: str, path: str) -> str:
    try:
        about = os.stat(path)
        return sha256(path, about.st_size, about.st_mtime_ns)
    except OSError as error:
        raise ConfigError(f"{key}={path}: {reason(error)}") from None


@cache  # planning needs the hash of a file once per trial
def sha256(path: str, size: int, changed: int) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
