"""`ablate init --train` writes a recipe for a script from what its --help prints."""

import json
import re
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from in_process import Ablate, refusal
from waits import MARK, marked, wait_until

from ablations.study.reading import read_recipe
from ablations.trainables.command import script_help, template

ARGPARSE = """
    import argparse, json
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    group = parser.add_argument_group("model parameters")
    group.add_argument("-d", "--model_depth", type=int, default=12, metavar="N", help="blocks of the encoder")
    group.add_argument("--weight-decay", "--wd", type=float, default=1e-5, help="a long explanation " * 9)
    group.add_argument("--act", choices=["relu", "tanh"], default="relu", help="50%% of the units")
    group.add_argument("--size", choices=[16, 32], type=int, default=16, help="pixels")
    group.add_argument("--clip", type=float, help="none by default")
    group.add_argument("--nesterov", action="store_true", help="a flag")
    group.add_argument("--no-aug", action="store_false", dest="aug", help="a flag that turns off")
    group.add_argument("--amp", action=argparse.BooleanOptionalAction, default=True, help="a switch that is on")
    group.add_argument("--ema", action=argparse.BooleanOptionalAction, default=False, help="a switch that is off")
    group.add_argument("--pin", type=lambda text: text == "True", default=True, help="a flag with a value")
    group.add_argument("--fp16", nargs="?", const=True, default=False, help="a value or none")
    group.add_argument("--tag", default="", help="text")
    group.add_argument("--release", default="1.10", help="text that a number would change")
    group.add_argument("--betas", nargs=2, type=float, default=[0.9, 0.99], help="several values")
    parser.add_argument("--random-seed", type=int, default=0, help="seed")
    parser.add_argument("--log_dir", required=True, help="folder")
    print(json.dumps(vars(parser.parse_args())))
"""
CLICK = """
    import click, json
    @click.command(context_settings={"show_default": True})
    @click.option("-d", "--model_depth", type=int, default=12, help="Blocks of the encoder. " * 9)
    @click.option("--weight-decay", type=click.FloatRange(0, 1), default=0, help="A range.")
    @click.option("--act", type=click.Choice(["relu", "tanh"]), default="relu")
    @click.option("--amp/--no-amp", default=True, help="A switch that is on.")
    @click.option("--loud/--quiet", default=False, help="A switch that is off.")
    @click.option("--nesterov", is_flag=True)
    @click.option("--tag", type=str, default="1", help="Text that looks like a number.")
    @click.option("--betas", nargs=2, type=float, default=(0.9, 0.99))
    @click.option("--seed", type=int, required=True)
    @click.option("--save-dir", type=click.Path(), required=True)
    def main(**settings): print(json.dumps(settings))
    main()
"""
TYPER = """
    import json
    from enum import Enum
    from pathlib import Path
    from typing import Annotated
    import typer
    class Act(str, Enum):
        relu = "relu"
        tanh = "tanh"
    def main(
        output: Path,
        seed: int = 0,
        depth: Annotated[int, typer.Option(help="Blocks.", min=1, max=99)] = 12,
        weight_decay: float = 1,
        act: Act = Act.relu,
        amp: bool = True,
        ema: Annotated[bool, typer.Option("--ema")] = False,
        data: str = "a b",
        sizes: list[int] = [1, 2],
    ):
        print(json.dumps({**locals(), "act": act.value, "output": str(output)}))
    typer.run(main)
"""
SCRIPTS = {  # name -> script, its settings, what it allows, an arm: settings and what the script makes of them
    "argparse": (
        ARGPARSE,
        {"model_depth": 12, "weight-decay": 1e-5, "act": "relu", "size": 16, "clip": None, "nesterov": False}
        | {"no-aug": False, "no-amp": False, "ema": False, "pin": "True", "fp16": False, "tag": "", "release": "1.10"},
        {"act": ["relu", "tanh"], "size": [16, 32], "pin": ["True", "False"]},
        (
            {"weight-decay": 0.5, "no-aug": True, "no-amp": True, "ema": True, "pin": "False", "fp16": True}
            | {"size": 32, "clip": 0.5, "tag": "a b"},
            {"weight_decay": 0.5, "aug": False, "amp": False, "ema": True, "pin": False, "fp16": True}
            | {"size": 32, "clip": 0.5, "tag": "a b"},
        ),
    ),
    "click": (
        CLICK,
        {"model_depth": 12, "weight-decay": 0.0, "act": "relu", "no-amp": False, "loud": False, "nesterov": False}
        | {"tag": "1"},
        {"weight-decay": (0, 1), "act": ["relu", "tanh"]},
        ({"no-amp": True, "loud": True, "act": "tanh"}, {"amp": False, "loud": True, "act": "tanh"}),
    ),
    "typer": (
        TYPER,
        {"depth": 12, "weight-decay": 1.0, "act": "relu", "no-amp": False, "ema": False, "data": "a b"},
        {"depth": (1, 99), "act": ["relu", "tanh"]},
        ({"no-amp": True, "ema": True, "data": "c d"}, {"amp": False, "ema": True, "data": "c d"}),
    ),
}
HYDRA_HELP = """\
app is powered by Hydra.

== Configuration groups ==
Compose your configuration from those groups (group=option)

model: cnn, mlp
optim: adam, sgd


== Config ==
Override anything in the config (foo.bar=value)

lr: 0.1

Powered by Hydra (https://hydra.cc)
Use --hydra-help to view Hydra specific help
"""
HYDRA_CONFIG = """\
model:
  name: mlp
  depth: 2
lr: 1.0e-05
training:
  seed: 3
output_dir: out
optim:
  betas:
  - 0.9
  - 0.999
  weight_decay: null
  amp: true
data_path: ???
run_name: ${model.name}-${lr}
note: a, b
"""  # what Hydra 1.3.8 prints with --cfg job
HYDRA = f"""
    import sys
    config = {HYDRA_CONFIG!r}
    if "model=cnn" in sys.argv:
        config = config.replace("mlp", "cnn")
    print({HYDRA_HELP!r} if "--help" in sys.argv else config if "--cfg" in sys.argv else sys.argv)
"""


def script(folder: Path, text: str, name: str = "fit.py") -> str:
    """Write a script, and return the command that runs it."""
    (folder / name).write_text(dedent(text))
    return f"{shlex.quote(sys.executable)} {name}"


def printed(folder: Path, words: list[str]) -> Any:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", SCRIPTS)
def test_the_recipe_says_what_the_script_takes(ablate: Ablate, tmp_path: Path, kind: str) -> None:
    """The command of the recipe gives the script the settings that it has without it, and those of an arm."""
    text, settings, allowed, arms = SCRIPTS[kind]
    assert ablate("init", "--train", script(tmp_path, text), "--metric", "f1", "--metric", "val_loss")[0] == 0
    assert ablate("check", "fit.yaml")[0] == 0
    recipe = read_recipe("fit.yaml")
    assert recipe.config == settings
    assert {key: value.choices or (value.min, value.max) for key, value in recipe.settings.items()} == allowed
    assert {key: metric.better for key, metric in recipe.metrics.items()} == {"f1": "higher", "val_loss": "lower"}

    command = template.parse(recipe.train, recipe.spelling, recipe.config)
    given = {"seed": "7", "folder": "there", "settings_file": ""}
    bare = command.fill(dict.fromkeys(settings), given)
    assert len(bare) <= 6
    defaults = printed(tmp_path, bare)
    assert "7" in map(str, defaults.values())
    varied, effect = arms
    assert printed(tmp_path, command.fill({**recipe.config, **varied}, given)) == {**defaults, **effect}
    assert "takes several values" in (tmp_path / "fit.yaml").read_text()


def test_a_recipe_is_written_completely_or_not_at_all(ablate: Ablate, tmp_path: Path) -> None:
    command = script(tmp_path, ARGPARSE)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        message = refusal(ablate, "init", "--train", command, "--metric", "f1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "File too large" in message
    assert sorted(path.name for path in tmp_path.glob("fit*")) == ["fit.py"]


def test_flags_of_what_a_script_does_are_no_settings(ablate: Ablate, tmp_path: Path) -> None:
    """An option of that name that takes a value is one. The folder may be called otherwise."""
    text = """
        import argparse
        parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        parser.add_argument("--work-dir", default="out", help="where to write")
        parser.add_argument("--resume", action="store_true", help="from the folder")
        parser.add_argument("--sample-only", action="store_true", help="and quit")
        parser.add_argument("--test", type=float, default=0.2, help="fraction")
        parser.add_argument("--max-steps", type=int, default=-1, help="of training, or -1 for infinite.")
        parser.parse_args()
    """
    assert ablate("init", "--train", script(tmp_path, text), "--metric", "f1")[0] == 0
    recipe = read_recipe("fit.yaml")
    assert recipe.config == {"test": 0.2, "max-steps": -1}
    assert recipe.train.endswith("--work-dir {folder}")
    lines = [" ".join(line.split()) for line in Path("fit.yaml").read_text().splitlines()]
    assert "# resume: false # does something else than train from the start: from the folder (default: False)" in lines
    assert "# sample-only: false # does something else than train from the start: and quit (default: False)" in lines
    assert "max-steps: -1 # of training, or -1 for infinite. (default: -1)" in lines


def test_settings_of_hydra_are_spelled_its_way(ablate: Ablate, tmp_path: Path) -> None:
    command = script(tmp_path, HYDRA)
    assert ablate("init", "--train", f"{command} lr=0.5 model=cnn", "--metric", "acc")[0] == 0
    text = (tmp_path / "fit.yaml").read_text()
    assert "# Fill in: data_path.\n" in text
    assert "fit.yaml: train: {data_path} is unknown" in refusal(ablate, "check", "fit.yaml")
    (tmp_path / "fit.yaml").write_text(text.replace("# data_path: ", "data_path: images"))
    recipe = read_recipe("fit.yaml")
    assert recipe.config == {
        "model.name": "cnn",
        "model.depth": 2,
        "optim.weight_decay": None,
        "optim.amp": True,
        "data_path": "images",
    }
    own = "data_path={data_path} {settings} training.seed={seed} \"output_dir='{folder}'\" \"hydra.run.dir='{folder}'\""
    assert recipe.train == f"{command} lr=0.5 model=cnn {own}"
    assert recipe.spelling == "{key}={value}"
    for name, reason in {
        "optim.betas": "takes several",
        "run_name": "follows",
        "note": "text",
        "optim": "a group",
    }.items():
        assert any(line.strip().startswith(f"# {name}: ") and reason in line for line in text.splitlines())
    assert "# model: " not in text


def test_a_required_option_is_asked_for_and_is_no_setting_before(ablate: Ablate, tmp_path: Path) -> None:
    """argparse prints that its default is None."""
    required = 'parser.add_argument("--width", choices=["2", "4"], required=True, help="units"); group = '
    assert ablate("init", "--train", script(tmp_path, ARGPARSE.replace("group = ", required)), "--metric", "f1")[0] == 0
    text = (tmp_path / "fit.yaml").read_text()
    assert "# Fill in: width.\n" in text
    assert "train: {width} is unknown" in refusal(ablate, "check", "fit.yaml")
    (tmp_path / "fit.yaml").write_text(text.replace("# width: null", "width: 2"))
    assert ablate("check", "fit.yaml")[0] == 0


PROGRAMS = [
    ("python train.py", 2, "python train.py --help"),
    ("python -u train.py data --lr {lr}", 3, "python -u train.py data --help"),
    ("python -m pkg.train fit lr=1", 3, "python -m pkg.train fit --help"),
    ("torchrun --nproc-per-node 2 train.py --lr 1", 4, "torchrun --nproc-per-node 2 train.py --help"),
    ("python -m torch.distributed.run --nproc-per-node=2 train.py", 5, "... train.py --help"),
    ("./train --lr 1", 1, "./train --help"),
]


@pytest.mark.parametrize(("command", "end", "asked"), PROGRAMS)
def test_help_is_asked_of_the_script_not_of_what_runs_it(command: str, end: int, asked: str) -> None:
    words = command.split()
    assert script_help.script_end(words) == end
    assert " ".join(script_help.with_option(words, "--help")).endswith(asked.removeprefix("..."))


def test_a_default_that_help_does_not_print_is_not_made_up(ablate: Ablate, tmp_path: Path) -> None:
    """Its setting is commented out. Once the recipe is filled in, it is valid."""
    text = """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("data", help="images")
        parser.add_argument("--lr", type=float, default=0.1, help="default value of the rate")
        parser.add_argument("--act", choices=["relu", "tanh"], default="relu")
        parser.add_argument("--wd", type=float, required=True, metavar="W")
        parser.add_argument("--mode", default="a", help="(default: a or b)")
        parser.parse_args()
    """
    status, output, _ = ablate("init", "--train", script(tmp_path, text))
    assert (status, output.splitlines()[:2]) == (
        0,
        ["wrote fit.yaml: 0 settings with their defaults, 4 commented out", "fill in: data, wd, config, metrics"],
    )
    recipe = (tmp_path / "fit.yaml").read_text()
    assert yaml.safe_load(recipe)["config"] == {}
    assert "fit.py {data} --wd {wd} {settings}\n# no option for the seed was found" in recipe
    for row in (
        "  # data:  # required",
        "  # lr:    # no default in --help: default value of the rate",
        "  # act:   # no default in --help; one of relu, tanh",
    ):
        assert f"{row}\n" in recipe
    assert "fit.yaml: 'config' is missing" in refusal(ablate, "check", "fit.yaml")
    filled = recipe.replace("{data}", "images").replace("{wd}", "0").replace("config: {}", "config:")
    filled = filled.replace("# lr:  ", "lr: 0.1").replace("# metrics", "metrics")
    (tmp_path / "fit.yaml").write_text(filled)
    assert ablate("check", "fit.yaml")[0] == 0


def test_words_of_the_command_stay_as_they_are(ablate: Ablate, tmp_path: Path) -> None:
    """Options that it sets are no settings, arguments are not asked for, and names in braces are filled."""
    text = ARGPARSE.replace("group = ", 'parser.add_argument("data"); group = ')
    command = script(tmp_path, text)
    words = "images -d 3 --nesterov --act {act} --random-seed {seed} --tag=x"
    (tmp_path / "recipes").mkdir()
    assert ablate("init", "--train", f"{command} {words}", "--metric", "f1", "--out", "recipes/a.yaml")[0] == 0
    recipe = read_recipe("recipes/a.yaml")
    assert recipe.train == f"{command} {words} {{settings}} --log_dir {{folder}}"
    assert not {"model_depth", "nesterov", "tag"} & {*recipe.config}
    assert recipe.config["act"] == "relu"
    assert ablate("check", "recipes/a.yaml")[0] == 0
    assert (tmp_path / "recipes" / recipe.folder).resolve() == tmp_path.resolve()


def test_options_with_equals_signs_are_spelled_so(ablate: Ablate, tmp_path: Path) -> None:
    """A flag cannot be spelled with a value, nor can a short name."""
    text = """
        print("Usage: fit.py [options]")
        print("Options:")
        print("  -s            A short flag.")
        print("  --lr=<rate>   The rate [default: 0.1].")
        print("  --fast        A flag.")
        print("  --seed=N      The seed [default: 0].")
    """
    assert ablate("init", "--train", script(tmp_path, text), "--metric", "f1")[0] == 0
    recipe = read_recipe("fit.yaml")
    assert (recipe.spelling, recipe.config) == ("--{key}={value}", {"lr": 0.1})
    assert recipe.train.endswith(" {settings} --seed={seed}")
    assert "# fast: false  # a flag: write it into `train`: A flag." in (tmp_path / "fit.yaml").read_text()


BOXES = """\
Usage: fit.py [OPTIONS] OUT

 Train.


╭─ Arguments ──────────────────────────────────────────────────────────────────────╮
│ *    out      PATH  [default: None] [required]                                   │
╰──────────────────────────────────────────────────────────────────────────────────╯
╭─ Options ────────────────────────────────────────────────────────────────────────╮
│ *  --size                        INTEGER                [default: None]          │
│                                                         [required]               │
│    --lr                          FLOAT RANGE [0<=x<=1]  A rate that is           │
│                                                         explained.               │
│                                                         [default: 0.1]           │
│    --width     -w                INTEGER                [default: 32]            │
│    --act                         [relu|tanh]            [default: relu]          │
│    --amp       -a  --no-amp  -A                         A switch. [default: amp] │
│    --nesterov                                           A flag.                  │
│    --layers                      INTEGER                [default: 1, 2]          │
│    --seed                        INTEGER                [default: 0]             │
│    --help                                               Show this message and    │
│                                                         exit.                    │
╰──────────────────────────────────────────────────────────────────────────────────╯
"""  # as typer 0.15.4 prints it


def test_boxes_of_earlier_versions_of_typer_are_read(ablate: Ablate, tmp_path: Path) -> None:
    assert ablate("init", "--train", script(tmp_path, f"print({BOXES!r})"), "--metric", "f1")[0] == 0
    text = (tmp_path / "fit.yaml").read_text()
    config = {"lr": 0.1, "width": 32, "act": "relu", "no-amp": False, "nesterov": False}
    assert yaml.safe_load(text)["config"] == config
    assert "fit.py {folder} --size {size} {settings} --seed {seed}\n" in text
    assert "  lr: {min: 0, max: 1}\n  act: {choices: [relu, tanh]}\n" in text
    assert "# layers:" in text


COMMANDS = """
    import argparse
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command")
    fit = commands.add_parser("fit", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    fit.add_argument("--lr", type=float, default=0.1, help="rate")
    parser.parse_args()
"""


def test_a_program_with_commands_is_asked_for_those_of_one(ablate: Ablate, tmp_path: Path) -> None:
    command = script(tmp_path, COMMANDS)
    assert "write one of them after its name: fit" in refusal(ablate, "init", "--train", command)
    assert ablate("init", "--train", f"{command} fit")[0] == 0
    assert "  lr: 0.1  # rate (default: 0.1)\n" in (tmp_path / "fit.yaml").read_text()


REFUSED = [
    ("raise SystemExit('no data')", "", "failed with exit status 1: no data"),
    ("print('usage')", "", "fit.py --help` lists no options"),
    ("print('x' * (1 << 21))", "", "printed more than 1 MiB and was ended: does it know --help?"),
    (ARGPARSE, "--random-seed 3", "--train: random-seed: leave the seed out, because studies set it"),
    (ARGPARSE, "--act {acts}", "train: {acts} is unknown: known are model_depth, "),
    (ARGPARSE, "'", "--train: "),
    (HYDRA.replace("'--cfg' in", "0 and").replace('"--cfg" in sys.argv', "0"), "", "--cfg job` prints no settings"),
]


@pytest.mark.parametrize(("text", "words", "message"), REFUSED, ids=[message[-30:] for _, _, message in REFUSED])
def test_a_script_that_does_not_tell_is_refused_in_one_line(
    ablate: Ablate, tmp_path: Path, text: str, words: str, message: str
) -> None:
    command = script(tmp_path, text)
    assert message in refusal(ablate, "init", "--train", f"{command} {words}")
    assert not (tmp_path / "fit.yaml").exists()


def test_a_program_that_is_missing_is_named(ablate: Ablate) -> None:
    assert "--train: no-such-program: No such file" in refusal(ablate, "init", "--train", "no-such-program fit.py")
    assert "init: a folder of images, or --train COMMAND" in refusal(ablate, "init")
    assert "--metric: is for --train" in refusal(ablate, "init", ".", "--metric", "f1")


def test_a_script_that_trains_instead_is_ended(ablate: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is all that it has started."""
    monkeypatch.setattr(script_help, "LIMIT_SECONDS", 0.5)
    monkeypatch.setenv(MARK, "1")
    command = script(tmp_path, "import subprocess\nsubprocess.run(['sleep', '60'])")
    began = time.monotonic()
    assert "took more than 0.5 seconds and was ended" in refusal(ablate, "init", "--train", command)
    assert time.monotonic() - began < 30
    wait_until(lambda: not marked("1"), "nothing is left")


def test_steps_and_epochs_make_the_probe_short(ablate: Ablate, tmp_path: Path) -> None:
    """An option whose values are limited, or that is no whole number, does not."""
    options = [("--max-steps", "default=500"), ("--n_epochs", "default=9"), ("--epochs", "default=1.5"), ("--lr", "")]
    lines = [f"parser.add_argument('{name}', help='h', {default})" for name, default in options]
    lines.append("parser.add_argument('--steps', type=int, default=50, choices=[50, 90], help='h')")
    begin = (
        "import argparse\nparser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)\n"
    )
    text = begin + "\n".join(lines) + "\nparser.parse_args()"
    assert ablate("init", "--train", script(tmp_path, text), "--metric", "f1")[0] == 0
    assert read_recipe("fit.yaml").probe == {"max-steps": 20, "n_epochs": 1}


def test_a_metric_given_twice_is_one_whose_direction_is_read_from_whole_words(ablate: Ablate, tmp_path: Path) -> None:
    """`answer` holds "wer"."""
    words = [word for name in ("answer_accuracy", "WER", "answer_accuracy") for word in ("--metric", name)]
    assert ablate("init", "--train", script(tmp_path, ARGPARSE), *words)[0] == 0
    directions = {name: metric.better for name, metric in read_recipe("fit.yaml").metrics.items()}
    assert directions == {"answer_accuracy": "higher", "WER": "lower"}


NUMBERS = {
    "1": 1,
    "-2": -2,
    "0.1": 0.1,
    "1.0": 1.0,
    "1e-05": 1e-5,
    "5E-4": 5e-4,
    ".5": 0.5,
    "10.01": 10.01,
    "0.50": 0.5,
}


def test_a_default_is_a_number_only_if_that_keeps_all_digits() -> None:
    assert {text: script_help.literal(text) for text in NUMBERS} == NUMBERS
    for text in ("1.10", "1.00", "007", "00.5", "2020-01-01", "1.2.3"):
        assert script_help.literal(text) == text


def test_arguments_that_are_given_in_braces_are_filled_in(ablate: Ablate, tmp_path: Path) -> None:
    """So are options whose default is not known."""
    text = ARGPARSE.replace(
        "group = ", 'parser.add_argument("data"); parser.add_argument("--rate", type=float); group = '
    )
    command = f"{script(tmp_path, text)} {{data}} --rate {{rate}} {{settings}}"
    status, output, errors = ablate("init", "--train", command, "--metric", "f1")
    assert (status, output.splitlines()[1:2]) == (0, ["fill in: data, rate"]), errors
    recipe = (tmp_path / "fit.yaml").read_text()
    assert f"train: {command} --random-seed {{seed}} --log_dir {{folder}}\n" in recipe
    assert "train: {data} is unknown" in refusal(ablate, "check", "fit.yaml")
    filled = re.sub(r"# data: +#", "data: images #", recipe)
    (tmp_path / "fit.yaml").write_text(re.sub(r"# rate: +#", "rate: 0.5 #", filled))
    assert {"data": "images", "rate": 0.5}.items() <= read_recipe("fit.yaml").config.items()
    assert ablate("init", "--train", f"{script(tmp_path, text)} {{settings}}", "--out", "b.yaml")[0] == 0
    assert "fit.py {settings} {data} " in (tmp_path / "b.yaml").read_text()
