"""A strict reader of YAML 1.2 (core schema) as plain data, without other tags, aliases or duplicate keys.

`1e-3` is a number, `010` is ten, `no` and `on` are strings. Limits on size and depth bound the time to read a file.
"""

import re
import unicodedata
from pathlib import Path
from typing import Any

import yaml

from commonfloor.files import read_bytes
from commonfloor.messages import reason

UNWRITABLE = ("Cc", "Cs", "Zl", "Zp")  # Unicode's control characters, surrogates, line and paragraph separators
DEEPEST = 50  # maximum nesting, as libyaml recurses without checking the stack
LARGEST = 2**20  # maximum bytes of a file
TAG = "tag:yaml.org,2002:"
TAGS = {None, *(TAG + kind for kind in ("null", "bool", "int", "float", "str", "seq", "map"))}  # None: unknown tags


class Loader(yaml.CSafeLoader):
    """A YAML loader on libyaml (five times faster than pure Python), with YAML 1.2's scalars and strict mappings."""

    yaml_implicit_resolvers = {}
    yaml_constructors = {tag: construct for tag, construct in yaml.CSafeLoader.yaml_constructors.items() if tag in TAGS}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise refusal(f"key {key!r} is not a word; several values are a list, such as [2, 4]", key_node)
            if key in mapping:
                raise refusal(f"duplicate key '{key}'", key_node)
            mapping[key] = self.construct_object(value_node, deep)
        return mapping

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        value = super().construct_scalar(node)
        if isinstance(value, str) and any(unicodedata.category(c) in UNWRITABLE and c not in "\n\t" for c in value):
            raise refusal(f"{ascii(value)[:60]} holds a control character or half of one", node)
        return value

    def construct_int(self, node: yaml.ScalarNode) -> int:
        """Return the integer in a node: octal after 0o, hexadecimal after 0x, otherwise decimal."""
        text = self.construct_scalar(node)
        try:
            return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        except ValueError:
            raise refusal(f"{text[:60]} is not a whole number of at most 4300 digits", node) from None

    def construct_float(self, node: yaml.ScalarNode) -> float:
        text = self.construct_scalar(node)
        try:
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            raise refusal(f"{text[:60]} is not a number", node) from None


def refusal(problem: str, node: Any) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


for kind, pattern, first in (
    ("null", "null|Null|NULL|~|", ["n", "N", "~", ""]),
    ("bool", "true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?\d+|0o[0-7]+|0x[\da-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?", "-+.0123456789"),
    ("float", r"[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN", "-+."),
):
    Loader.add_implicit_resolver(TAG + kind, re.compile(f"^({pattern})$", re.ASCII), list(first))
Loader.add_constructor(TAG + "int", Loader.construct_int)
Loader.add_constructor(TAG + "float", Loader.construct_float)


def refuse_nesting_and_aliases(text: str) -> None:
    """Raise ConstructorError if YAML text is nested too deeply or has aliases, which may expand without bound."""
    depth = 0
    for event in yaml.parse(text, Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise refusal(f"is nested more than {DEEPEST} deep", event)
        if isinstance(event, yaml.AliasEvent):
            raise refusal("an anchor with aliases: write its value out at each place", event)


def parse(text: str, name: str) -> Any:
    """Return the content of YAML text as plain data. Raises a ValueError with `name`, the line and the problem."""
    try:
        refuse_nesting_and_aliases(text)
        return yaml.load(text, Loader)
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}, line {mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        if mark and "\t" in "".join(text.split("\n")[mark.line : mark.line + 1])[: mark.column + 1]:
            problem += " (there is a tab: indent with spaces)"
        elif problem.startswith("mapping values are not allowed"):
            problem += " (quote a value that contains ': ')"
        raise ValueError(f"{where}: {problem}") from None


def read(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file. Raises ValueError if the file cannot be read or is not one mapping."""
    try:
        text = read_bytes(path, LARGEST).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read ({reason(error)})") from None
    content = parse(text, str(path))
    if not isinstance(content, dict):
        raise ValueError(f"{path}: is not a mapping of keys to values")
    return content


def assignment(text: str) -> tuple[str, Any]:
    """Return (key, value) for an assignment such as 'lr=1e-3'. The value is parsed as YAML; a missing one is ""."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"'{text}' is neither a study nor key=value")
    return key, parse(value, text) if value else ""
