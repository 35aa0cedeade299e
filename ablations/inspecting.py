"""`ablate inspect`: which trial is meant, and its inside, computed where it is not there already."""

from functools import partial
from pathlib import Path

from ablations.launch import Place
from results import inside, store
from results.inside import Inspection


def find(runs: Path, prefix: str) -> store.Trial:
    """The one finished trial whose id begins so. Raises ValueError."""
    there = sorted(path.name for path in (runs / "trials").glob("*") if path.is_dir())
    matching = [name for name in there if name.startswith(prefix)] if prefix else []
    if not matching:
        raise ValueError(f"no trial '{prefix}' in {runs}: it has {len(there)} trials, named by 12 hex digits")
    if len(matching) > 1:
        some = ", ".join(matching[:3]) + (", ..." if len(matching) > 3 else "")
        raise ValueError(f"trial '{prefix}' is not unique: {len(matching)} begin so ({some})")
    trial = store.trial(runs, matching[0])
    state = trial.state()
    if state.status != "finished":
        why = f" ({state.reason})" if state.reason else ""
        raise ValueError(f"trial {trial.id} has no weights to look at: {state.status}{why}")
    return trial


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
