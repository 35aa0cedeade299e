"""The arguments and options that several commands take, as Typer annotations."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ablations.jobs import Keep
from ablations.study import naming
from results.tables.formats import TableFormat


def completion(kind: str) -> Callable[[str], list[str]]:
    return lambda incomplete: [name for name in naming.packaged_names(kind) if name.startswith(incomplete)]


studies, recipes = completion("studies"), completion("recipes")


def option(metavar: str | None, help: str, default: str | bool = True, *flags: str, **limits: Any) -> Any:
    """Return an option. default: what the help shows instead of the default. flags: unless named as the parameter."""
    return typer.Option(*flags, metavar=metavar, help=help, show_default=default, **limits)


def flag(name: str, help: str, *short: str) -> Any:
    """Return an option without a value, and without its opposite --no-NAME."""
    return typer.Option(name, *short, help=help)


def recipe_option(help: str, default: str | bool = True) -> Any:
    return option("NAME|FILE", help, default, "--recipe", "-r", autocompletion=recipes)


def profile_option(help: str, default: str) -> Any:
    return option("NAME|FILE", help, default, "--profile", "-p")


def runs_option(metavar: str, help: str) -> Any:
    return option(metavar, help, "runs", "--runs", "-d")


def out_option(metavar: str, help: str, default: str | bool = True) -> Any:
    return option(metavar, help, default, "--out", "-o")


def refuse_options(context: typer.Context, words: list[str] | None) -> list[str] | None:
    """Return `words` unchanged. Raises ValueError if a word sets an option, such as seeds=3 instead of --seeds 3."""
    flags = {name for parameter in context.command.params for name in parameter.opts}
    if words == ["help"]:
        raise ValueError(f"'help': `{context.command_path} --help`")
    for word in words or ():
        key, equals, value = word.partition("=")
        name = f"--{key.replace('_', '-')}"
        if equals and name in flags:
            raise ValueError(f"{word}: is an option: {name} {value}")
    return words


USUAL_RECIPE = "digits, or else the only recipe the study was run on"

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="STUDY|KEY=VALUE",
        help="Studies by name or file, or 'all'; then settings. If a study has stages, KEY applies to all of them, "
        "STAGE.KEY to one, and finetune.KEY to the trials that start from them.",
        callback=refuse_options,
        autocompletion=studies,
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="STUDY|KEY=VALUE",
        help="Planned studies, and the settings they were run with.",
        show_default="all planned studies",
        callback=refuse_options,
        autocompletion=studies,
    ),
]
StudiesOrTrials = Annotated[
    list[str], typer.Argument(metavar="STUDY|TRIAL", help="Studies, or ids of trials.", autocompletion=studies)
]
ProfileName = Annotated[
    str | None, profile_option("The SLURM profile, which says what to ask the cluster for.", "ablate.toml's")
]
RecipeName = Annotated[
    str | None, recipe_option("What to train on: data, model size, schedule and seeds.", naming.RECIPE)
]
PlannedRecipe = Annotated[str | None, recipe_option("The recipe of the results.", USUAL_RECIPE)]
RecipeNames = Annotated[
    list[str] | None,
    recipe_option("The recipe of the results. Repeat it to see several recipes side by side.", USUAL_RECIPE),
]
Format = Annotated[TableFormat, typer.Option("--format", "-f", help="The output format.")]
StyleFile = Annotated[
    Path | None, option("FILE", "A YAML file with size, fonts, colours, order, labels, digits and title.")
]
Runs = Annotated[Path | None, runs_option("DIR", "The run directory.")]
Source = Annotated[Path | None, runs_option("DIR|FILE", "A run directory, or a file that `ablate export` wrote.")]
Seeds = Annotated[int | None, option("N", "Seeds per arm.", "the recipe's", "--seeds", "-s", min=1, max=10_000)]
PlanName = Annotated[str, option("NAME", "The name of the results, for one study.", "STUDY@RECIPE[,KEY=VALUE...]")]
ArmGlobs = Annotated[
    list[str],
    option("GLOB", "Only arms whose names match, such as 'position=*'. Repeatable.", "all", "--arm", "-a"),
]
ALL_ARMS = list(naming.ALL_ARMS)
Plugins = Annotated[list[Path] | None, option("FILE", "A Python file with your own parts. Repeatable.")]
DataDir = Annotated[Path | None, option("DIR", "The folder of data sets, searched before all other places.")]
AsJson = Annotated[bool, flag("--json", "Print JSON, for programs.")]
Interim = Annotated[bool, flag("--interim", "Show marked verdicts even before all planned trials are done.")]
Prune = Annotated[bool, flag("--prune", "Forget arms and seeds planned earlier; their results stay.")]
SealFile = Annotated[Path | None, option("FILE", "A deposited seal, with which the results are compared.")]
Race = Annotated[
    bool,
    flag("--race", "Let arms that can hardly become better take no more seeds. Declare it before the first result."),
]
Strict = Annotated[bool, flag("--strict", "Exit with 1 if a planned trial has no result.")]
Checkpoints = Annotated[str | None, option("DIR", "Scratch space for checkpoints.", "the run directory")]
Keeping = Annotated[
    Keep | None, typer.Option("--keep-weights", help="Which trials keep their final weights.", show_default="all")
]
Workers = Annotated[
    int | None,
    option(
        "N",
        "How many trials run at once, at most; several may share a GPU.",
        "one per GPU, else one per core; login node: 2",
        *("--jobs", "-j", "--workers"),
        min=1,
    ),
]
Sources = Annotated[
    list[Path] | None,
    option("FILE|DIR", "Take finished trials of an export or of another run directory. Repeatable.", True, "--from"),
]
NoProbe = Annotated[
    bool, flag("--no-probe", "Skip the probes, which show that the seed and the settings of your code count.")
]
MaxHours = Annotated[
    float | None, option("HOURS", "Refuse to start if the trials would take more device hours.", min=0)
]
