"""The template of a command line: words with names in braces, which a trial's values replace.

The template is split into words once, as a shell would. No shell runs it, so a value is never split or expanded.
"""

import json
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from commonfloor.messages import joined_names, spelling_hint

NAME = re.compile(r"\{([A-Za-z_][\w.-]*)\}")
SPELLING = "--{key} {value}"  # of a setting in `{settings}`, by default
SETTINGS = "{settings}"  # a word that stands for all settings that the template does not name
OWN_NAMES = ("seed", "folder", "settings", "settings_file")  # what a template may name besides settings


@dataclass(frozen=True)
class Template:
    """A command line with names in braces. spelling: the words that stand for a setting in `{settings}`."""

    words: tuple[str, ...]
    spelling: tuple[str, ...]

    @property
    def names(self) -> set[str]:
        return {name for word in self.words for name in NAME.findall(word)}

    @property
    def text(self) -> list[str]:
        """The words of the command, with the spelling if it matters."""
        return [*self.words, *(self.spelling if SETTINGS in self.words else ())]

    def fill(self, settings: Mapping[str, Any], trial_values: Mapping[str, str]) -> list[str]:
        """Return the arguments of a trial's command. trial_values: of OWN_NAMES without `settings`."""
        values = {**{name: value_text(value) for name, value in settings.items()}, **trial_values}
        arguments: list[str] = []
        for word in self.words:
            if word != SETTINGS:
                arguments.append(NAME.sub(lambda found: values[found[1]], word))
                continue
            for name, value in settings.items():
                if name not in self.names:
                    arguments += self.spelled(name, value)
        return arguments

    def spelled(self, name: str, value: Any) -> list[str]:
        """Return the words for a setting in `{settings}`: none for null, and for false where true is the flag alone."""
        is_flag = isinstance(value, bool) and len(self.spelling) > 1
        if value is None or (is_flag and not value):
            return []
        words = self.spelling[:1] if is_flag else self.spelling
        return [word.replace("{key}", name).replace("{value}", value_text(value)) for word in words]


def value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def parse(train: str, spelling: str, settings: Collection[str]) -> Template:
    """Return the template in a recipe's `train`. Raises ValueError if a name is unknown or a setting is not used."""
    for name in settings:
        if name in OWN_NAMES:
            raise ValueError(f"config: {name}: is the name of something else in `train`: rename the setting")
    template = Template(split("train", train), split("spelling", spelling))
    if not {"{key}", "{value}"} <= set(re.findall(r"\{\w+\}", spelling)):
        raise ValueError(f"spelling={spelling}: words with {{key}} and {{value}}, as in --{{key}} {{value}}")
    allowed = [*settings, *OWN_NAMES]
    for name in sorted(template.names.difference(allowed)):
        hint = spelling_hint(name, allowed) or f": known are {joined_names(allowed)}"
        raise ValueError(f"train: {{{name}}} is unknown{hint}")
    if any(SETTINGS in word and word != SETTINGS for word in template.words):
        raise ValueError(f"train: {SETTINGS} stands for several words: separate it by blanks")
    unused = [name for name in settings if name not in template.names]
    if unused and not template.names & {"settings", "settings_file"}:
        raise ValueError(
            f"config: {joined_names(unused)}: the command takes it nowhere: write {{{unused[0]}}} or "
            f"{SETTINGS} into `train`"
        )
    return template


def split(key: str, text: str) -> tuple[str, ...]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{key}: {text}: {str(error).lower()}") from None
    if not words:
        raise ValueError(f"{key}: a command line, as in python train.py --lr {{lr}}")
    return tuple(words)
