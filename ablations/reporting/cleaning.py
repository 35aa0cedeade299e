"""Find and remove files that a run directory can do without. Results are never removed."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ablations.jobs import jobs
from results import store
from results.store import eval_files, lease
from results.store.files import refuse_links
from results.store.schemas import Entry, Plan

Keep = Literal["all", "baseline", "none"]


@dataclass(frozen=True)
class Waste:
    path: Path
    size: int  # in bytes
    why: str


def kept_weights(keep: Keep, plans: Iterable[Plan]) -> Callable[[str], bool]:
    """Return a function that takes a trial's id and returns whether the trial's final weights are kept.

    Weights of stages are always kept, because other trials start from them.
    """
    if keep == "all":
        return lambda trial_id: True
    entries: list[Entry] = []
    for plan in plans:
        entries += plan.stages
        if keep == "baseline":
            entries += [arm for arm in plan.arms if arm.name == arm.baseline]
    return {trial.id for entry in entries for trial in entry.trials}.__contains__


def find_waste(runs: Path, plans: Sequence[Plan], keep: Keep, scratch: Path | None = None) -> list[Waste]:
    """Return what can be removed: what finished and diverged trials do not need, and attempts that never began.

    keep: the trials whose final weights stay. The weights of trials that owe evals stay too. scratch: the folder of
    checkpoints if it is not in the run directory. Raises NewerSchema if a newer version wrote a trial.
    """
    owed = {job.id: job.evals for job in jobs(plans)}
    found, stays = list[Waste](), kept_weights(keep, plans)
    for path in store.sorted_paths(runs / "trials"):
        trial = store.Trial(path, scratch)
        state = trial.state()
        if state.is_over and state.attempt is not None:
            needed = eval_files.missing_evals(trial, owed.get(trial.id, ()), state.result)
            found += waste_of_finished(trial, state.attempt, stays(trial.id) or bool(needed))
        for claim in (path / "attempts").glob(".claim-*"):
            if lease.is_held(claim) is False:  # its process was killed before it renamed the claim to an attempt
                found.append(Waste(claim, size_on_disk(claim), "an attempt that never began"))
    return found


def remove(found: Sequence[Waste], *roots: Path) -> None:
    """Remove the files and folders in `found`. roots: the run directory and the folder of checkpoints.

    If a path is or goes through a link, raises ValueError before anything is removed. Raises OSError if removal fails.
    """
    for one in found:
        refuse_links(next(root for root in roots if one.path.is_relative_to(root)), one.path)
    for one in found:
        shutil.rmtree(one.path) if one.path.is_dir() else one.path.unlink()


def waste_of_finished(trial: store.Trial, winner: Path, keep_weights: bool) -> Iterator[Waste]:
    """Yield what a finished or diverged trial can do without. winner: the attempt with the trial's result."""
    weights = winner / "weights.safetensors"
    if not keep_weights and weights.exists():
        yield Waste(weights, size_on_disk(weights), "weights of a finished trial")
    for attempt in trial.attempts():
        if attempt != winner and lease.is_held(attempt) is False and not (attempt / store.RETRIED).exists():
            yield Waste(attempt, size_on_disk(attempt), "an attempt that was superseded")
        for folder in trial.checkpoint_folders(attempt):
            inside = folder.is_relative_to(attempt) and attempt != winner  # removed with the attempt
            if folder.exists() and not inside:
                yield Waste(folder, size_on_disk(folder), "checkpoints of a finished trial")


def size_on_disk(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
