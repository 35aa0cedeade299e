"""Strict YAML: the core schema of YAML 1.2, without tags, aliases and large files."""

import json
import math
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ablations.study import strict_yaml
from ablations.study.reading import read_recipe

CORE = {  # of the tables and examples of section 10.3.2 of the specification
    "0": 0,
    "010": 10,
    "0123": 123,
    "-19": -19,
    "+07": 7,
    "0o7": 7,
    "0o10": 8,
    "0x3A": 58,
    "0.": 0.0,
    "-0.0": 0.0,
    ".5": 0.5,
    "+12e03": 12000.0,
    "-2E+05": -200000.0,
    "1e-3": 0.001,
    ".inf": math.inf,
    "-.Inf": -math.inf,
    "+.INF": math.inf,
    "true": True,
    "False": False,
    "null": None,
    "~": None,
    **{text: text for text in ("1_000", "0b11", "1:30", "2001-01-01", "0o9", "-0o7", "no", "on", "nan")},
    "١٢": "١٢",  # digits, but not of ASCII
}


@pytest.mark.parametrize(("text", "value"), CORE.items(), ids=CORE)
def test_scalars_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    found = strict_yaml.parse(text, "s.yaml")
    assert (type(found), found) == (type(value), value)
    assert strict_yaml.assignment(f"key={text}") == ("key", value)


REFUSED = {
    "self": ("&q [*q]", "alias"),
    "billions": ("a: &a [1, 1]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in pairwise("abcdefg")), "alias"),
    "key": ("{&a a: 1, b: *a}", "alias"),
    "duplicate": ("a: 1\nb: 2\na: 3", "(?<=line 3: )duplicate key 'a'"),
    "set": ("!!set {a, b}", "tag"),
    "binary": ("!!binary aGk=", "tag"),
    "object": ("!!python/object/apply:os.getpid []", "tag"),
    "not a number": ("!!int x", "x is not a whole number"),
    "long": ("9" * 5000, "is not a whole number of at most 4300 digits"),
    **{
        f"deep: {start!r}": (start * number + end * number, "(?<=line 1: )is nested more than 50 deep$")
        for start, end, number in (("[", "", 100_000), ("- ", "", 100_000), ("{a: ", "", 1000), ("[", "]", 51))
    },
    **{
        ascii(sign): (f"a: 1\nb: {json.dumps(sign)}", "(?<=line 2: ).*(holds a control|invalid Unicode) character")
        for sign in ("\x1b[2J", "\x07", "\0", "\x85", "\u2028", "\ud800")
    },
}


@pytest.mark.parametrize(("text", "why"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_plain_data_is_refused_by_line(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=rf"^s\.yaml, line \d+: .*{why}") as error:
        strict_yaml.parse(text, "s.yaml")
    assert len(str(error.value)) < 200


def test_depth_that_a_person_writes_tabs_and_new_lines_are_read() -> None:
    assert strict_yaml.parse("[" * 40 + "]" * 40, "s.yaml")
    assert strict_yaml.parse('a: "x\\n\\ty\u00a0é名"', "s.yaml") == {"a": "x\n\ty\u00a0é名"}


def test_a_file_is_regular_and_small(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "huge.yaml").write_text("a: 1\n" + "#" * 2**20)
    for name in ("pipe", "zero", "folder", "huge"):
        why = "at most" if name == "huge" else "not a regular file"
        with pytest.raises(ValueError, match=rf"{name}\.yaml: .*{why}"):
            strict_yaml.read(tmp_path / f"{name}.yaml")


def test_a_tab_is_called_a_tab() -> None:
    with pytest.raises(ValueError, match=r"r\.yaml, line 2: .*there is a tab: indent with spaces"):
        strict_yaml.parse("config:\n\tdata: digits\n", "r.yaml")
    with pytest.raises(ValueError, match=r"r\.yaml") as failed:
        strict_yaml.parse("a: [1\n", "r.yaml")
    assert "tab" not in str(failed.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("config: {learning_rate: 1}", "config: unknown key 'learning_rate'; did you mean 'lr'?"),
        ("config: {zzz: 1}", "config: unknown key 'zzz': `ablate list --settings` names all"),
        ("learning_rate: 1\nconfig: {}", "unknown key 'learning_rate'; did you mean 'lr' below 'config:'?"),
    ],
)
def test_a_recipe_with_an_unknown_setting_is_named(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(f"description: d\nseeds: 2\n{text}\n")
    with pytest.raises(ValueError, match="unknown key") as failed:
        read_recipe(str(file))
    assert str(failed.value) == f"{file}: {said}"
