"""`ablate inspect`: which trial is meant, and its inside, computed where it is not there already."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ablations.launch import Place
from results import inside, store
from results.inside import Inspection

Config = Mapping[str, Any]  # as a trial's config.json has it


def find(runs: Path, prefix: str) -> store.Trial:
    """The one finished trial whose id begins so. Raises ValueError."""
    if not runs.is_dir():
        raise ValueError(f"{runs}: no such run directory or exported file")
    there = sorted(path.name for path in (runs / "trials").glob("*") if path.is_dir())
    trial = store.trial(runs, only(prefix, there, f"{runs}: it has {len(there)} trials, named by 12 hex digits"))
    state = trial.state()
    if state.status != "finished":
        why = f" ({state.reason})" if state.reason else ""
        raise ValueError(f"trial {trial.id} has no weights to look at: {state.status}{why}")
    return trial


def only(prefix: str, there: Sequence[str], where: str) -> str:
    """The one of the ids that begins so. Raises ValueError, which says `where` there is none."""
    matching = [name for name in there if name.startswith(prefix)] if prefix else []
    if not matching:
        raise ValueError(f"no trial '{prefix}' in {where}")
    if len(matching) > 1:
        some = ", ".join(matching[:3]) + (", ..." if len(matching) > 3 else "")
        raise ValueError(f"trial '{prefix}' is not unique: {len(matching)} begin so ({some})")
    return matching[0]


def found_in(place: Place, prefixes: Sequence[str], images: int | None) -> list[tuple[Inspection, Config]]:
    """What is found in these trials of a run directory, and what they are. Raises ValueError."""
    trials = [find(place.runs, prefix) for prefix in prefixes]
    return [(look(trial, place, images), trial.config()["config"]) for trial in trials]


def exported(file: Path, prefixes: Sequence[str]) -> list[tuple[Inspection, Config]]:
    """What an exported file carries of these trials: what was found in them, and what they are. Raises ValueError."""
    from results import export  # late: pulls in the Parquet reader

    studies = export.read(file)
    configs = {
        trial: text
        for study in studies
        for trial, text in zip(study.columns["id"], study.columns["config"], strict=True)
    }
    carried = export.read_inside(file)
    where = f"{file}: of {len(carried)} of its trials it holds what `ablate inspect` found"
    found = [carried[only(prefix, sorted(carried), where)] for prefix in prefixes]
    return [(one, json.loads(configs[one.trial] or "{}")) for one in found]


def told_apart(trials: Sequence[tuple[Inspection, Config]]) -> list[str]:
    """What to call each beside the others: the settings that all have and in which they differ, else its id.

    An option that only one has follows from a part that only one has.
    """
    flat = [{**config, **config.get("options", {}), "options": None} for _, config in trials]
    common = [key for key in flat[0] if all(key in one for one in flat)]
    differ = [key for key in common if any(one[key] != flat[0][key] for one in flat)]
    named = [", ".join(f"{key}={one[key]}" for key in differ) for one in flat]
    return [name or inside.trial for name, (inside, _) in zip(named, trials, strict=True)]


def look(trial: store.Trial, place: Place, images: int | None) -> Inspection:
    """As it was computed before, unless another number of images is asked for."""
    try:
        before = inside.read(trial)
        if images in (None, before.facts["asked"]):
            return before
    except (FileNotFoundError, store.Broken):
        pass
    from ablations import evaluating  # late: looking again needs no torch

    compute = evaluating.look if images is None else partial(evaluating.look, images=images)
    evaluating.evaluate(trial, "inspect", place.data_dir, place.code, compute)
    return inside.read(trial)
