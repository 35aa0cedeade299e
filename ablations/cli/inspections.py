"""The command `ablate inspect`, which draws inspections, chosen by trial or study and computed if missing."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ablations.cli.answer import show_json
from ablations.cli.figures import FigureFormat, figures_folder, is_file_name
from ablations.cli.inputs import parameters
from ablations.cli.inputs.directories import make_place, source_path
from ablations.cli.inputs.plan_names import plan_names
from ablations.cli.inputs.sources import styled
from ablations.cli.inputs.words import parse_words
from ablations.execution.compute_eval import compute_eval
from ablations.execution.launch import Place
from ablations.jobs import Job, jobs, matching_arms
from ablations.trainables.trainable import VIT, find
from commonfloor.files import safe_name
from results import export, store
from results.figures import inspection as drawing
from results.store import eval_files, plan_files
from results.store.eval_files import Inspection
from results.store.schemas.plans import Plan
from results.tables import formats
from results.units import amount_text

Config = Mapping[str, Any]  # setting -> value of a trial


def inspect(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="TRIAL|STUDY",
            help="Finished trials, by id or the beginning of one; or studies, by name or file, for the first seed of "
            "every arm. The positions of several trials are also drawn side by side.",
        ),
    ],
    recipe: parameters.PlannedRecipe = None,
    arm: parameters.ArmGlobs = parameters.ALL_ARMS,
    runs: parameters.Source = None,
    out: Annotated[
        Path | None,
        parameters.out_option(
            "DIR",
            "A folder; several trials get a folder each.",
            "figures/ in each trial's folder; ./figures for an exported file and for positions side by side",
        ),
    ] = None,
    images: Annotated[int | None, typer.Option(min=1, help="How many test images to use.", show_default="128")] = None,
    format: Annotated[FigureFormat, typer.Option("--format", "-f", help="The file format.")] = "png",
    style: parameters.StyleFile = None,
    plugin: parameters.Plugins = None,
    data_dir: parameters.DataDir = None,
    as_json: parameters.AsJson = False,
) -> None:
    """Draw filters, positions and attention of trials.

    Computes these from the weights of finished trials, and prints a table of each trial's layers. For an exported file,
    draws what was computed before the export, which needs no torch.

    Examples:

        ablate inspect position-embedding
        ablate inspect 3f2a9c01b7de --images 512 --format pdf
    """
    source = source_path(runs)
    if source.is_file() and images is not None:
        raise ValueError(f"--images {images}: not with {source}, which holds only what was computed before")
    if out and is_file_name(out, None):
        raise ValueError(f"--out {out}: several figures go to a folder; --format says how they are drawn")
    with styled(style, source):
        request = parse_words(words, recipe)
        names = dict(zip(request.studies, plan_names(request, source) or request.studies, strict=True))
        if source.is_file():
            inspected = of_export(source, names, arm)
        else:
            inspected = of_run_directory(make_place(runs, data_dir, plugin), names, arm, images)
        inspections = [inspection for inspection, _ in inspected]
        figures = []
        for inspection in inspections:
            folder = inspection_folder(inspection.trial, source, out, len(inspections) > 1)
            figures.append(drawing.draw(inspection, folder, format))
        labels = distinct_labels(inspected)
        beside = drawing.draw_side_by_side(inspections, labels, out or Path("figures"), format)
        if as_json:
            contents = []
            for inspection, paths in zip(inspections, figures, strict=True):
                contents.append({"trial": inspection.trial, "figures": [*paths, *beside], **inspection.facts})
            show_json(contents)
        else:
            print_inspections(inspections, figures, beside)


def inspection_folder(trial: str, source: Path, out: Path | None, several: bool) -> Path:
    if out is None and source.is_dir():
        return figures_folder(source.absolute(), "trials", trial)
    folder = out or Path("figures")
    return folder / safe_name(trial) if several else folder


def print_inspections(
    inspections: Sequence[Inspection], figures: Sequence[Sequence[Path]], beside: Sequence[Path]
) -> None:
    for inspection, paths in zip(inspections, figures, strict=True):
        notes = [site["note"] for site in inspection.facts["sites"] if not site["site"]]
        print("\n".join([formats.markdown(drawing.layer_grid(inspection)), "", *notes, *map(str, paths)]))
    for path in beside:
        print(path)
    if len(inspections) > 1 and not beside:
        print("not drawn side by side: no two of these trials have a map of the same kind", file=sys.stderr)


def select_trials(
    names: Mapping[str, str], plans: Iterable[Plan], globs: Sequence[str], is_ready: Callable[[str], bool], missing: str
) -> list[str]:
    """Return the ids, or beginnings of ids, that words name. A plan stands for its arms' first ready trials."""
    plan_by_name = {plan.name: plan for plan in plans}
    selected: list[str] = []
    for word, name in names.items():
        if name not in plan_by_name:
            selected.append(word)
            continue
        arms = matching_arms(plan_by_name[name], globs)
        ready = []
        for arm in arms:
            ready += list(filter(is_ready, arm.ids.values()))[:1]
        if not ready:
            listed = ", ".join(arm.name for arm in arms)
            raise ValueError(f"{name}: no trial to inspect: {missing} (arms: {listed})")
        selected += ready
    return list(dict.fromkeys(selected))


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


def selected(
    names: Mapping[str, str],
    plans: Sequence[Plan],
    globs: Sequence[str],
    is_ready: Callable[[str], bool],
    missing: str,
    trial_ids: Sequence[str],
    where: str,
) -> dict[str, Job | None]:
    """Return the trials to inspect: id -> its job, if it is planned. trial_ids: what a word may begin."""
    words = select_trials(names, plans, globs, is_ready, missing)
    # Plans that are named come first: a shared trial is called as in the first.
    planned = {job.id: job for job in jobs(sorted(plans, key=lambda plan: plan.name not in names.values()))}
    chosen: dict[str, Job | None] = {}
    for word in words:
        trial_id = unique_match(word, trial_ids, where)
        chosen[trial_id] = planned.get(trial_id)
    return chosen


def of_run_directory(
    place: Place, names: Mapping[str, str], globs: Sequence[str], images: int | None
) -> list[tuple[Inspection, Config]]:
    """Return the inspections in a run directory, computed if they are missing. images: None if any number will do."""
    runs = place.runs
    if not runs.is_dir():
        raise plan_files.missing_source(runs)
    for name in {*names.values()} & {*plan_files.planned_names(runs)}:
        store.read_plan(store.study_folder(runs, name) / "plan.json")  # raises its error if it is damaged
    trial_ids = [path.name for path in store.sorted_paths(runs / "trials")]
    where = f"{runs}: it has {amount_text(len(trial_ids), 'trial')}, named by 12 hex digits"

    def is_finished(trial_id: str) -> bool:
        return store.trial(runs, trial_id).state().status == "finished"

    plans = store.read_plans(runs).readable
    inspected: list[tuple[Inspection, Config]] = []
    for trial_id, job in selected(names, plans, globs, is_finished, "none is finished", trial_ids, where).items():
        trial = store.trial(runs, trial_id)
        state = trial.state()
        if state.status != "finished":
            why = f" ({state.reason})" if state.reason else ""
            raise ValueError(f"trial {trial_id} has no weights to inspect: {state.status}{why}")
        inspected.append((named(inspection_of(trial, job, place, images), job), trial.config()))
    return inspected


def named(inspection: Inspection, job: Job | None) -> Inspection:
    return inspection if job is None else replace(inspection, planned_as=job.name)


def inspection_of(trial: store.Trial, job: Job | None, place: Place, images: int | None) -> Inspection:
    """Return a trial's inspection. Computes it if it is missing, broken or from another number of images."""
    with suppress(FileNotFoundError, store.Broken):
        before = eval_files.read_inspection(trial)
        if images in (None, before.facts["asked"]):
            return before
    if job is not None and job.trainable:
        raise ValueError(f"trial {trial.id}: this recipe's trainable has no inspections: only Vision Transformers have")
    compute_eval(find(VIT), trial, "inspect", place.data_dir, place.code, images)
    return eval_files.read_inspection(trial)


def of_export(file: Path, names: Mapping[str, str], globs: Sequence[str]) -> list[tuple[Inspection, Config]]:
    studies = export.read(file)
    inspections = export.read_inspections(file)
    configs: dict[str, str] = {}
    for study in studies:
        configs |= zip(study.columns["id"], study.columns["config"], strict=True)
    plans = [study.plan for study in studies]
    missing = f"{file} has no inspection of these arms; run `ablate inspect` before `ablate export`"
    where = f"{file}: it holds what `ablate inspect` found for {len(inspections)} of its trials"
    chosen = selected(names, plans, globs, inspections.__contains__, missing, sorted(inspections), where)
    inspected: list[tuple[Inspection, Config]] = []
    for trial_id, job in chosen.items():
        inspected.append((named(inspections[trial_id], job), json.loads(configs[trial_id] or "{}")))
    return inspected


def distinct_labels(trials: Sequence[tuple[Inspection, Config]]) -> list[str]:
    """Return a label for each trial: its settings that differ between trials, such as "position=2d", or its id."""
    settings = []
    for _, config in trials:
        settings.append({**config, **config.get("options", {}), "options": None})
    varied = []
    for key, value in settings[0].items():
        if all(key in other for other in settings) and any(other[key] != value for other in settings):
            varied.append(key)
    labels = []
    for (inspection, _), config in zip(trials, settings, strict=True):
        label = ", ".join(f"{key}={config[key]}" for key in varied)
        labels.append(label or inspection.trial)
    return labels
