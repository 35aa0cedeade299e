"""YAML as data and nothing else: no tags, no duplicate keys, no surprises.

`1e-3` is a number, `no` and `on` are words, a tag, a key written twice or a control character is an error.
"""

import re
import unicodedata
from pathlib import Path
from typing import Any

import yaml

UNWRITABLE = ("Cc", "Cs", "Zl", "Zp")  # Unicode's control characters, surrogates, line and paragraph separators
DEEPEST = 50  # libyaml recurses without a look at the stack


class Loader(yaml.CSafeLoader):
    """libyaml's safe loader, a fifth of the other's time, with the scalars of YAML 1.2 and strict mappings."""

    yaml_implicit_resolvers = {}
    depth = 0

    def descend_resolver(self, current_node: yaml.Node | None, current_index: Any) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            mark = current_node.start_mark if current_node else None
            raise yaml.composer.ComposerError(None, None, f"is nested more than {DEEPEST} deep", mark)
        super().descend_resolver(current_node, current_index)

    def ascend_resolver(self) -> None:
        self.depth -= 1
        super().ascend_resolver()

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for position, key in enumerate(keys):
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is not a word", node.start_mark)
            if key in keys[:position]:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key '{key}'", node.start_mark)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        value = super().construct_scalar(node)
        if isinstance(value, str) and any(unicodedata.category(c) in UNWRITABLE and c not in "\n\t" for c in value):
            problem = f"{ascii(value)[:60]} holds a control character or half of one"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return value


for tag, pattern, first in (
    ("bool", r"(?:true|false)", "tf"),
    ("null", r"(?:null|~|)", ["n", "~", ""]),
    ("int", r"[-+]?\d+", "-+0123456789"),
    ("float", r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?", "-+.0123456789"),
):
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^{pattern}$"), list(first))


def parse(text: str, name: str) -> Any:
    """Raises ValueError: one line with `name`, the line number and what is wrong."""
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}, line {mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ValueError(f"{where}: {problem}") from None


def read(path: Path) -> dict[str, Any]:
    """The mapping in a file. Raises ValueError, also where the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read ({error})") from None
    content = parse(text, str(path))
    if not isinstance(content, dict):
        raise ValueError(f"{path}: is not a mapping of keys to values")
    return content


def assignment(text: str) -> tuple[str, Any]:
    """'lr=1e-3' -> ('lr', 0.001): the value as YAML reads it. Raises ValueError."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"'{text}' is neither a study nor key=value")
    return key, parse(value, text) if value else ""
