"""The inspections that `ablate inspect` draws, chosen by trial or study and computed if missing.

An inspection holds what was found in the weights of one trial, such as attention maps and filters.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ablations.execution.compute_eval import compute_eval
from ablations.execution.launch import Place
from ablations.jobs import jobs, matching_arms
from ablations.trainables.trainable import find
from results import store
from results.store import inspection_data as inside
from results.store import plan_files
from results.store.inspection_data import Inspection
from results.store.schemas import Plan
from results.units import amount_text

Config = Mapping[str, Any]  # setting -> value of a trial


def select_trials(
    names: Mapping[str, str], plans: Iterable[Plan], globs: Sequence[str], ready: Callable[[str], bool], missing: str
) -> list[str]:
    """Return the ids, or beginnings of ids, of the trials to inspect, without duplicates.

    names: user's word -> full name of the plan that it may stand for. A plan stands for the first ready trial of each
    arm that matches `globs`. Any other word is returned as it is. ready: returns whether the trial with an id can be
    inspected. missing: the reason in the error message. Raises ValueError if no trial of a plan's matching arms is
    ready, or a pattern matches no arm.
    """
    known = {plan.name: plan for plan in plans}
    found = []
    for word, name in names.items():
        if name not in known:
            found.append(word)
            continue
        arms = matching_arms(known[name], globs)
        of_arms = [next(filter(ready, one.ids.values()), None) for one in arms]
        if not any(of_arms):
            there = ", ".join(one.name for one in arms)
            raise ValueError(f"{name}: no trial to inspect: {missing} (arms: {there})")
        found += filter(None, of_arms)
    return list(dict.fromkeys(found))


def find_trial(runs: Path, prefix: str) -> store.Trial:
    """Return the trial whose id begins with `prefix`. Raises ValueError unless it is unique and has finished."""
    if not runs.is_dir():
        raise plan_files.missing_source(runs)
    there = sorted(path.name for path in (runs / "trials").glob("*") if path.is_dir())
    known = f"{runs}: it has {amount_text(len(there), 'trial')}, named by 12 hex digits"
    trial = store.trial(runs, unique_match(prefix, there, known))
    state = trial.state()
    if state.status != "finished":
        why = f" ({state.reason})" if state.reason else ""
        raise ValueError(f"trial {trial.id} has no weights to inspect: {state.status}{why}")
    return trial


def unique_match(prefix: str, there: Sequence[str], where: str) -> str:
    """Return the id in `there` with this prefix. Raises ValueError unless there is exactly one. where: for errors."""
    matching = [name for name in there if name.startswith(prefix)] if prefix else []
    if not matching:
        raise ValueError(f"no trial or study '{prefix}' in {where}")
    if len(matching) > 1:
        some = ", ".join(matching[:3]) + (", ..." if len(matching) > 3 else "")
        raise ValueError(f"trial '{prefix}' is not unique: {len(matching)} begin with it ({some})")
    return matching[0]


def inspect_in_folder(
    place: Place, names: Mapping[str, str], globs: Sequence[str], images: int | None
) -> list[tuple[Inspection, Config]]:
    """Return (inspection, config) for each selected trial of a run directory.

    names, globs: as in `select_trials`, but names may lack overrides. images: the number of test images to inspect
    with, or None if any number will do. Raises ValueError if a word names no trial that can be inspected, or if a trial
    or a named plan is damaged. Raises the errors of `compute_eval`.
    """
    plans = store.read_plans(place.runs).readable
    there = plan_files.planned_names(place.runs)
    names = {word: plan_files.known_name(name, there) for word, name in names.items()}
    unread = {*names.values()} & {*there} - {plan.name for plan in plans}
    for name in unread:
        store.read_plan(store.study_folder(place.runs, name) / "plan.json")  # raises its error

    def finished(key: str) -> bool:
        return store.trial(place.runs, key).state().status == "finished"

    words = select_trials(names, plans, globs, finished, "none is finished")
    trials = [find_trial(place.runs, word) for word in words]
    known = arms_and_seeds(plans, names.values())
    return [
        (replace(inspection_of(one, place, images), planned_as=known.get(one.id, "")), one.config()) for one in trials
    ]


def arms_and_seeds(plans: Iterable[Plan], first: Collection[str]) -> dict[str, str]:
    """Return trial id -> arm and seed, such as "position=2d seed 0". Plans named in `first` take precedence."""
    named = jobs(sorted(plans, key=lambda plan: plan.name not in first))  # the first plan names a shared trial
    return {job.id: f"{job.arm} seed {job.config['seed']}" for job in named}


def read_from_export(file: Path, names: Mapping[str, str], globs: Sequence[str]) -> list[tuple[Inspection, Config]]:
    """Return (inspection, config) for each selected trial of an exported file, as `inspect_in_folder` does.

    Raises ValueError if a word names no trial with an inspection. Also raises it if the file is damaged or no export.
    """
    from results import export  # imported here because it loads the Parquet reader

    studies = export.read(file)
    configs: dict[str, str] = {}
    for study in studies:
        configs |= zip(study.columns["id"], study.columns["config"], strict=True)
    carried = export.read_inspections(file)
    where = f"{file}: it holds what `ablate inspect` found for {len(carried)} of its trials"
    missing = f"{file} has no inspection of these arms; run `ablate inspect` before `ablate export`"
    plans = [study.plan for study in studies]
    names = {word: plan_files.known_name(name, [plan.name for plan in plans]) for word, name in names.items()}
    words = select_trials(names, plans, globs, carried.__contains__, missing)
    known = arms_and_seeds(plans, names.values())
    keys = [unique_match(word, sorted(carried), where) for word in words]
    found = [replace(carried[key], planned_as=known.get(key, "")) for key in keys]
    return [(one, json.loads(configs[one.trial] or "{}")) for one in found]


def distinct_labels(trials: Sequence[tuple[Inspection, Config]]) -> list[str]:
    """Return a label for each trial: its settings that differ between trials, such as "position=2d", or its id."""
    flat = [{**config, **config.get("options", {}), "options": None} for _, config in trials]
    common = [key for key in flat[0] if all(key in one for one in flat)]
    differ = [key for key in common if any(one[key] != flat[0][key] for one in flat)]
    named = [", ".join(f"{key}={one[key]}" for key in differ) for one in flat]
    return [name or inside.trial for name, (inside, _) in zip(named, trials, strict=True)]


def inspection_of(trial: store.Trial, place: Place, images: int | None) -> Inspection:
    """Return a trial's inspection. Computes it if it is missing, broken or from another number of images."""
    with suppress(FileNotFoundError, store.Broken):
        before = inside.read(trial)
        if images in (None, before.facts["asked"]):
            return before
    compute_eval(find(""), trial, "inspect", place.data_dir, place.code, images)
    return inside.read(trial)
