"""Parse the words of a command into studies and settings, and correct words that are neither. Loads no torch."""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ablations.study import key_checks, strict_yaml
from ablations.study.naming import RECIPE
from ablations.study.reading import read_recipe
from ablations.trainables.trainable import VIT, Trainable, find
from commonfloor.messages import spelling_hint, unknown_key, usual_name
from results.store.schemas import Settings
from results.store.schemas.metrics import checked_margin

SETTINGS = tuple(find(VIT).keys)
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

    What only resolving knows is left to it: names of variants, options such as `position.base`, settings of stages such
    as `pretrain.lr`, and combinations.
    """
    if not overrides:
        return
    trainable = find(read_recipe(recipe).trainable)
    for key, value in overrides.items():
        if key in trainable.keys:
            values = several_values(key, value, trainable)
            refuse_several_seeds(key, value, values)
            if values:
                raise ValueError(several_values_text(key, value, values, trainable, studies, recipe))
        elif "." not in key and spelling_hint(usual_name(key), trainable.keys):
            raise ValueError(unknown_key(key, trainable.keys))
    trainable.check_settings(overrides)


def refuse_several_seeds(key: str, value: Any, values: Sequence[str]) -> None:
    if key == "seed" and (values or SEED_RANGE.fullmatch(str(value))):
        number = len(values) or "N"
        raise ValueError(f"seed={value}: is one seed: `ablate run STUDY --seeds {number}` trains several of every arm")


def several_values_text(
    key: str, value: Any, values: Sequence[str], trainable: Trainable, studies: Sequence[str], recipe: str
) -> str:
    """Return the error message for a setting with several values, with the study that compares them.

    studies: the studies of the command. recipe: its recipe.
    """
    listed = ", ".join(values)
    given = f"{key}={listed if isinstance(value, list) else value}"
    if key in trainable.how_it_runs:
        return f"{given}: one value; it is how a trial runs, not what it learns"
    is_fixed = key in key_checks.FIXED or key in trainable.fixed
    varied = f"factors: {{{key}: [{listed}]}}"
    if is_fixed:
        arms = ", ".join(f'"{key}={other}": {{{key}: {other}}}' for other in values[1:])
        varied = f"arms: {{{arms}}}"
    study = shlex.quote(f'{{question: "Which {key}?", baseline: {{{key}: {values[0]}}}, {varied}}}')
    on = "" if recipe == RECIPE else f" --recipe {shlex.quote(recipe)}"
    advice = "values to compare are a study:"
    if studies and not is_fixed:
        curves = f"`curves: {{{key}: [{listed}]}}` in a study's file trains every arm at each"
        advice = f"{curves}; a study of {key} alone is"
    return f"{given}: one value; {advice} echo {study} > {key}.yaml && ablate run {key}.yaml{on}"


def several_values(key: str, value: Any, trainable: Trainable) -> list[str]:
    """Return the values that are meant by a list or by text such as "1e-3,1e-4" or "choice(a,b)", or [] for one value.

    Each value is valid by itself. A comma in a path is a part of it.
    """
    if isinstance(value, list):
        parts = [str(part).strip() for part in value]
    else:
        several = SEVERAL.fullmatch(str(value))
        inside = several[1] or several[2] or several[3] or "" if several else ""
        parts = [part.strip() for part in inside.split(",")]
    parts = list(filter(None, parts))
    if len(parts) < 2 or (key in PATHS and re.search("[/:]", str(value))):
        return []
    try:
        for part in parts:
            trainable.check_settings({key: strict_yaml.parse(part, key)})
    except ValueError:
        return []
    return parts
