"""Answers to commands and options of other tools, such as git, Hydra, W&B, timm and scikit-learn."""

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ablations.cli.inputs.words import is_setting
from ablations.study import strict_yaml
from commonfloor.messages import usual_name

HABITS = strict_yaml.read(Path(__file__).with_suffix(".yaml"))
INSTEAD_OF_VALUE = {"markdown": "md", "tex": "latex"}
DRY = ("dry-run", "dry", "n", "dryrun", "preview", "plan", "print-config")


def answer_with(name: str, answers: Mapping[str, str]) -> str:
    """Return the answer whose names contain `name`, or "" if none does."""
    return next((answer for answer, names in answers.items() if name in names.split()), "")


def option_answer(option: str, command: Any, words: Sequence[str]) -> str:
    """Return what does here what an unknown option does in other tools, or "" if nothing does."""
    if "-help" in words:
        return f"`{command_line(words, {'-help': '--help'})}`"
    words = split_letter(option, words)
    given = next((word for word in words if word.startswith(option)), "")
    if not given:  # a letter inside a word of several, such as -xv
        return ""
    name = given.partition("=")[0].lstrip("-").replace("_", "-").lower()
    if name == "cfg" and words[words.index(given) + 1 :][:1] == ["job"]:
        return "`ablate plan STUDY` shows what it would do, and `ablate list settings` every setting"
    if name == "v" and words[0] == given:
        return "`ablate --version`"
    if name in DRY and command.name == "run":
        return f"`{command_line(words, {'run': 'plan', given: ''})}` shows what it would do"
    answer = answer_with(name, HABITS["options_of"].get(command.name, {}))
    if answer:
        return use_option(answer, command) or answer
    takes_settings = any("KEY=VALUE" in (parameter.metavar or "") for parameter in command.params)
    setting = usual_name(name)
    if takes_settings and is_setting(setting) and (setting != "seed" or command.name == "train"):
        corrected = with_setting(given, setting, words)
        if corrected:
            return f"settings are words: `{command_line(corrected)}`"
    answer = answer_with(name, HABITS["options"])
    first = answer.partition(" ")[0]
    if first.startswith("--") or not takes_settings:
        return use_option(answer, command)
    if "=" in first:
        return f"settings are words: `{command_line(words, {given: first})}`"
    return answer


def use_option(answer: str, command: Any) -> str:
    option = answer.partition(" ")[0]
    has_option = any(option in parameter.opts for parameter in command.params)
    return f"use {answer}" if has_option else ""


def split_letter(option: str, words: Sequence[str]) -> list[str]:
    """Return the words with a letter and its number apart, as in -b 64 for -b64, if the letter is `option`."""
    separate: list[str] = []
    for word in words:
        glued = re.fullmatch(rf"({re.escape(option)})(\d.*)", word)
        separate += glued.groups() if glued else [word]
    return separate


def value_answer(parameter: Any, words: Sequence[str]) -> str:
    """Return what to type instead of the value that a parameter was given, or "" if nothing is known."""
    if parameter.param_type_name == "argument":
        for word in words:
            if is_setting(word):
                return f"'{word}': `ablate list variants` and `ablate list settings` have it"
        return ""
    value = value_of(parameter.opts, words)
    option = parameter.opts[0]
    if value in INSTEAD_OF_VALUE:
        return f"{option} {value}: use {option} {INSTEAD_OF_VALUE[value]}"
    if option == "--seeds" and re.fullmatch(r"\d+(,\d+)+", value):
        number = value.count(",") + 1
        return f"{option} {value}: is a number: {option} {number}, for seeds 0 to {number - 1}"
    return ""


def value_of(options: Sequence[str], words: Sequence[str]) -> str:
    for word, following in pairwise([*words, ""]):
        name, equals, value = word.partition("=")
        if name in options:
            return value if equals else following
    return ""


def with_setting(given: str, setting: str, words: Sequence[str]) -> list[str]:
    """Return the words with `setting=value` in place of the option `given` and its value, or [] if it has no value."""
    position = words.index(given)
    _, equals, value = given.partition("=")
    end = position + 1
    if not equals:
        value = next(iter(words[end:]), "-")
        end += 1
        if value.startswith("-"):
            return []
    return [*words[:position], f"{setting}={value}", *words[end:]]


def command_line(words: Sequence[str], corrections: Mapping[str, str] = {}) -> str:
    """Return the command with these words. corrections: word -> another word, or "" to leave it out."""
    corrected = [corrections.get(word, word) for word in words]
    return shlex.join(["ablate", *filter(None, corrected)])


def first_example(command: Any) -> str:
    after = (command.help or "").partition("Examples:\n")[2]
    return after.strip().partition("\n")[0].strip()
