"""The command `ablate gate`, which decides whether a proposed change is kept."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ablations.cli.answer import FAILED, show, show_json
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import data_folders, folder_options, make_place, runs_folder
from ablations.cli.inputs.preparation import ensure_trainable
from ablations.cli.inputs.words import parse_words
from ablations.cli.work import finish, train_here
from ablations.decisions import gate as decisions
from ablations.decisions.gate import Question, Side
from ablations.decisions.revisions import with_code
from ablations.execution.launch import Place
from ablations.jobs import unfinished
from ablations.planning import estimate
from ablations.study.naming import RECIPE, check_given_name
from ablations.study.reading import read_recipe
from results.statistics.intervals import Estimate
from results.store import gate_files
from results.store.gate_files import Proposed, Stream
from results.store.schemas.gates import Proposal
from results.store.schemas.metrics import Metric, margin_text
from results.units import amount_text

STATUSES = {"keep": 0, "reject": 1, "more": 3}
UNTRAINED = 4  # a trial failed, so that there is no answer


def gate(
    baseline: Annotated[
        str | None, typer.Argument(metavar="BASELINE", help="Settings KEY=VALUE,KEY=VALUE, or a recipe.")
    ] = None,
    candidate: Annotated[
        str | None, typer.Argument(metavar="CANDIDATE", help="The change: settings, or a recipe.")
    ] = None,
    margin: Annotated[
        float | None, parameters.option("X", "The smallest gain that is worth a change.", "the recipe's")
    ] = None,
    recipe: parameters.RecipeName = None,
    metric: Annotated[str, parameters.option("NAME", "The metric.", "the recipe's")] = "",
    code: Annotated[
        list[str] | None,
        parameters.option("DIR|REVISION", "Give it twice: the baseline's code and the candidate's code."),
    ] = None,
    steps: Annotated[str, parameters.option("N,N", "Seeds at the end of each step.")] = "5,10,20,40",
    stream: Annotated[str, parameters.option("NAME", "The stream of proposals.")] = "main",
    until_decided: Annotated[bool, parameters.flag("--until-decided", "Take all steps that are needed.")] = False,
    log: Annotated[bool, parameters.flag("--log", "Show all proposals, and estimates of what was kept.")] = False,
    runs: parameters.Runs = None,
    workers: parameters.Workers = None,
    plugin: parameters.Plugins = None,
    data_dir: parameters.DataDir = None,
    max_hours: parameters.MaxHours = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Decide whether a change is kept.

    Trains baseline and candidate with fresh seeds, and answers `keep`, `reject` or `more`. After `more`, the same
    command takes the next step. After `keep`, the candidate is the baseline of the next proposal. On average, at most
    5% of a stream's keeps are false. The exit status is 0 for keep, 1 for reject, 3 for more, and 4 if a trial failed.

    Examples:

        ablate gate position=1d position=1d,label_smoothing=0.2 --margin 0.005
        ablate gate --recipe train.yaml --code main --code HEAD --margin 0.01 --json
        ablate gate --log
    """
    if log:
        return show_log(runs_folder(runs), as_json)
    place = make_place(runs, data_dir, plugin)
    check_given_name(stream, "--stream")
    old, new = read_sides([baseline, candidate], recipe, code or [], place, data_dir)
    question = Question(stream, old, new, metric, checked_margin(margin, old), parsed_steps(steps))

    def check(proposal: Proposal, step: int = 1) -> None:
        todo = decisions.seed_jobs(proposal, proposal.seeds_of_step(step))
        if max_hours is not None:
            plans = decisions.plans_of(proposal)
            estimate.check_max_hours(max_hours, plans, todo, place.runs, estimate.local_device(plans))
        ensure_trainable(todo, place)

    proposed = decisions.propose(question, place.runs, check)
    proposal = proposed.proposal
    while proposed.decision is None:
        step = decisions.next_step(proposed)
        check(proposal, step)
        train(proposal, proposal.seeds_of_step(step), f"step {step} of {len(proposal.steps)}", place, workers)
        look = decisions.answer(proposed, stream, place.runs)
        if not until_decided and look.answer == "more":
            break
    if proposed.is_kept and decisions.fresh_change(proposal, place.runs) is None:
        try:
            train(proposal, proposal.fresh_seeds, "kept; to estimate the gain", place, workers)
        except typer.Exit as ended:
            if ended.exit_code != UNTRAINED:
                raise
    content = answer_json(proposed, stream, place.runs)
    content["next"] = next_json(proposed, place.runs)
    next_step = next_text(content["next"], folder_options(runs))
    show(content, f"{answer_text(content, decisions.metric_of(proposal))}\n{next_step}", as_json)
    raise typer.Exit(STATUSES[proposed.last.answer])


# -- what is asked -----------------------------------------------------------------------------------------------------


def read_sides(
    words: Sequence[str | None], recipe: str | None, code: Sequence[str], place: Place, data_dir: Path | None
) -> list[Side]:
    """Return baseline and candidate. Raises ValueError if the words or --code do not say which."""
    if len(code) not in (0, 2):
        raise ValueError("--code: give it twice: the baseline's code and the candidate's code")
    if not code and None in words:
        raise ValueError("name BASELINE and CANDIDATE: settings KEY=VALUE, or recipes; or give --code twice")
    sides = []
    for number, word in enumerate(words):
        side = read_side(word, recipe, data_dir)
        if code:
            text = ",".join(filter(None, [word, code[number]]))
            side = Side(text, with_code(side.recipe, code[number], place.runs), side.settings)
        sides.append(side)
    return sides


def read_side(word: str | None, recipe: str | None, data_dir: Path | None) -> Side:
    """Return what a word stands for: settings on the recipe, or a recipe. None is the recipe itself."""
    settings = []
    if word and "=" in word:
        settings = re.split(r",(?=[\w.]+=)", word)  # not within a list
    request = parse_words(settings, recipe)
    request.check_overrides()
    if request.studies or request.margin is not None:
        raise ValueError(f"{word}: settings KEY=VALUE,KEY=VALUE, or the name or file of a recipe")
    if "seed" in request.overrides:
        raise ValueError(f"{word}: seed: each proposal draws fresh seeds, as many as --steps says: leave it out")
    name = recipe or RECIPE
    if word and "=" not in word:
        name = word
    folders = data_folders(data_dir)
    base = read_recipe(name)
    base = base.model_copy(update=folders.resolve(dict(base)))
    return Side(word or name, base, folders.resolve(request.overrides))


def checked_margin(margin: float | None, baseline: Side) -> float:
    if margin is None:
        margin = baseline.recipe.margin if isinstance(baseline.recipe.margin, float) else 0.0
    if not 0 < margin < float("inf"):
        raise ValueError("--margin X: a number above 0, in the metric (0.005 of an accuracy is half a point)")
    return margin


def parsed_steps(text: str) -> list[int]:
    numbers = text.split(",")
    steps = [int(number) for number in numbers if number.strip().isdecimal()]
    if len(steps) < len(numbers) or sorted({*steps}) != steps or not 2 <= steps[0] <= steps[-1] <= 10_000:
        raise ValueError(f"--steps {text}: growing numbers of seeds from 2 to 10,000, as in 5,10,20,40")
    return steps


# -- training ----------------------------------------------------------------------------------------------------------


def train(proposal: Proposal, seeds: Sequence[int], what: str, place: Place, workers: int | None) -> None:
    todo = decisions.seed_jobs(proposal, seeds)
    left = unfinished(todo, place.runs)
    if left:
        cost = decisions.cost(proposal, left, place.runs)
        text = "of unknown time" if "unknown" in cost.sources else cost.text
        print(f"ablate: {what}: {amount_text(len(left), 'trial')}, {text}", file=sys.stderr)
    try:
        finish(train_here(todo, place, workers), len(todo), folder_options(place.runs))
    except typer.Exit as ended:
        if ended.exit_code == FAILED:
            ended.exit_code = UNTRAINED
        raise


# -- answers -----------------------------------------------------------------------------------------------------------


def answer_json(proposed: Proposed, stream: str, runs: Path) -> dict[str, Any]:
    proposal, look = proposed.proposal, proposed.last
    measured = decisions.fresh_change(proposal, runs) if proposed.is_kept else None
    answered = look.model_dump(include={"answer", "reason", "step", "n", "difference", "ci95", "p", "level"})
    declared = proposal.model_dump(include={"metric", "margin", "steps"})
    return {
        "stream": stream,
        "proposal": proposal.number,
        "baseline": proposal.baseline.text,
        "candidate": proposal.candidate.text,
        **declared,
        **answered,
        "seeds": proposal.seeds_of_step(look.step) if look.step else [],
        "level_of_proposal": proposal.level,
        "estimate": estimate_json(measured.tested if measured else None),
    }


def next_json(proposed: Proposed, runs: Path) -> dict[str, Any] | None:
    if proposed.decision is not None:
        return None
    seeds = proposed.proposal.seeds_of_step(decisions.next_step(proposed))
    left = unfinished(decisions.seed_jobs(proposed.proposal, seeds), runs)
    cost = decisions.cost(proposed.proposal, left, runs)
    hours = None if "unknown" in cost.sources else cost.hours
    return {"seeds": len(seeds), "trials": len(left), "hours": hours, "unit": cost.unit}


def estimate_json(measured: Estimate | None) -> dict[str, Any] | None:
    if measured is None or measured.value is None:
        return None
    return {"n": measured.n, "difference": measured.value, "ci95": measured.interval()}


def answer_text(content: dict[str, Any], metric: Metric) -> str:
    lines = [
        f"{content['answer']}: {content['candidate']} instead of {content['baseline']}",
        f"  {content['reason']} (proposal {content['proposal']} of stream {content['stream']})",
    ]
    if content["difference"] is not None:
        text = f"  {change_text(content, metric)}; margin {margin_text(content['margin'], metric)}"
        if content["p"] is not None:
            text += f"; p {content['p']:.2g}, level {content['level']:.2g}"
        lines.append(text)
    if content["estimate"]:
        lines.append(f"  with fresh seeds: {change_text(content['estimate'], metric)}")
    return "\n".join(lines)


def change_text(content: dict[str, Any], metric: Metric) -> str:
    text = f"{metric.signed_text(content['difference'])}{metric.unit_of_difference}"
    if content["ci95"] is not None:
        low, high = metric.signed_interval(content["ci95"])
        text += f" ({low} to {high})"
    return f"{text}, n = {content['n']}"


def next_text(following: dict[str, Any] | None, where: str) -> str:
    if following is None:
        return f"next    ablate gate --log{where}"
    hours = "unknown time"
    if following["hours"] is not None:
        hours = estimate.hours_text(following["hours"], following["unit"])
    trials = amount_text(following["trials"], "trial")
    return f"next    the same command, to {following['seeds']} seeds: {trials}, {hours}"


# -- the log -----------------------------------------------------------------------------------------------------------


def show_log(runs: Path, as_json: bool) -> None:
    streams = gate_files.read_streams(runs)
    if not streams:
        raise ValueError(f"{runs}: no change was proposed there: ablate gate BASELINE CANDIDATE --margin X")
    logs = {name: log_json(stream, runs) for name, stream in streams.items()}
    if as_json:
        return show_json([*logs.values()])
    for name, content in logs.items():
        print(log_text(streams[name], content))


def log_json(stream: Stream, runs: Path) -> dict[str, Any]:
    return {
        "stream": stream.name,
        "metric": stream.proposals[0].proposal.metric,
        "baseline": stream.current.text,
        "next_level": decisions.next_level(stream),
        "proposals": [answer_json(proposed, stream.name, runs) for proposed in stream.proposals],
        "total": estimate_json(decisions.total_change(stream, runs)),
    }


def log_text(stream: Stream, content: dict[str, Any]) -> str:
    metric = decisions.metric_of(stream.proposals[0].proposal)
    lines = [answer_text(answered, metric) for answered in content["proposals"]]
    if content["total"]:
        kept = amount_text(len(stream.kept), "kept change")
        text = change_text(content["total"], metric)
        lines.append(f"{kept} against the first baseline: {text} fresh seeds each")
    lines.append(f"next BASELINE of stream {stream.name}: {content['baseline']}; level {content['next_level']:.2g}")
    return "\n".join(lines)
