"""The values that a profile may have, checked before they reach a batch script.

The patterns allow less than the shell and sbatch do, and no leading `-`, so that no value adds an option or a command.
"""

import re
from collections.abc import Collection, Iterable, Mapping

WORD = r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*"
SIZE = r"\d+[KMGT]"
FEATURES = r"[A-Za-z0-9_(\[!][A-Za-z0-9_.:+&|*()\[\],!-]*"
NODE = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
OPTION = r"[A-Za-z0-9_(\[!/][A-Za-z0-9_.,:/@=+&|*()\[\]!#-]*"
MOST_CHARACTERS = 200

# The options that a profile may set. They decide neither what runs nor the name and output of a job.
SBATCH = (
    *("exclude", "exclusive", "gres", "hint", "licenses", "mail-type", "mail-user", "mem-per-cpu", "mem-per-gpu"),
    *("nice", "nodelist", "oversubscribe", "prefer", "requeue", "reservation", "switches", "threads-per-core", "tmp"),
    "wckey",
)
SRUN = (
    *("container-image", "container-mount-home", "container-mounts", "container-name", "container-workdir"),
    *("container-writable", "cpu-bind", "distribution", "gpu-bind", "hint", "mem-bind", "mpi"),
)
SWITCHES = ("container-mount-home", "container-writable", "exclusive", "oversubscribe", "requeue")  # without a value
NEGATABLE = ("container-mount-home", "requeue")  # which have an opposite, such as --no-requeue

SlurmOptions = dict[str, str | bool]


def list_pattern(item: str) -> str:
    return f"{item}(,{item})*"


def matches(value: str, pattern: str) -> bool:
    return len(value) <= MOST_CHARACTERS and ".." not in value and bool(re.fullmatch(pattern, value, re.ASCII))


def require(key: str, value: str, pattern: str, meaning: str) -> str:
    """Return `value` if it matches the pattern, else raise ValueError. meaning: what is allowed, for the message."""
    if not matches(value, pattern):
        raise ValueError(f"{key}={quoted_value(value)}: {meaning}")
    return value


def require_printable(key: str, value: str, meaning: str) -> str:
    """Return `value` if it is one printable line, else raise ValueError. key, meaning: as in `require`."""
    if not value.isprintable():
        raise ValueError(f"{key}={quoted_value(value)}: {meaning}")
    return value


def checked_options(key: str, allowed_names: Collection[str], values: object) -> SlurmOptions:
    """Return options with their values: text, or a bool for a switch. Raises ValueError if one is not allowed."""
    if not isinstance(values, dict):
        raise ValueError(f"{key}={quoted_value(values)}: options and their values")
    checked: SlurmOptions = {}
    for name, value in values.items():
        option = f"{key}.{quoted_value(name)}"
        if name not in allowed_names:
            raise ValueError(f"unknown option '{option}': one of {', '.join(allowed_names)}")
        if name in SWITCHES:
            if not isinstance(value, bool):
                raise ValueError(f"{option}={quoted_value(value)}: true or false")
            checked[name] = value
        else:
            if value is None or isinstance(value, bool):
                raise ValueError(f"{option}={quoted_value(value)}: text or a number")
            checked[name] = require(option, str(value), OPTION, "letters, digits and .,:/@=+&|*()[]!#_-")
    return checked


def option_words(options: Mapping[str, object]) -> list[str]:
    """Return the words of a command line, such as `--nice=10`. A switch that is off is negated or left out."""
    words = []
    for name, value in options.items():
        if value is True:
            words.append(f"--{name}")
        elif value is not False:
            words.append(f"--{name}={value}")
        elif name in NEGATABLE:
            words.append(f"--no-{name}")
    return words


def quoted_value(value: object) -> str:
    """Return a value as text for an error message, escaped and shortened to 60 characters."""
    text = str(value)
    if not re.fullmatch(r"[\w.:/,+@-]{1,60}", text, re.ASCII):
        text = ascii(value)
    if len(text) > 60:
        text = text[:57] + "..."
    return text


def quoted_names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(quoted_value(name) for name in names))
