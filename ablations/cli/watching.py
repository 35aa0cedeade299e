"""The commands `ablate status`, `logs` and `clean`, which show trials and remove files that nothing needs."""

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from ablations.cli.answer import print_damaged, show_json
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import folder_options, read_ablate_toml, runs_folder, scratch
from ablations.cli.inputs.plan_names import checked_names, trial_ids
from ablations.cli.inputs.words import parse_words
from ablations.cluster.arrays import DAY, SubmittedArray, log_lines, task_arrays
from ablations.cluster.campaign import Campaign, campaigns, modified_at
from ablations.execution.retry_rules import read_or_none
from ablations.jobs import Keep, jobs, kept_weights
from ablations.output import log_end
from ablations.status import view as status_view
from ablations.status.slurm_answers import RateLimitedAsker, newest_campaigns
from ablations.status.study_status import study_status
from ablations.status.view import Statuses
from ablations.trainables.trainable import find
from commonfloor.files import refuse_links
from results import store
from results.store import eval_files, gate_files, lease, plan_files
from results.store.schemas.plans import Plan
from results.store.schemas.trials import Environment

NO_LOG = "no log yet: its job has not started, or ended before it could write (`ablate status`)"


def status(
    words: parameters.Names = None,
    recipe: parameters.PlannedRecipe = None,
    runs: parameters.Runs = None,
    watch: Annotated[bool, parameters.flag("--watch", "Refresh until all trials are done, or Ctrl-C.", "-w")] = False,
    as_json: parameters.AsJson = False,
) -> None:
    """Show which trials are done, running or failed.

    Changes nothing, and works without SLURM. Reads the disk first, then SLURM's queue, then its accounting. What
    does not answer within seconds is shown as unknown. --watch reads the disk every few seconds and asks SLURM once
    a minute.

    Examples:

        ablate status
        ablate status position-embedding --recipe cifar10 --watch
    """
    if as_json and watch:
        raise ValueError("--watch: leave out --json")
    folder = runs_folder(runs)
    where = folder_options(runs)
    asker = RateLimitedAsker(folder)
    names = checked_names(parse_words(words, recipe), folder)
    if not plan_files.planned_names(folder) and (folder / gate_files.FOLDER).is_dir():
        raise ValueError(f"{folder}: no study has been run here; `ablate gate --log{where}` shows proposed changes")

    def read() -> Statuses:
        plans, damaged = plan_files.named_plans(folder, names)
        answers = asker()
        return [study_status(plan, folder, answers) for plan in plans], damaged

    studies, damaged = status_view.show_live(read, where) if watch else read()
    with print_damaged(damaged):
        if as_json:
            show_json(studies)
        else:
            Console().print(status_view.render(studies, where), soft_wrap=True, highlight=False)


def logs(
    words: parameters.StudiesOrTrials,
    recipe: parameters.PlannedRecipe = None,
    runs: parameters.Runs = None,
    arm: parameters.ArmGlobs = parameters.ALL_ARMS,
    failed: Annotated[bool, parameters.flag("--failed", "Show failed trials only.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Lines to print of each log.")] = 20,
    as_json: parameters.AsJson = False,
) -> None:
    """Print the end of each trial's log.

    Adds the traceback of a failure. For a trial that never began or was interrupted, also prints the log of its SLURM
    task.

    Examples:

        ablate logs position-embedding --failed
        ablate logs 3f2a9c01b7de --lines 100
    """
    folder = runs_folder(runs)
    shown = list(tails(folder, trial_ids(folder, parse_words(words, recipe), arm), lines, failed))
    if as_json:
        return show_json([{"logs": shown}])
    for tail in shown:
        print(tail)
    if not shown:
        print("nothing has failed" if failed else "nothing has begun", file=sys.stderr)


@dataclass(frozen=True)
class Tail:
    """The last lines of the log of an attempt or of a SLURM task."""

    trial: str
    arm: str | None  # None if the trial is in no plan
    seed: int | None
    status: str
    path: str  # the folder of the attempt or the array
    lines: list[str]
    of: Literal["attempt", "task"] = "attempt"
    silent_after: int = 0  # the number of newer tasks that printed nothing

    def __str__(self) -> str:
        name = "" if self.arm is None else f"{self.arm} seed {self.seed}"
        heading = f"== {self.trial}  {name}  {self.status}"
        if self.of == "task":
            heading += ", its task:"
        heading += f"  {self.path}"
        if self.silent_after:
            heading += f" (newer tasks that printed nothing: {self.silent_after})"
        return "\n".join([heading, *self.lines])


def tails(runs: Path, trial_ids: Sequence[str], lines: int, only_failed: bool) -> Iterator[Tail]:
    """Yield the last `lines` lines of each trial's logs. The log of a submission's tasks is yielded once."""
    planned = {job.id: job for job in jobs(store.read_plans(runs).readable)}
    campaign_of = newest_campaigns(campaigns(runs))
    shown_arrays: set[Path] = set()
    for trial_id in trial_ids:
        trial = store.trial(runs, trial_id)
        state = trial.state()
        campaign = campaign_of.get(trial_id)
        if state.status not in ("missing", "interrupted"):
            campaign = None  # the trial's own log says what happened
        if only_failed and state.status != "failed" and not (campaign and died_early(campaign)):
            continue
        arm = seed = None
        if trial_id in planned:
            arm = planned[trial_id].arm
            seed = int(planned[trial_id].config["seed"])
        if state.attempt is not None:
            text = log_end(state.attempt / "log")
            failure = trial.failure()
            if failure:
                text += failure.traceback
            yield Tail(trial_id, arm, seed, state.status, str(state.attempt), text.splitlines()[-lines:])
        if campaign:
            array, silent = newest_array_with_output(campaign)
            if array.folder not in shown_arrays:
                shown_arrays.add(array.folder)
                printed = (log_lines(array.folder) or [NO_LOG])[-lines:]
                yield Tail(trial_id, arm, seed, state.status, str(array.folder), printed, "task", silent)


def newest_array_with_output(campaign: Campaign) -> tuple[SubmittedArray, int]:
    """Return (the newest array whose tasks printed anything, else the newest; the number of newer arrays)."""
    newest_first = task_arrays(campaign)[::-1]
    for newer, array in enumerate(newest_first):
        if log_lines(array.folder):
            return array, newer
    return newest_first[0], 0


def died_early(campaign: Campaign) -> bool:
    newest = task_arrays(campaign)[-1]
    return bool(log_lines(newest.folder)) and not (newest.folder / "nodes").exists()


@dataclass(frozen=True)
class Waste:
    path: Path
    bytes: int
    why: str


def clean(
    runs: parameters.Runs = None,
    keep_weights: parameters.Keeping = None,
    checkpoints: parameters.Checkpoints = None,
    yes: Annotated[bool, parameters.flag("--yes", "Remove them; otherwise they are only listed.", "-y")] = False,
    as_json: parameters.AsJson = False,
) -> None:
    """List or remove files that nothing needs.

    These are checkpoints of finished trials, attempts that were superseded or never began, submissions that were
    never complete, and weights that --keep-weights does not keep. Results always stay. Nothing is removed without
    --yes.

    Examples:

        ablate clean
        ablate clean --keep-weights baseline --yes
    """
    folder = runs_folder(runs)
    if runs is not None and not folder.is_dir():
        raise ValueError(f"--runs {folder}: no such run directory")
    here = read_ablate_toml()
    checkpoint_folder = scratch(checkpoints or here.checkpoints)
    keep = keep_weights or here.keep_weights
    plans, damaged = store.read_plans(folder)
    with print_damaged(damaged):
        if damaged and keep != "all":
            print(f"ablate: --keep-weights {keep}: all weights stay, which a damaged plan may need", file=sys.stderr)
            keep = "all"
        waste = find_waste(folder, plans, keep, checkpoint_folder)
        if not as_json:
            for item in waste:
                print(f"{item.bytes / 1e6:10.2f} MB  {item.path}  ({item.why})")
        if yes:
            remove(waste, folder, checkpoint_folder)
        total = sum(item.bytes for item in waste)
        if as_json:
            show_json([{"files": waste, "bytes": total, "removed": yes}])
        elif waste:
            done = ", removed" if yes else "; remove with --yes"
            print(f"{total / 1e6:10.2f} MB in all{done}")
        else:
            print("nothing to remove")


def find_waste(runs: Path, plans: Sequence[Plan], keep: Keep, scratch: Path | None = None) -> list[Waste]:
    """Return what can be removed: what ended trials do not need, attempts that never began, parts of submissions."""
    planned = {job.id: job for job in jobs(plans)}
    keeps_weights = kept_weights(keep, plans)
    waste: list[Waste] = []
    for path in store.sorted_paths(runs / "trials"):
        trial = store.Trial(path, scratch)
        state = trial.state()
        if state.is_over and state.attempt is not None:
            job = planned.get(trial.id)
            missing_evals = eval_files.missing_evals(trial, job.evals if job else (), state.result)
            keep_weights = keeps_weights(trial.id) or bool(missing_evals)
            waste += waste_of_finished(trial, state.attempt, keep_weights)
            if job and not keep_weights:
                leftovers = find(job.trainable).leftovers(state.attempt)
                waste += [Waste(path, size_on_disk(path), "a large file of a finished trial") for path in leftovers]
        for claim in (path / "attempts").glob(".claim-*"):
            if lease.is_held(claim) is False:  # its process was killed before it renamed the claim to an attempt
                waste.append(Waste(claim, size_on_disk(claim), "an attempt that never began"))
    for partial in (runs / "submissions").glob(".*-*"):
        if time.time() - modified_at(partial) > DAY:  # its process was killed, or has renamed it by now
            waste.append(Waste(partial, size_on_disk(partial), "a submission that was never complete"))
    return waste


def remove(waste: Sequence[Waste], runs: Path, scratch: Path | None = None) -> None:
    """Remove files and folders. scratch: the folder of checkpoints if it is not in the run directory."""
    for item in waste:
        root = runs if scratch is None or item.path.is_relative_to(runs) else scratch
        refuse_links(root, item.path)
    for item in waste:
        if item.path.is_dir():
            shutil.rmtree(item.path)
        else:
            item.path.unlink()


def waste_of_finished(trial: store.Trial, winner: Path, keep_weights: bool) -> Iterator[Waste]:
    """Yield what a finished or diverged trial can do without. winner: the attempt with the trial's result."""
    weights = winner / "weights.safetensors"
    if not keep_weights and weights.exists():
        yield Waste(weights, size_on_disk(weights), "weights of a finished trial")
    recorded = resumed_attempts(winner)
    for attempt in trial.attempts():
        is_superseded = attempt != winner and lease.is_held(attempt) is False
        if is_superseded and attempt in recorded:
            for path in attempt.glob("*weights.safetensors*"):  # it was killed as it wrote them, or before its result
                yield Waste(path, size_on_disk(path), "weights of an attempt that was superseded")
        elif is_superseded and not (attempt / store.RETRIED).exists():
            yield Waste(attempt, size_on_disk(attempt), "an attempt that was superseded")
        for folder in trial.checkpoint_folders(attempt):
            inside = folder.is_relative_to(attempt) and attempt not in recorded  # removed with the attempt
            if folder.exists() and not inside:
                yield Waste(folder, size_on_disk(folder), "checkpoints of a finished trial")


def resumed_attempts(winner: Path) -> list[Path]:
    """Return an attempt and those that it resumed from, whose machines and code tables name."""
    attempts = [winner]
    env = read_or_none(winner / "env.json", Environment)
    while env and env.resumed_from and winner.with_name(env.resumed_from.attempt) not in attempts:
        attempts.append(winner.with_name(env.resumed_from.attempt))
        env = read_or_none(attempts[-1] / "env.json", Environment)
    return attempts


def size_on_disk(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
