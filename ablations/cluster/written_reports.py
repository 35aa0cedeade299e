"""Check whether the tables and the report of a submitted study are up to date."""

from contextlib import suppress
from pathlib import Path

from results import store
from results.store.schemas import Plan


def is_pending(runs: Path, plan: Plan) -> bool:
    """Return whether a study's tables or the report lack a result or eval, judged by modification times."""
    files = [store.study_folder(runs, plan.name) / "tables" / "table.md", runs / "report.html"]
    trials = [store.trial(runs, trial.id).path for entry in plan.entries for trial in entry.trials]

    def modified_at(path: Path) -> float:
        with suppress(FileNotFoundError):  # another process may remove the file meanwhile
            return path.stat().st_mtime
        return 0.0

    newest = max((modified_at(path / name) for path in trials for name in ("result.json", "evals")), default=0.0)
    return min(map(modified_at, files)) < newest
