"""Answers to commands and options of other tools, such as git, Hydra, W&B, timm and scikit-learn."""

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ablations.cli.inputs.words import is_setting
from commonfloor.messages import usual_name

TO_FILE = "redirect what it prints with > FILE"
TRAINS = "`ablate run STUDY` trains every arm of a study"
READS = "`ablate table STUDY`, `ablate plot STUDY` and `ablate report` show results"
CLEANS = "`ablate clean` lists files that nothing needs; to forget results, remove the run directory"
COMMANDS = {  # what does it here -> what other tools call it
    "`ablate list`": "ls dir studies recipes search browse",
    "`ablate list --variants`": "models modules components",
    "`ablate list --settings`": "settings options parameters params config configs",
    TRAINS: "sweep multirun grid grid-search fit start launch execute exec go experiment study agent",
    "`ablate run STUDY` continues what is unfinished": "resume continue restart",
    "`tune: {lr: [1e-3, 1e-4]}` in a study's file tunes every arm": "tune optimize hpo",
    "`ablate plan STUDY` shows what a run would do": "dry-run preview estimate",
    READS: "result results summary metrics leaderboard eval evaluate test predict score ranking",
    "`ablate report` writes one HTML page": "gui ui dashboard serve board tensorboard",
    "`ablate plot STUDY`": "figure figures graph draw",
    "`ablate status --watch`": "watch ps top monitor",
    "`ablate status`": "queue squeue sacct st info",
    "`ablate logs STUDY`": "log tail cat",
    "`ablate compare A B`": "diff cmp vs",
    "`ablate cancel STUDY` for SLURM jobs, Ctrl-C for a run here": "stop kill abort scancel",
    CLEANS: "rm remove delete del prune reset undo gc",
    "`ablate submit STUDY --profile NAME`": "sbatch srun slurm deploy",
    "`ablate profile init NAME` describes a cluster": "cluster setup configure",
    "`ablate init FOLDER` writes a recipe for your images": "new create add",
    "`ablate check FILE`": "validate lint verify doctor",
    "`ablate plan STUDY --probe` measures the step of each arm": "bench benchmark speed timeit",
    "`ablate data download NAME`": "download fetch pull",
    "`ablate data -h`": "dataset datasets",
    "`ablate export --to wandb --out FOLDER`, then `wandb sync`": "sync login push upload wandb mlflow",
    "`ablate export --out FILE.csv`": "csv save dump",
    "`ablate --version`": "--ver",
}

OPTIONS = {  # what does it here -> what other tools call it
    "--runs DIR for where results go": "out o output output-dir out-dir save-dir log-dir logdir results-dir workdir",
    "--recipe NAME|FILE": "config c config-name config-path config-file cfg recipes conf",
    "--jobs N": "num-workers n-jobs nproc parallel processes",
    "--seeds N, for seeds 0 to N-1 of every arm": "seed n-seeds num-seeds random-state repeats repeat trials",
    "--arm GLOB, as in --arm 'position=*'": "arms only filter select variant",
    "leave it out: every study trains all its arms": "m multirun sweep grid all",
    "leave it out: the same command continues what is unfinished": "resume continue auto-resume restart",
    "finished trials stay; --runs OTHER trains them anew": "force f overwrite y yes rerun fresh",
    "leave it out: progress is always shown; `ablate logs STUDY` prints more": "verbose v debug vv",
    "leave it out, and redirect what is printed with > FILE": "quiet q silent",
    "device=cuda": "cuda gpu use-gpu",
    "device=cpu": "cpu no-cuda no-gpu",
    "precision=bf16": "amp fp16 bf16 mixed-precision half",
    "leave it out; afterwards `ablate export --to wandb --out FOLDER`": "wandb log-wandb mlflow report-to project",
    "--name NAME": "run-name tag exp-name",
    "max_hours in a profile, or --max-hours HOURS": "timeout max-time budget",
}
OF_COMMANDS = {  # options whose answer differs between commands
    "table": {
        "--format latex": "tex",
        "--columns NAME,..., as in --columns arm,val_accuracy": "metric metrics column sort",
        TO_FILE: "out o output",
    },
    "compare": {TO_FILE: "out o output"},
    "export": {"the ending says it: --out FILE.csv or FILE.parquet": "format f csv", "--out FILE": "o output"},
    "report": {"a report is a page: --out FILE.html": "format f pdf"},
    "submit": {
        "is a key of the profile's file: `ablate profile init NAME` writes one": (
            "partition time gres account qos mem cpus-per-task gpu nodes constraint"
        ),
    },
    "demo": {"is for `ablate run demo`": "seeds recipe seed"},
}
FORMATS = {"table": ("csv", "latex", "md", "html", "json"), "plot": ("pdf", "png", "svg")}
INSTEAD_OF_VALUE = {"markdown": "md", "tex": "latex"}
DRY = ("dry-run", "dry", "n", "dryrun", "preview", "plan", "print-config")


def answer_with(name: str, answers: Mapping[str, str]) -> str:
    """Return the answer whose names contain `name`, or "" if none does."""
    return next((answer for answer, names in answers.items() if name in names.split()), "")


def command_answer(name: str) -> str:
    """Return what does here what the command `name` does in other tools, or "" if none does."""
    return answer_with(name.lower().replace("_", "-"), COMMANDS)


def option_answer(option: str, command: Any, words: Sequence[str]) -> str:
    """Return what does here what an unknown option does in other tools, or "" if nothing does.

    command: the Click command with the unknown option. words: the command line after `ablate`.
    """
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
    if name in FORMATS.get(command.name, ()):
        return f"use --format {name}"
    answer = answer_with(name, OF_COMMANDS.get(command.name, {}))
    if answer:
        return use_option(answer, command) or answer
    takes_settings = any("KEY=VALUE" in (parameter.metavar or "") for parameter in command.params)
    setting = usual_name(name)
    if takes_settings and is_setting(setting) and (setting != "seed" or command.name == "train"):
        corrected = with_setting(given, setting, words)
        if corrected:
            return f"settings are words: `{command_line(corrected)}`"
    answer = answer_with(name, OPTIONS)
    first = answer.partition(" ")[0]
    if first.startswith("--") or not takes_settings:
        return use_option(answer, command)
    if "=" in first:
        return f"settings are words: `{command_line(words, {given: first})}`"
    return answer


def use_option(answer: str, command: Any) -> str:
    """Return an answer that begins with an option, or "" if the command does not have this option."""
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
    """Return what to type instead of the value that a parameter was given, or "" if nothing is known.

    parameter: the Click parameter. words: the command line after `ablate`.
    """
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
    """Return the value of an option in a command line, or "" if it has none. options: the names of the option."""
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
    """Return the first example in a command's help text, or "" if there is none."""
    after = (command.help or "").partition("Examples:\n")[2]
    return after.strip().partition("\n")[0].strip()
