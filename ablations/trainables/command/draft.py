"""A recipe for a command of the user's, drafted from what its --help prints."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ablations.trainables.command import template
from ablations.trainables.command.script_help import ScriptOption, read_help, script_end
from commonfloor.messages import usual_name
from results.store.schemas.metrics import is_lower_better

SEEDS = ("seed", "random_seed", "manual_seed")
FOLDERS = (  # preferred first
    *("out", "output", "output_dir", "out_dir", "outdir", "work_dir", "workdir", "save_dir", "save_path"),
    *("results_dir", "result_dir", "log_dir", "logdir"),
)
OTHER_MODES = (  # flags of what a script does, which is no setting of a training
    *("resume", "auto_resume", "sample_only", "eval", "eval_only", "evaluate", "test", "test_only", "predict"),
)
HYDRA_FOLDER = "hydra.run.dir"
SHORT = {"steps": 20, "epochs": 1}  # what makes a trial short, for a script with such a setting
LONGEST_COMMENT = 140  # characters
WIDEST = 48  # characters before comments that stand in one column
END = "...\n"  # what yaml.safe_dump writes after a scalar


class Draft:
    """A recipe for a command, from the words of the user and --help. Raises ValueError if it is unusable."""

    def __init__(self, train: str, metrics: Sequence[str], folder: str) -> None:
        self.train = train
        self.metrics = list(dict.fromkeys(metrics))
        self.folder = folder
        self.words = template.split("--train", train)
        self.braced = {*template.NAME.findall(" ".join(self.words))}  # the names in braces that the user gave
        self.help = read_help(self.words)
        self.seed = self.option_named(SEEDS)
        self.output = self.option_named(FOLDERS)
        if self.seed and self.seed.is_given(self.words) and "seed" not in self.braced:
            raise ValueError(f"--train: {self.seed.name}: leave the seed out, because studies set it")
        self.settings = list(self.read_settings())
        self.known = [option for option in self.settings if not option.problem and not option.is_required]
        given = list(self.given_arguments())
        self.arguments = self.help.arguments[len(given) :]  # the required ones that the user has not given
        self.other_arguments = self.arguments_to_fill(given)
        self.to_fill = list(self.other_arguments)
        for option in self.settings:
            if option.is_required or (option.problem and option.name in self.braced.difference(template.OWN_NAMES)):
                self.to_fill.append(option.name)
        self.command = self.full_command()
        template.parse(self.command, self.help.spelling, [*(option.name for option in self.known), *self.to_fill])

    def option_named(self, names: Sequence[str]) -> ScriptOption | None:
        for name in names:
            for option in self.help.options:
                if plain_name(option.name) == name and not option.is_flag:
                    return option
        return None

    def read_settings(self) -> Iterator[ScriptOption]:
        """Yield all options but the seed, the folder, and those to which the user gave a fixed value."""
        for option in self.help.options:
            is_braced = option.name in self.braced
            if option in (self.seed, self.output) or (option.is_given(self.words) and not is_braced):
                continue
            if option.is_flag and plain_name(option.name) in OTHER_MODES and not is_braced:
                yield replace(option, problem="does something else than train from the start")
            elif option.name in template.OWN_NAMES:
                yield replace(option, problem="its name means something else in `train`: write it there")
            else:
                yield option

    def given_arguments(self) -> Iterator[str]:
        takes_value = False
        for word in self.words[script_end(self.words) :]:
            if word.startswith("-"):
                takes_value = "=" not in word and self.is_value_next(word)
                continue
            if not takes_value and word != template.SETTINGS:
                yield word
            takes_value = False

    def is_value_next(self, word: str) -> bool:
        return any(option.is_given([word]) and not option.is_flag for option in self.help.options)

    def arguments_to_fill(self, given: Sequence[str]) -> list[str]:
        """Return the arguments given in braces or missing that are neither the seed nor the folder."""
        options = {*template.OWN_NAMES, *(option.name for option in self.help.options)}
        names = []
        for word in given:
            if template.NAME.fullmatch(word) and word[1:-1] not in options:
                names.append(word[1:-1])
        names += [name for name in self.arguments if plain_name(name) not in (*SEEDS, *FOLDERS)]
        return list(dict.fromkeys(names))

    @property
    def unfilled(self) -> list[str]:
        lacking = list(self.to_fill)
        if not self.known:
            lacking.append("config")
        if not self.metrics:
            lacking.append("metrics")
        return lacking

    def probe(self) -> dict[str, int]:
        short: dict[str, int] = {}
        for option in self.known:
            name = usual_name(option.name)
            if name in SHORT and type(option.default) is int and not option.limits:
                short[option.name] = SHORT[name]
        return short

    def full_command(self) -> str:
        words = []
        roles = {**dict.fromkeys(SEEDS, "seed"), **dict.fromkeys(FOLDERS, "folder")}
        for name in self.arguments:
            words.append(f"{{{roles.get(plain_name(name), name)}}}")
        for option in self.settings:
            if option.is_required and option.name not in self.braced:
                words += self.spelled(option.name, option.name)
        if template.SETTINGS not in self.words:
            words.append(template.SETTINGS)
        if self.seed and "seed" not in self.braced:
            words += self.spelled(self.seed.name, "seed")
        folders = []
        if self.output and "folder" not in self.braced and not self.output.is_given(self.words):
            folders.append(self.output.name)
        if self.help.is_hydra and HYDRA_FOLDER not in self.train:
            folders.append(HYDRA_FOLDER)
        for name in folders:
            if self.help.is_hydra:
                words.append(f"\"{name}='{{folder}}'\"")  # a path may hold `=` or a comma
            else:
                words += self.spelled(name, "folder")
        return " ".join([self.train, *words])

    def spelled(self, key: str, name: str) -> list[str]:
        return self.help.spelling.replace("{key}", key).replace("{value}", f"{{{name}}}").split()

    def text(self) -> str:
        lines = [
            f"# A recipe for {script_name(self.words)}, by `ablate init --train`: from its --help. Check the defaults.",
            "# A default without a point, such as 1, takes whole numbers only: write 1.0 where fractions are allowed.",
        ]
        if self.unfilled:
            lines.append(f"# Fill in: {', '.join(self.unfilled)}.")
        lines.append(f"{line('description', script_name(self.words))}  # what it trains, for the top of tables")
        lines.append(line("train", self.command))
        for name, what in (("seed", "the seed"), ("folder", "the folder for its output")):
            if f"{{{name}}}" not in self.command:
                lines.append(f"# no option for {what} was found: write {{{name}}} into `train`")
        if self.folder != ".":
            lines.append(f"{line('folder', self.folder)}  # where it runs")
        if self.help.spelling != template.SPELLING:
            lines.append(line("spelling", self.help.spelling))
        lines += [*self.config(), *self.allowed(), *self.reported()]
        probe = self.probe()
        if probe:
            lines.append(f"{line('probe', probe)}  # short trials, by which each arm is tried first")
        lines.append("seeds: 5")
        return "\n".join(lines) + "\n"

    def config(self) -> Iterator[str]:
        """Yield the lines of `config`. A setting that cannot stay as it is stands in a comment."""
        rows = [(f"  # {name}:", "required") for name in self.other_arguments]
        for option in self.settings:
            text = f"{inline(option.name)}:"
            if option.is_flag or not option.problem:
                text += f" {inline(option.default)}"
            if option.problem or option.is_required:
                text = f"# {text}"
            rows.append((f"  {text}", comment(option)))
        width = min(WIDEST, max((len(text) for text, _ in rows), default=0))
        if self.known:
            yield "config:"
        else:
            yield "config: {}  # uncomment what varies, and delete the braces"
        for text, reason in rows:
            if reason:
                text = f"{text:{width}}  # {reason}"
            yield text

    def allowed(self) -> Iterator[str]:
        limits = {option.name: option.limits for option in self.known if option.limits}
        if limits:
            yield "settings:"
        for name, values in limits.items():
            yield f"  {inline(name)}: {inline(values)}"

    def reported(self) -> Iterator[str]:
        if not self.metrics:
            yield '# metrics: {accuracy: {better: higher}}  # as METRIC accuracy=0.9; else printed: "text before it"'
            return
        yield 'metrics:  # printed as METRIC name=number; else printed: "text before it"'
        for name in self.metrics:
            better = "lower" if is_lower_better(name) else "higher"
            yield f"  {line(name, {'better': better})}  # by its name: correct it; unit: fraction is printed in percent"


def script_name(words: Sequence[str]) -> str:
    return Path(words[script_end(words) - 1]).name


def plain_name(name: str) -> str:
    """Return a name as in SEEDS and FOLDERS: training.output-dir is output_dir."""
    return name.rpartition(".")[2].replace("-", "_").lower()


def comment(option: ScriptOption) -> str:
    parts = []
    if option.is_required:
        parts.append("required")
    elif option.problem:
        parts.append(option.problem)
    if option.choices and option.problem:
        parts.append(f"one of {', '.join(map(str, option.choices))}")
    text = option.help
    if len(text) > LONGEST_COMMENT:
        text = f"{text[:LONGEST_COMMENT].rstrip()} ..."
    return ": ".join(filter(None, ("; ".join(parts), text)))


def inline(value: Any) -> str:
    written = yaml.safe_dump(value, width=10_000, default_flow_style=True, allow_unicode=True, sort_keys=False)
    return written.removesuffix(END).strip()


def line(key: str, value: Any) -> str:
    return f"{inline(key)}: {inline(value)}"
