"""Whether the tables and the report of a submitted study are there, and no older than its results."""

from pathlib import Path
from typing import Any

from results import store
from results.store.planned import trained

Json = dict[str, Any]


def is_pending(runs: Path, plan: Json) -> bool:
    """Whether they lack what a result says."""
    files = [store.study_folder(runs, plan["name"]) / "tables" / "table.md", runs / "report.html"]
    trials = [store.trial(runs, trial["id"]).path for entry in trained(plan) for trial in entry["trials"]]
    newest = max((modified(path / name) for path in trials for name in ("result.json", "evals")), default=0.0)
    return min(map(modified, files)) < newest


def modified(path: Path) -> float:
    """When, in seconds since the epoch; 0 for what is not there."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
