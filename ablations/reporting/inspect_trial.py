"""`ablate inspect`: which trial is meant, and its inside, computed where it is not there already."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from ablations.execution.launch import Place
from results import store
from results.store import inspection_data as inside
from results.store.inspection_data import Inspection

Json = dict[str, Any]
Config = Mapping[str, Any]  # as a trial's config.json has it


def meant(names: Mapping[str, str], plans: Iterable[Json], arm: str, ready: Callable[[str], bool]) -> list[str]:
    """The trials that words mean: of a study the first seed of each arm `ready` to be looked at, else the word itself.

    names: what a plan is called that each word may mean; arm: a glob. Raises ValueError where a study has none.
    """
    known = {plan["name"]: plan for plan in plans}
    found = []
    for word, name in names.items():
        if name not in known:
            found.append(word)
            continue
        arms = [one for one in known[name]["arms"] if fnmatchcase(one["name"], arm)]
        of_arms = [next(filter(ready, (trial["id"] for trial in one["trials"])), None) for one in arms]
        if not any(of_arms):
            there = ", ".join(one["name"] for one in arms or known[name]["arms"])
            raise ValueError(f"--arm {arm}: no trial of {name} to look at (arms: {there})")
        found += filter(None, of_arms)
    return list(dict.fromkeys(found))


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
        raise ValueError(f"no trial or study '{prefix}' in {where}")
    if len(matching) > 1:
        some = ", ".join(matching[:3]) + (", ..." if len(matching) > 3 else "")
        raise ValueError(f"trial '{prefix}' is not unique: {len(matching)} begin so ({some})")
    return matching[0]


def of_folder(place: Place, names: Mapping[str, str], arm: str, images: int | None) -> list[tuple[Inspection, Config]]:
    """What is found in the trials of a run directory that are `meant`, and what they are. Raises ValueError."""

    def finished(key: str) -> bool:
        return store.trial(place.runs, key).state().status == "finished"

    trials = [find(place.runs, word) for word in meant(names, store.plans(place.runs), arm, finished)]
    return [(look(trial, place, images), trial.config()["config"]) for trial in trials]


def of_export(file: Path, names: Mapping[str, str], arm: str) -> list[tuple[Inspection, Config]]:
    """What an exported file carries of those: what was found in them, and what they are. Raises ValueError."""
    from results import export  # late: pulls in the Parquet reader

    studies = export.read(file)
    configs = {
        trial: text
        for study in studies
        for trial, text in zip(study.columns["id"], study.columns["config"], strict=True)
    }
    carried = export.read_inside(file)
    where = f"{file}: of {len(carried)} of its trials it holds what `ablate inspect` found"
    words = meant(names, [study.plan for study in studies], arm, carried.__contains__)
    found = [carried[only(word, sorted(carried), where)] for word in words]
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
    from ablations.execution import evaluations  # late: looking again needs no torch

    compute = evaluations.inspect_eval if images is None else partial(evaluations.inspect_eval, images=images)
    evaluations.evaluate(trial, "inspect", place.data_dir, place.code, compute)
    return inside.read(trial)
