"""Parse the words of a command into studies and settings, and correct words that are neither. Loads no torch."""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablations.study import strict_yaml
from ablations.study.naming import RECIPE
from ablations.study.reading import FIXED, read_recipe
from ablations.trainables.trainable import VIT, Trainable, find
from commonfloor.messages import spelling_hint, unknown_key, usual_name
from results.store import is_run_directory
from results.store.schemas.base import Settings
from results.store.schemas.metrics import checked_margin

PATHS = ("data", "init_from", "teacher")  # settings whose values may be paths, which may contain commas
SEVERAL = re.compile(r"(?:choice|range|grid)\((.*)\)|\[(.*)\]|(.*,.*)", re.DOTALL)
SEED_RANGE = re.compile(r"\d+(?:-|\.\.|:)\d+|range\(.*\)")


@dataclass(frozen=True)
class Request:
    """The studies and settings that a command's words name, and its option --recipe."""

    studies: list[str]
    overrides: Settings
    margin: float | str | None = None  # replaces the margin of the studies
    recipe: str | None = None

    @property
    def stated_margin(self) -> dict[str, Any]:
        """The margin as a field of studies and plans, if there is one."""
        return {} if self.margin is None else {"margin": self.margin}

    def check_overrides(self) -> None:
        """Raise ValueError if a setting of the command line is unknown or has an invalid value."""
        if not self.overrides:
            return
        trainable = find(read_recipe(self.recipe or RECIPE).trainable)
        for key, value in self.overrides.items():
            if key in trainable.keys:
                self.refuse_several_values(key, value, trainable)
            elif "." not in key and spelling_hint(usual_name(key), trainable.keys):
                raise ValueError(unknown_key(key, trainable.keys))
        trainable.check_settings(self.overrides)

    def refuse_several_values(self, key: str, value: Any, trainable: Trainable) -> None:
        values = several_values(key, value, trainable)
        listed = ", ".join(values)
        given = f"{key}={value}"
        if isinstance(value, list):
            given = f"{key}={listed}"
        if key == "seed" and (values or SEED_RANGE.fullmatch(str(value))):
            number = len(values) or "N"
            raise ValueError(f"{given}: is one seed: `ablate run STUDY --seeds {number}` trains several of every arm")
        if not values:
            return
        if key in trainable.how_it_runs:
            raise ValueError(f"{given}: one value: it is how a trial runs, not what it learns")
        is_fixed = key in FIXED or key in trainable.fixed
        varied = f"factors: {{{key}: [{listed}]}}"
        if is_fixed:
            arms = ", ".join(f'"{key}={other}": {{{key}: {other}}}' for other in values[1:])
            varied = f"arms: {{{arms}}}"
        study = shlex.quote(f'{{question: "Which {key}?", baseline: {{{key}: {values[0]}}}, {varied}}}')
        advice = "values to compare are a study:"
        if self.studies and not is_fixed:
            curves = f"`curves: {{{key}: [{listed}]}}` in a study's file trains every arm at each"
            advice = f"{curves}; a study of {key} alone is"
        on = f" --recipe {shlex.quote(self.recipe)}" if self.recipe else ""
        raise ValueError(f"{given}: one value; {advice} echo {study} > {key}.yaml && ablate run {key}.yaml{on}")


def several_values(key: str, value: Any, trainable: Trainable) -> list[str]:
    """Return the values meant by a list or by text such as "1e-3,1e-4" or "choice(a,b)", or [] for one value."""
    several = SEVERAL.fullmatch(str(value))
    if not several:
        return []
    parts = value
    if not isinstance(value, list):
        parts = several[several.lastindex or 0].split(",")
    texts = [str(part).strip() for part in parts if str(part).strip()]
    if len(texts) < 2 or (key in PATHS and re.search("[/:]", str(value))):
        return []
    try:
        for text in texts:
            trainable.check_settings({key: strict_yaml.parse(text, key)})
    except ValueError:
        return []
    return texts


def parse_words(words: Iterable[str] | None, recipe: str | None = None) -> Request:
    studies: list[str] = []
    overrides: dict[str, Any] = {}
    for word in words or ():
        refuse_other_encodings(word)
        if not is_assignment(word):
            check_word(word)
            studies.append(word)
            continue
        key, value = strict_yaml.assignment(word)
        if isinstance(value, str) and value.startswith("="):
            raise ValueError(f"{word}: write one equals sign: {key}={value.lstrip('=')}")
        if value == "" and key not in ("model", "position_at"):  # these two may be empty
            raise ValueError(f"{word}: the value is missing: write {key}=VALUE, without spaces")
        if key in overrides:
            raise ValueError(f"{key} is set twice")
        overrides[key] = value
    margin = overrides.pop("margin", None)
    if margin is not None:
        margin = checked_margin(margin)
    return Request(studies, overrides, margin, recipe)


def is_setting(word: str) -> bool:
    return usual_name(word) in find(VIT).keys


def is_assignment(word: str) -> bool:
    """Return whether a word is key=value, not a file or the name of a plan with settings."""
    key, equals, _ = word.partition("=")
    return bool(equals) and word != "=" and "@" not in key and not word.endswith((".yaml", ".yml"))


def check_word(word: str) -> None:
    """Raise ValueError with a correction if a word is no study, such as a run directory or what other tools take."""
    path = Path(word)
    if (path / "plan.json").is_file():
        name = shlex.quote(path.absolute().name)
        raise ValueError(
            f"{word}: is a study's folder: name the study: {name} --runs {shlex.quote(str(path.parents[1]))}"
        )
    if is_run_directory(path):
        raise ValueError(f"{word}: is a run directory: give it as --runs {shlex.quote(word)}")
    refuse_csv(path)
    if path.suffix == ".parquet":
        raise ValueError(f"{word}: is no study: exported results are read with --runs {shlex.quote(word)}")
    if word == "*":
        raise ValueError("'*': every packaged study is called 'all'")
    if word == "=":
        raise ValueError("'=' stands alone: write key=value without spaces, as in lr=1e-3")
    key, colon, value = word.partition(":")
    if colon and value and "/" not in word and is_setting(key):
        raise ValueError(f"'{word}' is not key=value: write {usual_name(key)}={value}")
    if word.startswith("~") and is_setting(word):
        raise ValueError(f"'{word}' is not key=value: leave {usual_name(word)} out, and it has the recipe's value")
    if "," in word and "@" not in word and not path.exists():
        raise ValueError(f"'{word}': separate studies by spaces: {word.replace(',', ' ')}")


def refuse_csv(source: Path) -> None:
    if source.suffix.lower() == ".csv":
        raise ValueError(
            f"{source}: a .csv is for other programs: results are read from a run directory, or from the file that "
            "`ablate export --out FILE.parquet` writes"
        )


def refuse_other_encodings(word: str) -> None:
    try:
        word.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{word}: is not UTF-8: rename it, or set a locale with UTF-8 (LC_ALL=C.UTF-8)") from None
