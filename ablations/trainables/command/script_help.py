"""What the --help of a program says of its options: argparse, click and typer, and `--cfg job` of Hydra's programs.

Nothing is imported: a default that help does not print is not known.
"""

import os
import re
import shlex
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import yaml

from commonfloor.messages import printable

LIMIT_SECONDS = 60.0  # for a program to print its help: importing torch may take many seconds
MOST = 1 << 20  # bytes of help
WIDTH = "500"  # columns of the terminal that programs are told of
NO_DEFAULT = "no default in --help"
SEVERAL = "takes several values: write them into `train`"
INDENT = 8  # the most of a line that begins an option
OPTION_LINE = re.compile(r"(\s*)(-[A-Za-z]|--[A-Za-z\[])")
OPTION_NAME = re.compile(r"(?<![^\s,/|])--?[A-Za-z][\w.-]*")
POSITIONALS = re.compile(r"(positional )?arguments:\s*$", re.IGNORECASE)
COMMANDS = re.compile(r"^  \{([^{}\s]+)\}|^Commands:\n\s+(\S+)", re.MULTILINE)  # of argparse, or of click
BOXED_TYPE = re.compile(r"([A-Z][A-Z_]*( RANGE)?|<[^<>]+>)( \[[^\[\]]*x[^\[\]]*\])?|\[[^\[\]\s]+\]")
USUAL = ("help", "version", "install-completion", "show-completion")  # options that are no settings
WHOLE, NUMBER = re.compile(r"[-+]?(0|[1-9]\d*)"), re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
NEEDLESS_ZERO = re.compile(r"^[-+]?0\d|[1-9]\d*\.\d+0(?!\d)")  # not of 0.50, which is no version
RANGE = re.compile(r"(?:([-+.\de]+)\s*<=\s*)?x(?:\s*<=\s*([-+.\de]+))?")
LAUNCHER = "torch.distributed.run"  # a module that runs a script
SAFE_FOR_HYDRA = re.compile(r"[\w./@+-]+")  # text that Hydra takes as it is


@dataclass(frozen=True)
class ScriptOption:
    name: str
    help: str = ""
    spellings: tuple[str, ...] = ()
    is_flag: bool = False
    default: Any = None
    choices: tuple[Any, ...] = ()
    low: float | None = None
    high: float | None = None
    is_required: bool = False
    problem: str = ""

    def is_given(self, words: Sequence[str]) -> bool:
        return any(word.partition("=")[0] in self.spellings for word in words)

    @property
    def limits(self) -> dict[str, Any]:
        if self.choices:
            return {"choices": list(self.choices)}
        bounds = {"min": self.low, "max": self.high}
        return {name: literal(f"{bound:g}") for name, bound in bounds.items() if bound is not None}


@dataclass(frozen=True)
class ScriptHelp:
    """What a program takes. arguments: required ones without a name of an option. spelling: as of a recipe."""

    options: list[ScriptOption]
    arguments: list[str]
    spelling: str
    is_hydra: bool = False


# -- asking ------------------------------------------------------------------------------------------------------------


def read_help(words: Sequence[str]) -> ScriptHelp:
    with_help = with_option(words, "--help")
    text = without_boxes(output_of(with_help))
    if "hydra.cc" in text or "powered by Hydra" in text:
        settings = [word for word in words[len(with_help) - 1 :] if "{" not in word]  # they may choose other settings
        return read_hydra([*with_option(words, "--cfg", "job"), *settings], text)
    commands = COMMANDS.search(text)
    if commands and not {*words} & {*(commands[1] or "").split(",")}:
        names = commands[1] or f"{commands[2]}, ..."
        raise ValueError(f"--train: the program has commands: write one of them after its name: {names}")
    parsed = parse(text)
    if not parsed.options and not parsed.arguments:
        raise ValueError(f"--train: `{shlex.join(with_help)}` lists no options")
    return parsed


def with_option(words: Sequence[str], *option: str) -> list[str]:
    """Return the words of a command with an option before its own. Words after that may hold values in braces."""
    place = script_end(words)
    while place < len(words) and not words[place].startswith("-") and not re.search(r"[{=]", words[place]):
        place += 1
    return [*words[:place], *option]


def script_end(words: Sequence[str]) -> int:
    """Return how many words name a program, as two of `python train.py` and three of `python -m train`."""
    for place, word in enumerate(words):
        if word.endswith((".py", ".sh")):
            return place + 1
        if word == "-m" and LAUNCHER not in words[place + 1 : place + 2]:
            return min(place + 2, len(words))
    return 1


def output_of(words: Sequence[str]) -> str:
    """Return what a command prints to standard output. Raises ValueError if it fails or is late. No shell is used."""
    command = f"--train: `{shlex.join(words)}`"
    plain = {"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH, "NO_COLOR": "1", "TERM": "dumb", "TYPER_USE_RICH": "0"}
    env = {**os.environ, **plain}
    with tempfile.TemporaryFile() as errors:
        try:
            process = Popen(words, env=env, stdin=DEVNULL, stdout=PIPE, stderr=errors, start_new_session=True)
        except OSError as error:
            raise ValueError(f"--train: {words[0]}: {error.strerror}") from None
        with process:
            timer = threading.Timer(LIMIT_SECONDS, end, [process])
            timer.start()
            try:
                assert process.stdout is not None
                output = process.stdout.read(MOST)
                if len(output) == MOST:
                    raise ValueError(
                        f"{command} printed more than {MOST >> 20} MiB and was ended: does it know --help?"
                    )
                status = process.wait()
                if timer.finished.is_set():
                    raise ValueError(f"{command} took more than {LIMIT_SECONDS:g} seconds and was ended")
            finally:
                timer.cancel()
                end(process)
        if status != 0:
            errors.seek(0)
            lines = errors.read(MOST).decode(errors="replace").rstrip().split("\n")
            last = lines[-1].strip() or "it printed no error"
            raise ValueError(f"{command} failed with exit status {status}: {printable(last)[:200]}")
    return output.decode(errors="replace")


def end(process: Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


# -- argparse, click and typer -----------------------------------------------------------------------------------------


def without_boxes(text: str) -> str:
    """Return a help text without the boxes and columns that typer draws with rich."""
    lines = []
    for line in text.splitlines():
        title = re.match(r"\s*[\u256d\u250c]\u2500 ([\w ]+?) \u2500", line)
        row = re.match(r"\s*\u2502 ?(.*?)\s*\u2502?\s*$", line)
        if title:
            line = f"{title[1]}:"
        elif row:
            line = boxed_row(row[1])
        lines.append(line)
    return "\n".join(lines)


def boxed_row(row: str) -> str:
    cells = [cell for cell in re.split(r"\s{2,}", row.strip()) if cell != "*"]
    names = [cell for cell in cells if OPTION_NAME.fullmatch(cell.split(",")[0])]
    others = cells[len(names) :]
    if not names:
        return " " * (2 + len(row) - len(row.lstrip())) + "  ".join(cells)
    long = [name for name in names if name.startswith("--")]
    off = long[1:]  # what turns a switch off
    spec = ", ".join(name for name in names if name not in off)
    if off:
        spec += f" / {off[0]}"
    if others and BOXED_TYPE.fullmatch(others[0]):
        kind, bracket, limits = others[0].partition(" [")
        spec += f" {kind}"
        others = [*others[1:], bracket.strip() + limits]
    return f"  {spec}  {' '.join(others)}"


def parse(text: str) -> ScriptHelp:
    required = required_names(text)
    options: dict[str, ScriptOption] = {}
    has_equals = False  # whether it writes --key=value
    for spec, help in option_entries(text):
        has_equals = has_equals or re.search(r"--[\w.-]+=", spec) is not None
        option = read_option(spec, help)
        is_required = option.is_required or option.name in required
        spellings = tuple(OPTION_NAME.findall(spec))
        options.setdefault(option.name, replace(option, is_required=is_required, spellings=spellings))
    listed = []
    for option in options.values():
        if has_equals and option.is_flag:
            option = replace(option, problem="a flag: write it into `train`")
        if option.name not in USUAL:
            listed.append(option)
    spelling = "--{key} {value}"
    if has_equals:
        spelling = "--{key}={value}"
    return ScriptHelp(listed, required_arguments(text), spelling)


def option_entries(text: str) -> Iterator[tuple[str, str]]:
    """Yield (what an option looks like, its help) of a help text. Lines that are indented more continue the help."""
    lines = text.expandtabs().splitlines()
    for number, line in enumerate(lines):
        start = OPTION_LINE.match(line)
        if not start or len(start[1]) > INDENT:
            continue
        spec, _, help = line.strip().partition("  ")
        words = [help]
        for further in lines[number + 1 :]:
            if not further.startswith(f"{start[1]}  "):
                break
            words.append(further)
        yield spec, printable(" ".join(" ".join(words).split()))


def read_option(spec: str, help: str) -> ScriptOption:
    """Return the option that begins a line of help, as `-b N, --batch-size N` or `--amp / --no-amp`."""
    on, _, off = spec.partition(" / ")
    names = long_names(on)
    opposites = long_names(off)
    opposites += [name for name in names if name.startswith(("no-", "no_")) and name[3:] in names]
    *_, metavar = OPTION_NAME.split(on)
    metavar = metavar.lstrip(" =").strip()
    if not names:
        short = spec.split()[0]
        return ScriptOption(short.lstrip("-"), help, problem=f"has a short name only: write {short} into `train`")
    if opposites:
        return read_switch(names[0], opposites[0], help)
    if metavar in ("", "<bool>"):
        return flag(names[0], help)
    return read_value(names[0], metavar, help)


def long_names(spec: str) -> list[str]:
    return [name[2:] for name in OPTION_NAME.findall(spec) if name.startswith("--")]


def flag(name: str, help: str, problem: str = "") -> ScriptOption:
    return ScriptOption(name, help, is_flag=True, default=False, problem=problem)


def read_switch(on: str, off: str, help: str) -> ScriptOption:
    """Return the option of a flag that has a name for on and one for off: that of the two which is not the default."""
    written = default_text(help, ())
    if written in ("True", on):
        return flag(off, help)
    if written in ("False", off):
        return flag(on, help)
    return flag(on, help, f"{NO_DEFAULT}, and --{off} is its opposite")


def read_value(name: str, metavar: str, help: str) -> ScriptOption:
    kind = metavar.strip("<>").removesuffix(" RANGE").removesuffix(" range").lower()
    choices: tuple[Any, ...] = ()
    separator = "," if metavar.startswith("{") else "|"
    if re.fullmatch(r"[\[{<][^\[\]{}<>\s]+[\]}>]", metavar) and (separator in metavar or metavar.startswith("{")):
        choices = tuple(map(literal, metavar[1:-1].split(separator)))
    option = ScriptOption(name, help, choices=choices, is_required=re.search(r"\[[^\[]*required\]", help) is not None)
    if not choices and (" " in kind or "..." in kind or kind.startswith("list[")):
        return replace(option, problem=SEVERAL)
    written = default_text(help, choices)
    if written is None:
        return replace(option, problem=NO_DEFAULT)
    default = typed(written, kind)
    if not choices and metavar.startswith("["):  # may stand without a value, as `--fp16 [FP16]`
        if default in ("False", None):
            return flag(name, help)
        if default != "True":
            return replace(option, problem="may stand without a value: write it into `train`")
    if kind in ("integer", "int", "float") and isinstance(default, str):
        return replace(option, problem=SEVERAL)
    if default in ("True", "False"):
        return replace(option, default=default, choices=("True", "False"))
    if choices and default not in choices:
        choices = (*choices, default)
    option = replace(option, default=default, choices=choices)
    if isinstance(default, int | float):
        low, high = bounds(help)
        return replace(option, low=low, high=high)
    return option


def default_text(help: str, choices: Sequence[Any]) -> str | None:
    """Return the default that help names, or None. "None" stands for an option that is not given."""
    written = None
    for match in re.finditer(r"(^|[\s(\[,])default\s*[:=]\s*", help, re.IGNORECASE):
        rest = help[match.end() :]
        if match[1] == "[":  # of click and typer, who print nothing but the value there
            rest = f"'{re.split('; |]', rest)[0]}'"
        written = first_value(rest, is_bare=match[1] != "(")
    if written is None or written in ("(dynamic)", "==SUPPRESS=="):
        return None
    if written.lower() == "none" and written not in choices:
        return "None"
    return written


def first_value(text: str, is_bare: bool) -> str | None:
    """Return the value with which text begins, in parentheses unless `is_bare`, or None if it is no plain value."""
    quoted = re.match(r"(['\"])(.*?)\1", text)
    if quoted:
        return quoted[2]
    inside = re.match(r"((?:[^()]|\([^()]*\))*)", text)
    assert inside is not None
    value = re.split(r"[,;]\s", inside[1])[0].strip()
    if re.match(r"none\b", value, re.IGNORECASE):
        return "None"
    if is_bare:
        value = value.rstrip(".,;")
    if " " in value or value.startswith(("[", "(", "{", "<")):
        return None
    return value


def typed(text: str, kind: str) -> Any:
    if text == "None":
        return None
    if kind in ("text", "str", "path", "file", "directory"):
        return text
    if kind == "float" and NUMBER.fullmatch(text):
        return float(text)
    return literal(text)


def literal(text: str) -> Any:
    """Return a whole number, a number, or the text itself: also a version, such as 1.10, that a number would change."""
    if WHOLE.fullmatch(text):
        return int(text)
    if NUMBER.fullmatch(text) and not NEEDLESS_ZERO.search(text):
        return float(text)
    return text


def bounds(help: str) -> tuple[float | None, float | None]:
    for group in re.findall(r"\[([^\[\]]*)\]", help):
        for part in group.split("; "):
            limits = RANGE.fullmatch(part)
            if limits and (limits[1] or limits[2]):
                low, high = (None if text is None else float(text) for text in limits.groups())
                return low, high
    return None, None


def required_names(text: str) -> set[str]:
    usage = re.search(r"^usage: (.*?)(?:\n\s*\n|\Z)", text, re.DOTALL | re.MULTILINE)
    rest = ""
    if usage:
        rest = usage[1]
    shorter = None
    while rest != shorter:
        shorter = rest
        rest = re.sub(r"\[[^\[\]]*\]|\([^()]*\)", "", rest)
    return set(re.findall(r"(?<!\S)--([\w.-]+)", rest))


def required_arguments(text: str) -> list[str]:
    """Return the arguments without option names that a program cannot do without, as identifiers."""
    usage = re.search(r"^\s*usage: (.*?)(?:\n\s*\n|\Z)", text, re.DOTALL | re.MULTILINE | re.IGNORECASE)
    names: list[str] = []
    is_listed = False
    for line in text.splitlines():
        if POSITIONALS.match(line):
            is_listed = True
        elif line and not line.startswith(" "):
            is_listed = False
        match = re.match(r" {1,4}([A-Za-z][\w.-]*)(?=\s|$)", line)
        if is_listed and match and usage and re.search(rf"(?<![\[\w-]){re.escape(match[1])}(?![\w\]-])", usage[1]):
            names.append(match[1])
    if not names and usage and "[OPTIONS]" in usage[1]:  # click, which lists none
        after = usage[1].partition("[OPTIONS]")[2].split()
        names = [word.lower() for word in after if re.fullmatch(r"[A-Z][A-Z0-9_]*", word)]
    return [re.sub(r"\W", "_", name) for name in names]


# -- Hydra -------------------------------------------------------------------------------------------------------------


def read_hydra(words: Sequence[str], help: str) -> ScriptHelp:
    try:
        config = yaml.safe_load(output_of(words))
    except yaml.YAMLError:
        config = None
    if not isinstance(config, dict):
        raise ValueError(f"--train: `{shlex.join(words)}` prints no settings in YAML")
    options = [hydra_option(key, value) for key, value in flattened(config, "")]
    groups = help.partition("== Configuration groups ==")[2].partition("== Config ==")[0]
    for name, values in re.findall(r"^([\w./@-]+): (.+)$", groups, re.MULTILINE):
        problem = f"a group of settings: {values}. To vary it, leave out {name}.* above"
        options.append(ScriptOption(name, spellings=(name,), problem=problem))
    return ScriptHelp(options, [], "{key}={value}", is_hydra=True)


def hydra_option(key: str, value: Any) -> ScriptOption:
    option = ScriptOption(key, spellings=(key, f"+{key}"))
    if value == "???":
        return replace(option, is_required=True, problem="required")
    if isinstance(value, list | dict):
        return replace(option, problem=SEVERAL)
    if isinstance(value, str) and "${" in value:
        return replace(option, problem=f"follows other settings: {printable(value)}")
    if isinstance(value, str) and not SAFE_FOR_HYDRA.fullmatch(value):
        return replace(option, problem=f"text that Hydra does not take as it is: {printable(value)!r}")
    return replace(option, default=value)


def flattened(config: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from flattened(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value
