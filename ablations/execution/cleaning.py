"""What a run directory could do without: said first, removed only when asked. No result is ever among it."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from results import store
from results.store import evals, lease
from results.store.paths import refuse_links
from results.store.planned import evals_of, trained

Json = dict[str, Any]
Keep = Literal["all", "baseline", "none"]


@dataclass(frozen=True)
class Waste:
    """A file or folder, its size, and why nobody needs it."""

    path: Path
    size: int
    why: str


def keeps(keep: Keep, trial_id: str, plans: Iterable[Json]) -> bool:
    """Whether a trial's weights are kept, as they are where others start from them; plans are looked at if need be."""
    return keep == "all" or trial_id in kept(keep, plans)


def kept(keep: Keep, plans: Iterable[Json]) -> set[str]:
    """The trials whose weights are kept where not all are: looked up once for many."""
    known = list(plans)
    return stages(known) | (baselines(known) if keep == "baseline" else set())


def stages(plans: Iterable[Json]) -> set[str]:
    """The trials that others start from."""
    return {trial["id"] for plan in plans for stage in plan.get("stages", []) for trial in stage["trials"]}


def baselines(plans: Iterable[Json]) -> set[str]:
    """The trials of every plan's baselines."""
    return {trial["id"] for plan in plans for arm in plan["arms"] if is_baseline(arm) for trial in arm["trials"]}


def waste(runs: Path, plans: Sequence[Json], keep: Keep, scratch: Path | None = None) -> list[Waste]:
    """Everything that may go: of finished trials the weights not kept, and what lost attempts left behind."""
    owed: dict[str, list[str]] = {}
    for plan in plans:
        for entry in trained(plan):
            for planned in entry["trials"]:
                owed.setdefault(planned["id"], []).extend(evals_of(entry, plan))
    found, stay = list[Waste](), kept(keep, plans)
    for path in store.listed(runs / "trials"):
        trial = store.Trial(path, scratch)
        state = trial.state()
        if state.over and state.attempt is not None:
            needed = evals.left(trial, owed.get(trial.id, []), state.result)
            mine = keep == "all" or trial.id in stay or bool(needed)
            found += list(of_finished(trial, state.attempt, mine))
        found += [Waste(one, size(one), "an attempt that never began") for one in stale_claims(trial)]
    return found


def remove(found: Sequence[Waste], *roots: Path) -> None:
    """Removes all of it. Raises ValueError, and removes nothing, where a link leads out of the roots."""
    for one in found:
        refuse_links(next(root for root in roots if one.path.is_relative_to(root)), one.path)
    for one in found:
        shutil.rmtree(one.path) if one.path.is_dir() else one.path.unlink()


def is_baseline(arm: Json) -> bool:
    return bool(arm["name"] == arm["baseline"])


def of_finished(trial: store.Trial, winner: Path, keep_weights: bool) -> Iterator[Waste]:
    weights = winner / "weights.safetensors"
    if not keep_weights and weights.exists():
        yield Waste(weights, size(weights), "weights of a finished trial")
    for attempt in trial.attempts():
        if attempt != winner and lease.held(attempt) is False and not (attempt / store.RETRIED).exists():
            yield Waste(attempt, size(attempt), "an attempt that was superseded")
        for folder in trial.checkpoint_folders(attempt):
            inside = folder.is_relative_to(attempt) and attempt != winner  # goes with the attempt
            if folder.exists() and not inside:
                yield Waste(folder, size(folder), "checkpoints of a finished trial")


def stale_claims(trial: store.Trial) -> list[Path]:
    """Claims that were killed before the rename that makes them an attempt."""
    staged = (trial.path / "attempts").glob(".claim-*")
    return [path for path in staged if lease.known(lease.read(path)) is False]


def size(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
