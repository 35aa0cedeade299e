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
from ablations.jobs import Job, jobs, matching_arms
from ablations.trainables.trainable import find
from results import export, store
from results.store import eval_files, plan_files
from results.store.eval_files import Inspection
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
    plan_by_name = {plan.name: plan for plan in plans}
    selected: list[str] = []
    for word, name in names.items():
        if name not in plan_by_name:
            selected.append(word)
            continue
        arms = matching_arms(plan_by_name[name], globs)
        first_ready = [next(filter(ready, arm.ids.values()), None) for arm in arms]
        if not any(first_ready):
            listed = ", ".join(arm.name for arm in arms)
            raise ValueError(f"{name}: no trial to inspect: {missing} (arms: {listed})")
        selected += filter(None, first_ready)
    return list(dict.fromkeys(selected))


def find_trial(runs: Path, prefix: str) -> store.Trial:
    """Return the trial whose id begins with `prefix`. Raises ValueError unless it is unique and has finished."""
    if not runs.is_dir():
        raise plan_files.missing_source(runs)
    trial_ids = sorted(path.name for path in (runs / "trials").glob("*") if path.is_dir())
    where = f"{runs}: it has {amount_text(len(trial_ids), 'trial')}, named by 12 hex digits"
    trial = store.trial(runs, unique_match(prefix, trial_ids, where))
    state = trial.state()
    if state.status != "finished":
        why = f" ({state.reason})" if state.reason else ""
        raise ValueError(f"trial {trial.id} has no weights to inspect: {state.status}{why}")
    return trial


def unique_match(prefix: str, trial_ids: Iterable[str], where: str) -> str:
    """Return the only id with this prefix. Raises ValueError unless there is exactly one. where: for errors."""
    matching = [trial_id for trial_id in trial_ids if prefix and trial_id.startswith(prefix)]
    if not matching:
        raise ValueError(f"no trial or study '{prefix}' in {where}")
    if len(matching) > 1:
        some = ", ".join(matching[:3])
        if len(matching) > 3:
            some += ", ..."
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
    planned = plan_files.planned_names(place.runs)
    names = {word: plan_files.known_name(name, planned) for word, name in names.items()}
    damaged = {*names.values()} & {*planned} - {plan.name for plan in plans}
    for name in damaged:
        store.read_plan(store.study_folder(place.runs, name) / "plan.json")  # raises its error

    def is_finished(trial_id: str) -> bool:
        return store.trial(place.runs, trial_id).state().status == "finished"

    selected = select_trials(names, plans, globs, is_finished, "none is finished")
    trials = [find_trial(place.runs, word) for word in selected]
    planned_jobs = jobs_by_id(plans, names.values())
    inspected: list[tuple[Inspection, Config]] = []
    for trial in trials:
        job = planned_jobs.get(trial.id)
        inspection = inspection_of(trial, place, images, job.trainable if job else "")
        inspected.append((replace(inspection, planned_as=job.name if job else ""), trial.config()))
    return inspected


def jobs_by_id(plans: Iterable[Plan], first: Collection[str]) -> dict[str, Job]:
    """Return trial id -> job. Plans named in `first` take precedence: the first plan names a shared trial."""
    named_first = sorted(plans, key=lambda plan: plan.name not in first)
    return {job.id: job for job in jobs(named_first)}


def read_from_export(file: Path, names: Mapping[str, str], globs: Sequence[str]) -> list[tuple[Inspection, Config]]:
    """Return (inspection, config) for each selected trial of an exported file, as `inspect_in_folder` does.

    Raises ValueError if a word names no trial with an inspection. Also raises it if the file is damaged or no export.
    """
    studies = export.read(file)
    inspections = export.read_inspections(file)
    configs: dict[str, str] = {}
    for study in studies:
        configs |= zip(study.columns["id"], study.columns["config"], strict=True)
    plans = [study.plan for study in studies]
    plan_names = [plan.name for plan in plans]
    names = {word: plan_files.known_name(name, plan_names) for word, name in names.items()}
    missing = f"{file} has no inspection of these arms; run `ablate inspect` before `ablate export`"
    selected = select_trials(names, plans, globs, inspections.__contains__, missing)
    planned_jobs = jobs_by_id(plans, names.values())
    where = f"{file}: it holds what `ablate inspect` found for {len(inspections)} of its trials"
    inspected: list[tuple[Inspection, Config]] = []
    for word in selected:
        trial_id = unique_match(word, sorted(inspections), where)
        job = planned_jobs.get(trial_id)
        inspection = replace(inspections[trial_id], planned_as=job.name if job else "")
        inspected.append((inspection, json.loads(configs[trial_id] or "{}")))
    return inspected


def distinct_labels(trials: Sequence[tuple[Inspection, Config]]) -> list[str]:
    """Return a label for each trial: its settings that differ between trials, such as "position=2d", or its id."""
    settings = [{**config, **config.get("options", {}), "options": None} for _, config in trials]
    first, *others = settings
    common = [key for key in first if all(key in other for other in others)]
    varied = [key for key in common if any(other[key] != first[key] for other in others)]
    if not varied:
        return [inspection.trial for inspection, _ in trials]
    return [", ".join(f"{key}={config[key]}" for key in varied) for config in settings]


def inspection_of(trial: store.Trial, place: Place, images: int | None, trainable: str) -> Inspection:
    """Return a trial's inspection. Computes it if it is missing, broken or from another number of images.

    trainable: of the trial, as module:attribute.
    """
    with suppress(FileNotFoundError, store.Broken):
        before = eval_files.read_inspection(trial)
        if images in (None, before.facts["asked"]):
            return before
    compute_eval(find(trainable), trial, "inspect", place.data_dir, place.code, images)
    return eval_files.read_inspection(trial)
