"""Parse the words of a command into studies and settings, and correct words that are neither. Loads no torch."""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ablations.study import key_checks, strict_yaml
from ablations.trainables.trainable import VIT, find
from results.store.plan_files import HOW_IT_RUNS
from results.store.schemas import Settings
from results.store.schemas.metrics import checked_margin
from vitcore.config import check_settings
from vitcore.options import ConfigError, spelling_hint, unknown_key, usual_name

SETTINGS = tuple(find(VIT).keys)
FIXED = {**key_checks.FIXED, **find(VIT).fixed}  # settings that a study cannot vary -> why
PATHS = ("data", "init_from", "teacher")  # settings whose values may be paths, which may contain commas
SEVERAL = re.compile(r"(?:choice|range|grid)\((.*)\)|\[(.*)\]|(.*,.*)", re.DOTALL)
OPTIONS = ("seeds", "data_dir", "data-dir")  # written as settings, these look like the settings seed and data
SEED_RANGE = re.compile(r"\d+(?:-|\.\.|:)\d+|range\(.*\)")


@dataclass(frozen=True)
class Request:
    """The studies and settings that a command's words name."""

    studies: list[str]
    overrides: Settings
    margin: float | str | None = None  # replaces the margin of the studies


def parse_words(words: Iterable[str]) -> Request:
    """Return the studies and settings among the words of a command line.

    Raises ValueError if a setting or the margin is invalid, or if one is given twice.
    """
    studies, overrides = [], {}
    for word in words:
        refuse_other_encodings(word)
        if "=" in word and word != "=" and not word.endswith((".yaml", ".yml")) and "@" not in word.partition("=")[0]:
            key, value = strict_yaml.assignment(word)
            check_assignment(word, key, value)
            if key in overrides:
                raise ValueError(f"{key} is set twice")
            overrides[key] = value
        else:
            check_word(word)
            studies.append(word)
    margin = overrides.pop("margin", None)
    return Request(studies, overrides, None if margin is None else checked_margin(margin))


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise ValueError if a setting among a command's unparsed arguments is wrong.

    Options, and words after an option, which may be its value, are left to the command.
    """
    recipe = next((value for option, value in pairwise(arguments) if option in ("--recipe", "-r")), "digits")
    words = [word for before, word in pairwise(["", *arguments]) if not before.startswith("-") | word.startswith("-")]
    request = parse_words(word for word in words if word.partition("=")[0] not in OPTIONS)
    check_overrides(request.overrides, request.studies, recipe)


def check_word(word: str, overrides: Iterable[str] = ()) -> None:
    """Raise ValueError with a correction if a word is neither a study nor a setting in a way that others are used to.

    overrides: keys of the settings before the word.
    """
    path = Path(word)
    if (path / "plan.json").is_file():
        name, runs = shlex.quote(path.absolute().name), shlex.quote(str(path.parent.parent))
        raise ValueError(f"{word}: is a study's folder: name the study: {name} --runs {runs}")
    if (path / "studies").is_dir() and (path / "trials").is_dir():
        raise ValueError(f"{word}: is a run directory: give it as --runs {shlex.quote(word)}")
    refuse_csv(path)
    if path.suffix == ".parquet":
        raise ValueError(f"{word}: is no study: exported results are read with --runs {shlex.quote(word)}")
    if word == "*":
        raise ValueError("'*': every packaged study is called 'all'")
    if word == "=":
        raise ValueError("'=' stands alone: write key=value without spaces, as in lr=1e-3")
    key, colon, value = word.partition(":")
    if colon and value and "/" not in word and usual_name(key) in SETTINGS:
        raise ValueError(f"'{word}' is not key=value: write {usual_name(key)}={value}")
    if word.startswith("~") and usual_name(word) in SETTINGS:
        raise ValueError(f"'{word}' is not key=value: leave {usual_name(word)} out, and it has the recipe's value")
    if "," in word and "@" not in word and not path.exists():
        raise ValueError(f"'{word}': separate studies by spaces: {word.replace(',', ' ')}")


def refuse_csv(source: Path) -> None:
    """Raise ValueError if results are to be read from a .csv file."""
    if source.suffix.lower() == ".csv":
        raise ValueError(
            f"{source}: a .csv is for other programs: results are read from a run directory, or from the file that "
            "`ablate export --out FILE.parquet` writes"
        )


def refuse_other_encodings(word: str) -> None:
    """Raise ValueError if a word is not UTF-8: names and settings are written to JSON, YAML and HTML."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{word}: is not UTF-8: rename it, or set a locale with UTF-8 (LC_ALL=C.UTF-8)") from None


def check_assignment(word: str, key: str, value: Any) -> None:
    """Raise ValueError if `key=value` has two equals signs or no value."""
    if isinstance(value, str) and value.startswith("="):
        raise ValueError(f"{word}: write one equals sign: {key}={value.lstrip('=')}")
    if value == "" and key not in ("model", "position_at"):  # these two may be empty
        raise ValueError(f"{word}: the value is missing: write {key}=VALUE, without spaces")


def check_overrides(overrides: Settings, studies: Sequence[str], recipe: str) -> None:
    """Raise ValueError if a setting of the command line is unknown or has an invalid value.

    What only Config knows is left to it: names of variants, options such as `position.base`, settings of stages such as
    `pretrain.lr`, and combinations.
    """
    for key, value in overrides.items():
        if key in SETTINGS:
            check_one_value(key, value, studies, recipe)
        elif "." not in key and spelling_hint(usual_name(key), SETTINGS):
            raise ValueError(unknown_key(key, SETTINGS))
    check_settings(overrides)


def check_one_value(key: str, value: Any, studies: Sequence[str], recipe: str) -> None:
    """Raise ValueError if a setting is given several values, with the study that compares them.

    studies: the studies of the command. recipe: its recipe.
    """
    values = several_values(key, value)
    listed = ", ".join(values)
    said = f"{key}={value if isinstance(value, str) else listed}"
    if key == "seed" and (values or SEED_RANGE.fullmatch(str(value))):
        raise ValueError(
            f"{said}: is one seed: `ablate run STUDY --seeds {len(values) or 'N'}` trains several of every arm"
        )
    if not values:
        return
    if key in HOW_IT_RUNS:
        raise ValueError(f"{said}: one value: it is how a trial runs, not what it learns")
    if key in FIXED:
        arms = ", ".join(f"'{key}={one}': {{{key}: {one}}}" for one in values[1:])
        varied = f"arms: {{{arms}}}"
    else:
        varied = f"factors: {{{key}: [{listed}]}}"
    text = shlex.quote(f"{{question: 'Which {key}?', baseline: {{{key}: {values[0]}}}, {varied}}}".replace("'", '"'))
    on = "" if recipe == "digits" else f" --recipe {shlex.quote(recipe)}"
    first = f"`curves: {{{key}: [{listed}]}}` in a study's file trains every arm at each; a study of {key} alone is"
    what = first if studies and key not in FIXED else "values to compare are a study:"
    raise ValueError(f"{said}: one value; {what} echo {text} > {key}.yaml && ablate run {key}.yaml{on}")


def several_values(key: str, value: Any) -> list[str]:
    """Return the values that are meant by a list or by text such as "1e-3,1e-4" or "choice(a,b)", or [] for one value.

    Each value is valid by itself. A comma in a path is a part of it.
    """
    found = SEVERAL.fullmatch(str(value))
    inside = next(filter(None, found.groups()), "") if found else ""
    parts = value if isinstance(value, list) else inside.split(",")
    parts = [text for part in parts if (text := str(part).strip())]
    if len(parts) < 2 or (key in PATHS and re.search("[/:]", str(value))):
        return []
    for part in parts:
        try:
            check_settings({key: strict_yaml.parse(part, key)})
        except ConfigError:
            return []
    return parts
