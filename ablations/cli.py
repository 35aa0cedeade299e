"""The command `ablate`. Reading commands load no torch: what needs it is imported where it is used."""

import contextlib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ablations import settings, strict_yaml
from ablations.plain import plain

if TYPE_CHECKING:
    from ablations.cleaning import Keep
    from ablations.jobs import Job
    from ablations.paces import Device
    from ablations.runner import Place, Tally
    from ablations.study import Design, Record
    from results.study import StudyResults
    from slurm.profile import Profile
    from vitcore.sources import Source as PackSource

Json = dict[str, Any]
USAGE: Any = typer.BadParameter.__base__  # Click's UsageError; newer versions of typer bring a Click of their own
BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130
LONGEST_LINE = 2000  # characters of an error

app = typer.Typer(
    help="Ablation studies for Vision Transformers: declare, run, compare.",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Data sets.", rich_markup_mode=None, no_args_is_help=True)
app.add_typer(data_app, name="data")
profile_app = typer.Typer(
    help="SLURM profiles: files that say what to ask a cluster for, by name under ~/.config/ablate/profiles.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
app.add_typer(profile_app, name="profile")


class TableFormat(StrEnum):
    md = "md"
    latex = "latex"
    csv = "csv"
    json = "json"
    html = "html"


class FigureFormat(StrEnum):
    png = "png"
    pdf = "pdf"
    svg = "svg"


class Axis(StrEnum):
    step = "step"
    epoch = "epoch"
    images = "images"
    seconds = "seconds"


class KeepWeights(StrEnum):
    all = "all"
    baseline = "baseline"
    none = "none"


class PackFormat(StrEnum):
    bytes = "bytes"
    jpeg = "jpeg"


Words = Annotated[
    list[str],
    typer.Argument(
        metavar="STUDY... [KEY=VALUE]...",
        help="Names or files, or 'all'; settings. Where a study has stages KEY is for all of them, STAGE.KEY for one "
        "alone, finetune.KEY for what starts from them.",
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[STUDY]... [KEY=VALUE]...", help="Planned studies (default: all that are planned)."),
]
StudiesOrTrials = Annotated[list[str], typer.Argument(metavar="STUDY|TRIAL...", help="Studies, or ids of trials.")]
ProfileName = Annotated[str, typer.Option("--profile", metavar="NAME|FILE", help="What to ask the cluster for.")]
RecipeName = Annotated[str, typer.Option("--recipe", metavar="NAME|FILE", help="On what.")]
RecipeNames = Annotated[
    list[str], typer.Option("--recipe", metavar="NAME|FILE", help="On what; given again, side by side.")
]
StyleFile = Annotated[
    Path | None, typer.Option("--style", help="A YAML file: size, fonts, colours, order, labels, digits, title.")
]
Runs = Annotated[Path | None, typer.Option("--runs", help="The run directory.  [default: runs]", show_default=False)]
Source = Annotated[
    Path | None,
    typer.Option("--runs", help="A run directory or an exported .parquet.  [default: runs]", show_default=False),
]
Seeds = Annotated[int | None, typer.Option("--seeds", min=1, help="Seeds an arm.  [default: the recipe's]")]
ArmGlob = Annotated[str, typer.Option("--arm", metavar="GLOB", help="Only the arms whose name matches.")]
Plugins = Annotated[list[Path] | None, typer.Option("--plugin", help="A Python file with parts of your own.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Where data sets lie, before all else that says so.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")]
Prune = Annotated[bool, typer.Option("--prune", help="Forget arms and seeds planned earlier; their results stay.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 where a planned trial has no result.")]
Checkpoints = Annotated[
    str | None, typer.Option("--checkpoints", metavar="DIR", help="Scratch space.  [default: the run directory]")
]
Keeping = Annotated[
    KeepWeights | None, typer.Option("--keep-weights", help="Whose final weights to keep.  [default: all]")
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        min=1,
        help="Trials at a time, at most.  [default: what fits the GPUs' memory, else cores; on a login node at most 2]",
    ),
]
Fuse = Annotated[
    str,
    typer.Option(
        metavar="auto|off|N",
        help="Trials that differ in seed or rates alone are trained as one, N at most, where a probe says that it "
        "pays. auto: on a GPU 8, else off.",
    ),
]
MaxHours = Annotated[
    float | None,
    typer.Option("--max-hours", min=0, help="Refuse, before anything starts, what would take more device time."),
]


def main() -> None:
    """The entry point: bad input is one line on standard error and status 2."""
    try:
        sys.exit(app(prog_name="ablate", standalone_mode=False))
    except USAGE as error:
        refuse_usage(error)
    except (ValueError, OSError) as error:
        if os.environ.get("ABLATE_TRACEBACK"):
            raise
        print(f"ablate: {one_line(str(error))}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        print("ablate: interrupted; nothing finished is lost, the same command goes on", file=sys.stderr)
        sys.exit(INTERRUPTED)


def refuse_usage(error: Any) -> NoReturn:
    """Words that no command takes: one line; the help where a command that needs words was given none."""
    asked = error.ctx.command_path if error.ctx else "ablate"
    if error.ctx and error.message == error.ctx.get_help():
        print(error.message, file=sys.stderr)
    else:
        print(f"{asked}: {one_line(error.format_message()).rstrip('.')} (see {asked} -h)", file=sys.stderr)
    sys.exit(BAD_INPUT)


def one_line(text: str) -> str:
    return plain(" ".join(text.split()))[:LONGEST_LINE]


# -- what the words mean -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """The studies and settings that the words of a command name."""

    studies: list[str]
    overrides: Json


def split(words: Iterable[str]) -> Asked:
    """Words with '=' are settings, the others studies. Raises ValueError for a setting given twice."""
    studies, overrides = [], {}
    for word in words:
        if "=" in word and not word.endswith((".yaml", ".yml")):
            key, value = strict_yaml.assignment(word)
            if key in overrides:
                raise ValueError(f"{key} is set twice")
            overrides[key] = value
        else:
            studies.append(word)
    return Asked(studies, overrides)


def designs(asked: Asked, recipe_name: str, data_dir: Path | None) -> "list[Design]":
    """What the words of a command and its --data-dir mean."""
    from ablations.study import Design, packaged, read_recipe, read_study

    if not asked.studies:
        raise ValueError(f"name a study ({', '.join(packaged('studies'))}), a .yaml file, or 'all'")
    names = [name for word in asked.studies for name in (packaged("studies") if word == "all" else [word])]
    images = settings.places(settings.read(Path()), data_dir).images
    recipe = with_data(read_recipe(recipe_name), ("config", "arms", "stages"), images)
    read = (read_study(name) for name in dict.fromkeys(names))
    studies = [with_data(study, ("baseline", "stages", "arms", "co_changes"), images) for study in read]
    return [Design(study, recipe, named_data(asked.overrides, data_dir)) for study in studies]


def with_data(record: "Record", fields: Iterable[str], images: Mapping[str, str]) -> "Record":
    """A study or recipe with the data that it names as ablate.toml maps them, in these of its fields."""
    return record.model_copy(update={field: settings.named(getattr(record, field), images) for field in fields})


def take_as_stated(made: "list[Design]", data_dir: Path | None) -> str:
    """For a pack that is not there, what the recipe states of it, in this process; a line on it, or nothing."""
    from vitcore import data
    from vitcore.pack import find

    recipe = made[0].recipe
    name = str(recipe.config.get("data"))
    used = any(name == design.overrides.get("data", name) for design in made)
    if recipe.pack is None or not used or find(name, data_dir) is not None:
        return ""
    data.STATED[name] = recipe.pack.about(name)
    return f"data={name}: not packed here: {data.unpacked(name)}"


def named_data(config: Json, data_dir: Path | None = None) -> Json:
    """With data=NAME as ablate.toml maps it to a folder of images; packs keep their names. data_dir: --data-dir."""
    mapped: Json = settings.named(config, settings.places(settings.read(Path()), data_dir).images)
    return mapped


def load_plugins(files: list[Path] | None) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """The plugins of ablate.toml and of the command line, loaded; their digests."""
    named = [Path(os.path.expanduser(file)) for file in settings.read(Path()).plugins] + (files or [])
    paths = tuple(dict.fromkeys(path.resolve() for path in named))
    if not paths:
        return (), ()
    from ablations import plugins

    return paths, tuple(plugins.load(paths).values())


def source_path(source: Path | None) -> Path:
    """--runs, else ablate.toml: where results are read."""
    return source if source is not None else Path(os.path.expanduser(settings.read(Path()).runs))


def runs_folder(runs: Path | None) -> Path:
    """Where results are written too: a folder, there or to be made. Raises ValueError for a file."""
    folder = source_path(runs)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--runs {folder}: is a file, not a run directory")
    return folder


def data_folder(data_dir: Path | None, profile: str | None = None) -> Path | None:
    """Where data lie that have no folder of their own: `settings.places`; None: where ABLATE_DATA says.

    This process and those it starts are told where packs lie in the environment's own words: what a config is depends
    on their manifests. data_dir: --data-dir; profile: the data_dir of a profile.
    """
    places = settings.places(settings.read(Path()), data_dir, profile)
    if places.folder:
        os.environ["ABLATE_DATA"] = str(places.folder.absolute())
    if places.packs:
        os.environ["ABLATE_PACKS"] = json.dumps(places.packs)
    return places.folder


def found(
    source: Path | None, words: list[str] | None, recipe_name: str, *, for_tables: bool = False
) -> "list[StudyResults]":
    """The results that a reading command asks for, or what tables need of them."""
    from results import study

    parts = study.FOR_TABLES if for_tables else study.PARTS
    return study.load(source_path(source), plan_names(words, recipe_name), parts)


def found_on(
    source: Path | None, words: list[str] | None, recipes: list[str], *, for_tables: bool = False
) -> "list[StudyResults]":
    """The same of several recipes: one study after the other, each on the recipes in their order."""
    from ablations.study import stem

    if len(recipes) == 1:
        return found(source, words, recipes[0], for_tables=for_tables)
    asked = list(dict.fromkeys(stem(recipe) for recipe in recipes))
    named = bool(plan_names(words, asked[0]))
    wanted = asked if named else asked[:1]
    studies = [study for recipe in wanted for study in found(source, words, recipe, for_tables=for_tables)]
    kept = {study.name: study for study in studies if study.plan["recipe"] in asked}
    order = list(dict.fromkeys(study.plan["study"] for study in kept.values()))
    return sorted(kept.values(), key=lambda s: (order.index(s.plan["study"]), asked.index(s.plan["recipe"])))


def styled(file: Path | None, source: Path) -> AbstractContextManager[None]:
    """Puts the style of a file to use; a line on standard error says which of its names no study of `source` has.

    Raises ValueError: one line with the file, the key and what is allowed.
    """
    if file is None:
        return contextlib.nullcontext()
    from results import style, unmatched

    content = strict_yaml.read(file)
    try:
        chosen = style.parse(content)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    if odd := unmatched.told(chosen, plans_at(source)):
        print(f"ablate: {file}: {one_line(odd)}", file=sys.stderr)
    return style.use(chosen)


def plans_at(source: Path) -> list[Json]:
    """Every plan of a run directory or an exported file."""
    from results import store

    if source.is_file():
        from results.export import read_plans  # late: pulls in the Parquet reader

        return read_plans(source)
    return list(store.plans(source))


def planned(runs: Path, words: list[str] | None, recipe_name: str) -> list[Json]:
    """The plans that a command asks for."""
    from results import planned as plans

    return plans.plans(runs, plan_names(words, recipe_name))


def plan_names(words: list[str] | None, recipe_name: str) -> list[str]:
    """What the words of a command name; none: all that are planned."""
    from ablations.study import plan_name, stem

    asked = split(words or [])
    if "all" in asked.studies:
        return []
    overrides = named_data(asked.overrides)
    return [name if "@" in name else plan_name(stem(name), stem(recipe_name), overrides) for name in asked.studies]


def trial_ids(runs: Path, words: list[str], recipe_name: str, arm: str = "*") -> list[str]:
    """The trials that the words of a command name, by their ids or by their studies."""
    from ablations.jobs import jobs

    ids = [word for word in words if re.fullmatch("[0-9a-f]{12}", word) and (runs / "trials" / word).is_dir()]
    studies = [word for word in words if word not in ids]
    return ids + [job.id for job in jobs(planned(runs, studies, recipe_name) if studies else [], arm)]


def show_json(results: list[Json]) -> None:
    """One object for one study, a list for several."""
    print(json.dumps(results[0] if len(results) == 1 else results, indent=1, allow_nan=False))


# -- what there is -----------------------------------------------------------------------------------------------------


@app.command("list")
def list_(
    variants: Annotated[bool, typer.Option("--variants", help="What each slot of a config may be.")] = False,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """Studies and recipes, a line each; or the variants of each slot, with their options."""
    from ablations.study import packaged, read_recipe, read_study

    if variants:
        from ablations.catalogue import catalogue, render  # late: the parts are torch modules

        load_plugins(plugin)
        slots = catalogue()
        if as_json:
            show_json([{"variants": slots}])
        else:
            print(render(slots))
        return
    studies = [read_study(name) for name in packaged("studies")]
    recipes = [read_recipe(name) for name in packaged("recipes")]
    if as_json:
        show_json([{"studies": [s.model_dump() for s in studies], "recipes": [r.model_dump() for r in recipes]}])
        return
    width = max(len(name) for name in [*packaged("studies"), *packaged("recipes")])
    print("Studies")
    for study in studies:
        print(f"  {study.name:{width}}  {study.question}")
    print("Recipes")
    for recipe in recipes:
        print(f"  {recipe.name:{width}}  {recipe.description.split('. ')[0].rstrip('.')}")


@app.command()
def plan(
    words: Words,
    recipe: RecipeName = "digits",
    runs: Runs = None,
    seeds: Seeds = None,
    prune: Prune = False,
    plugin: Plugins = None,
    data_dir: DataDir = None,
    workers: Workers = None,
    keep_weights: Keeping = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="The hours of jobs of this SLURM profile.  [default: here]"),
    ] = None,
    max_hours: MaxHours = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Measure 50 steps of every arm here first, and keep the figures.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """What a run would do: trials finished, shared and to do; confounds; cost; what it could resolve."""
    from ablations import estimate
    from ablations.jobs import jobs
    from ablations.overview import overview, render
    from ablations.plan import prepare

    chosen = slurm_profile(profile, recipe) if profile is not None else None
    place = make_place(runs, data_dir, plugin, profile=chosen)
    folder = runs_folder(runs)
    made = designs(split(words), recipe, data_dir)
    missing = take_as_stated(made, data_dir)
    if missing and probe:
        raise ValueError(f"--probe measures on the data: {missing}")
    if missing:
        print(f"{missing}: planned from what the recipe states of it, as if nothing were finished", file=sys.stderr)
    plans = [prepare(design, folder, seeds, prune or bool(missing)) for design in made]
    device = estimate.here(plans) if chosen is None else profile_device(chosen)
    if probe and profile is not None:
        raise ValueError(f"--probe measures here, not what --profile {profile} asks for: leave one of them out")
    if probe:
        from ablations.probing import probe as measure

        ensure_data(jobs(plans), place)
        measure(plans, folder, place.data_dir, lambda line: print(line, file=sys.stderr))
    if max_hours is not None:
        estimate.refuse_beyond(max_hours, plans, jobs(plans), folder, device)
    keep = keep_weights.value if keep_weights else settings.read(Path()).keep_weights
    views = [overview(plan, folder, plans[:position], device, keep, workers) for position, plan in enumerate(plans)]
    if as_json:
        show_json(views)
    else:
        for view, planned in zip(views, plans, strict=True):
            print(render(view, planned), end="\n\n")


# -- running -----------------------------------------------------------------------------------------------------------


@app.command()
def run(
    words: Words,
    recipe: RecipeName = "digits",
    runs: Runs = None,
    seeds: Seeds = None,
    arm: ArmGlob = "*",
    workers: Workers = None,
    prune: Prune = False,
    plugin: Plugins = None,
    data_dir: DataDir = None,
    checkpoints: Checkpoints = None,
    keep_weights: Keeping = None,
    max_hours: MaxHours = None,
    fuse: Fuse = "auto",
) -> None:
    """Train what is missing, here, and show each table as its study is complete. Ctrl-C loses nothing."""
    from ablations import fusing, jobs
    from ablations import plan as planning

    place = make_place(runs, data_dir, plugin, checkpoints, keep_weights.value if keep_weights else None)
    place = replace(place, fuse=fusing.asked(fuse))
    plans = [planning.prepare(design, place.runs, seeds, prune) for design in designs(split(words), recipe, data_dir)]
    todo = jobs.jobs(plans, arm)
    ensure_trainable(todo, plans, place, max_hours)
    for planned in plans:
        jobs.write(place.runs, planned)
    finish(train_here(todo, place, workers, publishing(plans, arm, place.runs)), len(todo))


def ensure_trainable(jobs: "list[Job]", plans: list[Json], place: "Place", max_hours: float | None) -> None:
    """Raises ValueError, before anything is written, for what cannot be trained here, or in no more hours."""
    from ablations import estimate, retrying

    ensure_gpus(retrying.to_do(place.runs, jobs, place.code))
    if max_hours is not None:
        estimate.refuse_beyond(max_hours, plans, jobs, place.runs, estimate.here(plans))
    ensure_data(jobs, place)
    ensure_writable(place.runs)
    if place.checkpoints:
        ensure_scratch(place.checkpoints)


def publishing(plans: list[Json], arm: str, runs: Path) -> "Callable[[Job], None]":
    """Told of each trial that is over, prints a study's table, and files its tables and figure, once all of it is."""
    from ablations import jobs
    from ablations.publishing import publish
    from results.study import load

    open_trials = {planned["name"]: {job.id for job in jobs.jobs([planned], arm)} for planned in plans}

    def over(job: "Job") -> None:
        for name, ids in list(open_trials.items()):
            ids.discard(job.id)
            if not ids:
                del open_trials[name]
                print(publish(load(runs, [name])[0], runs), end="\n\n", flush=True)

    return over


@app.command()
def train(
    words: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE...", help="The config; what is left out, the recipe's.")
    ],
    recipe: RecipeName = "digits",
    runs: Runs = None,
    plugin: Plugins = None,
    data_dir: DataDir = None,
    checkpoints: Checkpoints = None,
    as_json: AsJson = False,
) -> None:
    """One trial, by the same code path as a study's; prints where it is and how it ended."""
    from ablations import retrying, starts
    from ablations.jobs import Job
    from ablations.study import read_recipe
    from results import store
    from vitcore.config import Config, merge
    from vitcore.data import check
    from vitcore.identity import trial_id

    place = make_place(runs, data_dir, plugin, checkpoints)
    asked = split(words)
    if asked.studies:
        raise ValueError(f"'{asked.studies[0]}' is not key=value: train takes one config, run takes studies")
    config = Config(**named_data(merge(read_recipe(recipe).config, asked.overrides), data_dir))
    check(config)
    starts.check_trial(config, place.runs)
    job = Job(trial_id(config), config.model_dump(), "train", "")
    ensure_data([job], place)
    ensure_gpus(retrying.to_do(place.runs, [job], place.code))
    ensure_writable(place.runs)
    tally = train_here([job], place, 1)
    state = store.trial(place.runs, job.id).state()
    if as_json and state.result is not None:
        show_json([state.result])
    elif state.result is not None:
        shown = "  ".join(f"{name} {value:.4f}" for name, value in state.result["metrics"].items())
        print(f"{place.runs / 'trials' / job.id}  {state.status}  {shown}")
    finish(tally, 1)


@app.command()
def retry(
    words: StudiesOrTrials,
    recipe: RecipeName = "digits",
    runs: Runs = None,
    arm: ArmGlob = "*",
    failed: Annotated[bool, typer.Option("--failed", help="All that failed: the default.")] = False,
    oom: Annotated[bool, typer.Option("--oom", help="Those that ran out of memory.")] = False,
    diverged: Annotated[bool, typer.Option("--diverged", help="Those that diverged; old results stay.")] = False,
) -> None:
    """Let trials be run again: `run` or `submit` takes them up, what failed from its newest checkpoint."""
    from ablations import retrying
    from ablations.jobs import jobs
    from results import store

    folder = runs_folder(runs)
    ids = list(dict.fromkeys(trial_ids(folder, words, recipe, arm)))
    evals_too = failed or not (oom or diverged)
    wanted = retrying.wanted(failed=evals_too, oom=oom, diverged=diverged)
    reopened = retrying.retry([store.trial(folder, key) for key in ids], wanted, evals_too)
    meant = [job for job in jobs(store.plans(folder)) if {job.id, *job.parents} & {*ids}]
    renewed = retrying.renewed(retrying.renew(folder, meant))
    if reopened or not renewed:
        print(retrying.told(len(ids), reopened, oom=oom, diverged=diverged))
    if renewed:
        print(renewed)


def make_place(
    runs: Path | None,
    data_dir: Path | None,
    plugin: list[Path] | None,
    checkpoints: str | None = None,
    keep_weights: "Keep | None" = None,
    profile: "Profile | None" = None,
) -> "Place":
    from ablations.runner import Place

    files, digests = load_plugins(plugin)
    here = settings.read(Path())
    checkpoints = checkpoints or here.checkpoints
    return Place(
        runs_folder(runs).absolute(),
        data_folder(data_dir, profile.data_dir if profile else None),
        files,
        digests,
        checkpoints=settings.scratch(checkpoints) if checkpoints else None,
        keep_weights=keep_weights or here.keep_weights,
    )


def ensure_data(jobs: "list[Job]", place: "Place") -> None:
    """Raises ValueError before anything is written where a trial's data are not there, or a pack's files not whole."""
    from vitcore.data import describe, pack_of
    from vitcore.datasets import TORCHVISION, data_home, read_torchvision
    from vitcore.pack import opened

    for name in sorted({job.config["data"] for job in jobs}):
        if name in TORCHVISION:
            read_torchvision(name, data_home(name, place.data_dir))
        elif (folder := pack_of(name)) is not None:
            opened(folder, describe(name).fingerprint["sha256"])


def ensure_gpus(jobs: "list[Job]") -> None:
    """Raises ValueError before anything is written for a trial of more GPUs than there are."""
    from ablations import machine, runner

    runner.check_gpus(jobs, len(machine.gpus()), machine.nodes(), "here")


def slurm_profile(name: str, recipe: str) -> "Profile":
    """A SLURM profile, where the recipe's resources fill what it leaves open."""
    from ablations.study import read_recipe
    from ablations.submitting import read_profile

    return read_profile(name, read_recipe(recipe).resources)


def profile_device(profile: "Profile") -> "Device":
    """What its jobs run on."""
    from ablations.campaign import device  # late: submitit

    return device(profile)


def ensure_writable(runs: Path) -> None:
    try:
        (runs / "trials").mkdir(parents=True, exist_ok=True)
        probe = runs / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(f"--runs {runs}: cannot be written ({error.strerror})") from None


def ensure_scratch(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise ValueError(f"--checkpoints {folder}: cannot be written ({error.strerror})") from None


def train_here(jobs: "list[Job]", place: "Place", workers: int | None, on_over: Any = lambda job: None) -> "Tally":
    from rich.console import Console

    from ablations import login, retrying, runner
    from ablations.progress import Live

    renewed = retrying.renewed(retrying.renew(place.runs, jobs, place.code))
    todo = retrying.to_do(place.runs, jobs, place.code)
    with Live(Console(stderr=True), len(todo)) as display:
        if renewed:
            display.say(renewed)
        wanted = max((len(runner.slots(group, workers)) for group in runner.by_ranks(todo)), default=0)
        if login.here() and wanted > login.MOST:
            display.say(login.told(wanted))
            workers = login.MOST
        return runner.run(jobs, place, display, workers, on_over)


def finish(tally: "Tally", asked: int) -> None:
    """Exit status 0 only if all that was asked is done."""
    if tally.stopped:
        left = asked - len(tally.done) - len(tally.failed) - len(tally.blocked)
        print(
            f"interrupted: {len(tally.done)} trials done, {left} left; the same command goes on",
            file=sys.stderr,
        )
        raise typer.Exit(INTERRUPTED)
    if tally.interrupted:
        causes = "; ".join(dict.fromkeys(tally.interrupted.values()))
        print(f"{len(tally.interrupted)} trials interrupted ({causes}): the same command goes on", file=sys.stderr)
    if tally.failed:
        ids = " ".join(list(tally.failed)[:3])
        print(f"{len(tally.failed)} trials failed: `ablate retry {ids}` lets them run again", file=sys.stderr)
    if tally.blocked:
        causes = "; ".join(dict.fromkeys(tally.blocked.values()))
        print(f"{len(tally.blocked)} trials blocked ({causes})", file=sys.stderr)
    if tally.failed or tally.interrupted or tally.blocked:
        raise typer.Exit(FAILED)


# -- on a cluster ------------------------------------------------------------------------------------------------------


@app.command()
def submit(
    words: Words,
    profile: ProfileName,
    recipe: RecipeName = "digits",
    runs: Runs = None,
    seeds: Seeds = None,
    prune: Prune = False,
    plugin: Plugins = None,
    data_dir: DataDir = None,
    checkpoints: Checkpoints = None,
    keep_weights: Keeping = None,
    max_hours: MaxHours = None,
    fuse: Fuse = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the scripts; submit and write nothing.")] = False,
) -> None:
    """Hand what is missing to SLURM and return at once. Run again, it submits only what neither is done nor waits.

    Asks `sbatch --test-only` first: a wrong setting of the profile is one line, and nothing is submitted. A last job
    waits for all others, submits what is still missing, and writes tables and report: there is no need to stay.
    """
    from ablations import estimate, fusing, jobs, submitting
    from ablations import plan as planning
    from ablations.campaign import device

    chosen = slurm_profile(profile, recipe)
    keep = keep_weights.value if keep_weights else chosen.keep_weights
    place = make_place(runs, data_dir, plugin, checkpoints or chosen.checkpoints, keep, chosen)
    place = replace(place, fuse=fusing.asked(fuse))
    plans = [planning.prepare(design, place.runs, seeds, prune) for design in designs(split(words), recipe, data_dir)]
    ensure_data(jobs.jobs(plans), place)
    submitting.check_gpus(chosen, plans, place)
    if max_hours is not None:
        estimate.refuse_beyond(max_hours, plans, jobs.jobs(plans), place.runs, device(chosen))
    if dry_run:
        print(submitting.preview(plans, place, chosen))
        return
    submitting.preflight(chosen, place.runs)
    ensure_writable(place.runs)
    for planned in plans:
        jobs.write(place.runs, planned)
    names = [planned["name"] for planned in plans]
    print(submitting.submit(names, place, chosen))
    print(f"watch: ablate status {shlex.join(names)}{found_at(runs)} --watch")


def found_at(runs: Path | None) -> str:
    """What a command needs to find the same run directory."""
    return f" --runs {shlex.quote(str(runs))}" if runs else ""


@app.command()
def status(
    words: Names = None,
    recipe: RecipeName = "digits",
    runs: Runs = None,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until all is over or Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Per arm what is finished, running, queued and failed, and why. Read-only; works without SLURM too.

    The disk first, then SLURM's queue, then its accounting; what does not answer within seconds is called unknown.
    --watch reads the disk every few seconds and asks SLURM once a minute.
    """
    from ablations import board
    from ablations import status as statuses
    from results import store

    folder = runs_folder(runs)
    names = [plan["name"] for plan in planned(folder, words, recipe)]
    asker = statuses.Asker(folder)

    def views() -> list[Json]:
        seen = asker()
        return [statuses.status(plan, folder, seen) for plan in store.plans(folder) if plan["name"] in names]

    def look() -> tuple[Any, bool]:
        now = views()
        return board.board(now, found_at(runs)), statuses.settled(now)

    if as_json and watch:
        raise ValueError("--watch is for a person: without --json")
    if as_json:
        show_json(views())
    elif watch:
        with contextlib.suppress(KeyboardInterrupt):
            board.watch(look)
    else:
        board.show(look()[0])


@app.command()
def logs(
    words: StudiesOrTrials,
    recipe: RecipeName = "digits",
    runs: Runs = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only of failed trials.")] = False,
    lines: Annotated[int, typer.Option(min=1, help="The last lines of each.")] = 20,
) -> None:
    """The end of each trial's log, and the traceback of what failed.

    Of a trial that never began or was interrupted, also the log of the SLURM task that was to train it.
    """
    from ablations import tails

    folder = runs_folder(runs)
    printed = False
    for text in tails.tails(folder, trial_ids(folder, words, recipe), lines, failed):
        print(text)
        printed = True
    if not printed:
        print("nothing has failed" if failed else "nothing has begun", file=sys.stderr)


@app.command()
def cancel(words: Words, recipe: RecipeName = "digits", runs: Runs = None) -> None:
    """Take a study's jobs out of SLURM. Only this means cancelled: any other stop is continued."""
    from ablations import submitting

    folder = runs_folder(runs)
    names = {plan["name"] for plan in planned(folder, words, recipe)}
    print(submitting.cancel(folder, names))


@app.command()
def clean(
    runs: Runs = None,
    keep_weights: Keeping = None,
    checkpoints: Checkpoints = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove it; otherwise it is only listed.")] = False,
) -> None:
    """What a run directory can do without. Lists it; removes it with --yes. Results always stay."""
    import shutil

    from ablations import cleaning
    from results import store

    folder = runs_folder(runs)
    here = settings.read(Path())
    scratch = checkpoints or here.checkpoints
    found_waste = cleaning.waste(
        folder,
        list(store.plans(folder)),
        keep_weights.value if keep_weights else here.keep_weights,
        settings.scratch(scratch) if scratch else None,
    )
    for one in found_waste:
        print(f"{one.size / 1e6:10.2f} MB  {one.path}  ({one.why})")
        if yes:
            shutil.rmtree(one.path) if one.path.is_dir() else one.path.unlink()
    total = sum(one.size for one in found_waste) / 1e6
    print(f"{total:10.2f} MB in all" + (", removed" if yes else "; remove with --yes" if found_waste else ""))


@profile_app.command()
def init(out: Annotated[Path | None, typer.Option(help="A file.  [default: standard output]")] = None) -> None:
    """Write a first profile, with comments.

    From what this cluster's sinfo and scontrol say: partitions, GPUs, accounts; correct it, then `profile check` it.
    """
    from slurm import draft

    text = draft.init()
    if out is None:
        print(text)
    elif out.exists():
        raise ValueError(f"--out {out}: exists already")
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text)
        print(out)


@profile_app.command("check")
def check_profile(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE")], runs: Runs = None, data_dir: DataDir = None
) -> None:
    """Try a profile with a job of a minute.

    On a node it tries what trials need there: GPU, imports, data, links in the run directory, and sbatch, without
    which no last job can submit what is left.
    """
    from ablations import submitting

    profile = submitting.read_profile(name)
    place = make_place(runs, data_dir, None, profile=profile)
    ensure_writable(place.runs)
    lines, good = submitting.check(profile, place)
    print("\n".join(lines))
    if not good:
        raise typer.Exit(FAILED)


# -- reading -----------------------------------------------------------------------------------------------------------


@app.command()
def table(
    words: Names = None,
    recipe: RecipeNames = ["digits"],  # noqa: B006  # typer reads it, nobody changes it
    runs: Source = None,
    format: Annotated[TableFormat, typer.Option(help="How to write it.")] = TableFormat.md,
    columns: Annotated[str | None, typer.Option(help="Names, joined by commas.  [default: the usual ones]")] = None,
    style: StyleFile = None,
    as_json: AsJson = False,
    strict: Strict = False,
) -> None:
    """Means with intervals, paired differences to the baseline, verdicts."""
    from results import across, tables

    with styled(style, source_path(runs)):
        shown = [tables.table(study) for study in found_on(runs, words, recipe, for_tables=True)]
        chosen = [name.strip() for name in columns.split(",")] if columns else None
        if as_json or format is TableFormat.json:
            show_json([json.loads(tables.render(one, "json", chosen)) for one in shown])
        elif len(set(recipe)) > 1:
            print("\n\n".join(across.render(same, format.value, chosen) for same in across.by_study(shown)))
        else:
            print("\n\n".join(tables.render(one, format.value, chosen) for one in shown))
    if strict and any(row["n"] + row["diverged"] < row["planned"] for one in shown for row in one["rows"]):
        raise typer.Exit(FAILED)


@app.command()
def plot(
    words: Names = None,
    recipe: RecipeName = "digits",
    runs: Source = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder.  [default: each study's own, in the run directory]")
    ] = None,
    format: Annotated[FigureFormat, typer.Option(help="How to draw it.")] = FigureFormat.png,
    x: Annotated[Axis | None, typer.Option(help="Training curves over this, unfinished trials included.")] = None,
    style: StyleFile = None,
    as_json: AsJson = False,
) -> None:
    """The figure of each study, or its training curves; prints the files written."""
    from results import plots, store

    folder, drawn = source_path(runs), []
    with styled(style, folder):
        for study in found(runs, words, recipe):
            target = out or (store.study_folder(folder, study.name) / "figures" if folder.is_dir() else Path("figures"))
            path = plots.draw(study, target, format.value, x.value if x else None)
            drawn.append({"study": study.plan["study"], "recipe": study.plan["recipe"], "figure": str(path)})
            if not as_json:
                print(path)
    if as_json:
        show_json(drawn)


@app.command()
def report(
    words: Names = None,
    recipe: RecipeName = "digits",
    runs: Source = None,
    out: Annotated[Path | None, typer.Option(help="The file.  [default: report.html in the run directory]")] = None,
    style: StyleFile = None,
) -> None:
    """One HTML file with every table and figure, that opens without a network."""
    from results import inside
    from results import report as reports

    folder = source_path(runs)
    target = out or (folder / "report.html" if folder.is_dir() else Path("report.html"))
    studies = found(runs, words, recipe)
    with styled(style, folder):
        reports.write(studies, target, inside.found(folder, studies))
    print(target)


@app.command()
def inspect(
    trial: Annotated[str, typer.Argument(metavar="TRIAL", help="A finished trial: its id, or how that begins.")],
    runs: Runs = None,
    out: Annotated[Path | None, typer.Option(help="A folder.  [default: figures/ in the trial's own]")] = None,
    images: Annotated[int | None, typer.Option(min=1, help="Test images to look at.  [default: 128]")] = None,
    format: Annotated[FigureFormat, typer.Option(help="How to draw it.")] = FigureFormat.png,
    plugin: Plugins = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Figures from a trial's weights: filters, position, attention distance, rollout; its layers in a table."""
    from ablations.inspecting import find, look
    from results import inspection

    place = make_place(runs, data_dir, plugin)
    inside = look(find(place.runs, trial), place, images)
    target = out or place.runs / "trials" / inside.trial / "figures"
    paths = inspection.draw(inside, target, format.value)
    if as_json:
        show_json([{"trial": inside.trial, "figures": [str(path) for path in paths], **inside.facts}])
        return
    print(inspection.table(inside))
    print("\n".join(["", *(site["note"] for site in inside.facts["sites"] if not site["site"]), *map(str, paths)]))


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="A run directory or an exported file.")],
    b: Annotated[str, typer.Argument(help="Another: the verdicts are of this one against A. Or 'published'.")],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[STUDY]...", help="Only these.  [default: all]", show_default=False)
    ] = None,
    format: Annotated[TableFormat, typer.Option(help="How to write it.")] = TableFormat.md,
    as_json: AsJson = False,
    fail_on: Annotated[
        str | None, typer.Option(metavar="worse", help="Exit with 1 where B is worse; says what it could have seen.")
    ] = None,
) -> None:
    """Two sets of results, arm by arm; or, with 'published', each claim of a study's source judged by its trials."""
    from results import compare as comparing
    from results import comparison as told
    from results import published
    from results.study import load

    if fail_on not in (None, "worse"):
        raise ValueError(f"--fail-on {fail_on}: allowed is 'worse'")
    shown = TableFormat.json if as_json else format
    if b == published.NAME:
        if fail_on:
            raise ValueError(f"--fail-on {fail_on}: {b} numbers are of another setting, nothing is worse than they")
        print(published.render(published.beside(load(a, words or [])), shown.value))
        return
    comparison = comparing.compare(load(a, words or []), load(Path(b), words or []))
    print(told.render(comparison, shown.value))
    if fail_on:
        if not told.was_compared(comparison):
            raise ValueError(f"--fail-on {fail_on}: no arm could be compared ({told.gate(comparison)})")
        print(f"--fail-on {fail_on}: {told.gate(comparison)}", file=sys.stderr)
        if any(row["verdict"] == "worse" for row in comparison["rows"]):
            raise typer.Exit(FAILED)


@app.command()
def export(
    words: Names = None,
    recipe: RecipeName = "digits",
    runs: Source = None,
    out: Annotated[
        Path | None,
        typer.Option(help=".parquet: everything; .csv: the trials.  [default: results.parquet]", show_default=False),
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="tensorboard", help="Training curves as event files in the folder --out.")
    ] = None,
) -> None:
    """All that tables, figures, reports and comparisons need, in one file; or training curves for TensorBoard."""
    from results import events, inside
    from results import export as exports

    if to not in (None, "tensorboard"):
        raise ValueError(f"--to {to}: allowed is 'tensorboard'; --out FILE.parquet or FILE.csv says the other formats")
    studies = found(runs, words, recipe)
    target = out or Path("tensorboard" if to else "results.parquet")
    if to:
        events.mirror(studies, target)
    else:
        exports.write(studies, target, inside.found(source_path(runs), studies))
    print(target)


# -- contracts and data ------------------------------------------------------------------------------------------------


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Plugins (.py), studies or recipes (.yaml).")],
    recipe: RecipeName = "digits",
    plugin: Plugins = None,
) -> None:
    """The contract tests on a plugin's parts; a study's arms and confounds; a recipe's config."""
    from ablations.checking import check_file

    load_plugins(plugin)
    data_folder(None)
    passed = [check_file(file, recipe) for file in files]
    if not all(passed):
        raise typer.Exit(FAILED)


@app.command()
def bench(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STUDY]... [KEY=VALUE]...", help="Studies: what each arm costs; settings."),
    ] = None,
    recipe: RecipeName = "digits",
    arm: ArmGlob = "*",
    loop: Annotated[
        bool, typer.Option("--loop", help="A whole small study beside one process a trial; minutes.")
    ] = False,
    fused: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="N seeds trained as one, beside one by one; minutes.")
    ] = None,
    start: Annotated[
        bool, typer.Option("--start", help="A process's first step, with an empty and a full compile cache; minutes.")
    ] = False,
    rounds: Annotated[
        int | None,
        typer.Option(min=2, help="Turns of each side.  [default: 15; of what takes minutes 2]", show_default=False),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Train steps a turn.")] = 20,
    seeds: Annotated[int, typer.Option(min=1, help="Of --loop: seeds of each of its two arms.")] = 2,
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Also beside timm's model compiled, which takes a minute.")
    ] = False,
    gpu: Annotated[bool, typer.Option("--gpu", help="On a GPU, the same parts.")] = False,
    random_images: Annotated[
        bool, typer.Option("--random-images", help="Random ones of the data's size, where those are not at hand.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the JSON to this file.")] = None,
    plugin: Plugins = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """The train step of a recipe's config beside timm's and torchvision's models, its floor, its input, its memory.

    With STUDY, what a step of each arm takes beside its baseline's. With --loop, a whole small study beside a process a
    trial. With --fused, seeds trained as one beside one by one, and beside processes. With --start, when the first step
    is taken. Ratios of what is measured in turn, in one run: median and quartiles.
    """
    from ablations import bench as benches
    from ablations.bench_memory import Source
    from ablations.bench_told import told
    from ablations.study import read_recipe
    from ablations.worker import require_gpu
    from results import store
    from vitcore.config import Config, merge

    asked = split(words or [])
    if loop and asked.studies:
        raise ValueError(f"--loop {asked.studies[0]}: it has a study of its own: key=value")
    if fused and (loop or asked.studies):
        raise ValueError(f"--fused {fused}: of one config: without {'--loop' if loop else asked.studies[0]}")
    if start and (fused or loop or asked.studies):
        others = "--fused" if fused else "--loop" if loop else asked.studies[0]
        raise ValueError(f"--start: of one config: without {others}")
    if loop and "position" in asked.overrides:
        raise ValueError(f"position={asked.overrides['position']}: is what the study of --loop varies: leave it out")
    if gpu:
        require_gpu()
    files, digests = load_plugins(plugin)
    named = dict(zip(map(str, files), digests, strict=True))
    source = Source(data_folder(data_dir), random_images, files)
    method = benches.Method(rounds or (2 if loop or fused or start else 15), steps, compiled, source)
    device = {"device": "cuda" if gpu else "cpu"}
    settings = named_data(merge(read_recipe(recipe).config, asked.overrides, device), data_dir)
    if fused:
        found = [benches.fused(settings, fused, method, named)]
    elif start:
        found = [benches.start(settings, method, named)]
    elif loop:
        found = [benches.loop(settings, seeds, method, named)]
    elif asked.studies:
        chosen = designs(Asked(asked.studies, asked.overrides | device), recipe, data_dir)
        found = [benches.arms(design, arm, method, named) for design in chosen]
    else:
        found = [benches.step(Config(**settings), method, named)]
    if out:
        store.write_json(out, found[0] if len(found) == 1 else found)
    if as_json:
        show_json(found)
    else:
        print("\n\n".join(map(told, found)))


@data_app.command()
def download(
    name: Annotated[str, typer.Argument(help="cifar10, cifar100, mnist or fashion-mnist.")],
    data_dir: DataDir = None,
) -> None:
    """Fetch a data set, once, where there is a network."""
    from vitcore.datasets import download as fetch

    target = data_home(data_dir)
    fetch(name, target)
    print(target)


def data_home(data_dir: Path | None) -> Path:
    """Where data are written. Raises ValueError."""
    data_folder(data_dir)
    if not os.environ.get("ABLATE_DATA"):
        raise ValueError("say where: --data-dir DIR, or set ABLATE_DATA")
    return Path(os.environ["ABLATE_DATA"])


@data_app.command("pack")
def pack_data(
    name: Annotated[str, typer.Argument(help="What the data are to be called: data=NAME.")],
    source: Annotated[str, typer.Argument(help="A folder of class folders, a .tar of them, or timm:DATASET.")],
    data_dir: DataDir = None,
    size: Annotated[
        int | None, typer.Option(help="The side of the stored squares, which crops are cut from.  [default: 256]")
    ] = None,
    crop: Annotated[
        int | None, typer.Option(help="Of the middle square that is tested on.  [default: 7/8 of size]")
    ] = None,
    format: Annotated[
        PackFormat | None, typer.Option(help="Decoded, or a fifth of the disk.  [default: bytes]")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Threads.  [default: all cores]")] = None,
) -> None:
    """Decode a data set once, into shards that training reads at random. Killed, the same command goes on.

    Of a pack that is there already, it writes again what is damaged, from the same source.
    """
    from vitcore.pack import MANIFEST, find
    from vitcore.packing import Options, check, pack
    from vitcore.sources import find_source

    asked = {"size": size, "crop": crop, "format": format.value if format else None}
    given: Json = {key: value for key, value in asked.items() if value is not None}
    options = Options(**given)
    check(name, options)
    home, threads = data_home(data_dir), jobs or len(os.sched_getaffinity(0))
    folder = find(name) if data_dir is None else home / name
    found_source = find_source(source, home)
    if folder is not None and (folder / MANIFEST).is_file():
        repair_data(name, folder, found_source, given, threads)
        return
    with progress("images", len(found_source.labels)) as advance:
        print(pack(name, found_source, home, options, threads, advance))


def repair_data(name: str, folder: Path, source: "PackSource", given: Json, threads: int) -> None:
    """What is damaged of a pack, written again. given: what the command says of how images are stored."""
    from vitcore.pack import manifest, verify
    from vitcore.packing import repair, rewritten

    known = manifest(folder, name)
    there = {"size": known.size, "crop": known.image_size, "format": known.format}
    if other := [key for key in given if given[key] != there[key]]:
        key = other[0]
        raise ValueError(f"--{key} {given[key]}: {folder} is packed with {there[key]}: another pack needs another name")
    with progress("bytes", known.bytes) as advance:
        damaged = verify(folder, known, advance)
    for line in damaged.values():
        print(line, file=sys.stderr)
    with progress("images", sum(shard.images for shard in rewritten(known, damaged))) as advance:
        repair(folder, known, source, damaged, threads, advance)
    done = f"written again: {', '.join(damaged)}" if damaged else "is packed already, and nothing is damaged"
    print(f"{folder}: {done}")


@data_app.command()
def verify(name: Annotated[str, typer.Argument(help="A pack.")], data_dir: DataDir = None) -> None:
    """Read all of a pack, and name each file that is damaged."""
    from vitcore.pack import MANIFEST, find, manifest
    from vitcore.pack import verify as read

    data_folder(data_dir)
    folder = find(name)
    if folder is None:
        raise ValueError(f"{name}: no {name}/{MANIFEST} in --data-dir or ABLATE_DATA")
    known = manifest(folder, name)
    with progress("bytes", known.bytes) as advance:
        damaged = read(folder, known, advance)
    if damaged:
        print("\n".join([*damaged.values(), f"`ablate data pack {name} SOURCE` writes what is damaged again"]))
        raise typer.Exit(FAILED)
    print(f"{folder}: {known.images:,} images, {known.bytes:,} bytes, as they were packed")


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal's standard error; what is yielded adds to it, from any thread."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


if __name__ == "__main__":
    main()
