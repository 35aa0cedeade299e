"""Reading results from a run directory, or from a Parquet file that `ablate export` wrote."""

from collections.abc import Collection, Sequence
from pathlib import Path

from results import store
from results.store import eval_files, plan_files
from results.store.eval_files import Inspection
from results.store.record import PARTS
from results.study_results import StudyResults, load_plans


def load_studies(source: Path, studies: Sequence[str] = (), parts: Collection[str] = PARTS) -> list[StudyResults]:
    """Return the results of the named studies, or of all studies if `studies` is empty.

    source: run directory or Parquet export. studies: names such as "pooling" (every recipe) or "pooling@digits" (one
    recipe). parts: which of PARTS to read from a run directory besides results. Raises ValueError for an unknown name,
    a damaged plan, or a source that is missing, empty, damaged, too new or not an export.
    """
    results, damaged = load_readable(source, studies, parts)
    if damaged:
        raise damaged[0]
    return results


def load_readable(
    source: Path, studies: Sequence[str] = (), parts: Collection[str] = PARTS
) -> tuple[list[StudyResults], list[ValueError]]:
    """Return (the readable studies, the errors of damaged plans that `studies` does not name), as `load_studies`.

    Raises ValueError in its other cases, or if all plans are damaged.
    """
    if source.is_file():
        from results.export import read as read_export  # late: pulls in the Parquet reader

        exported = {study.name: study for study in read_export(source)}
        return [exported[name] for name in plan_files.select_names([*exported], studies, source)], []
    plans, damaged = plan_files.named_plans(source, studies)
    return load_plans(source, plans, parts), damaged


def load_inspections(source: Path, studies: Sequence[StudyResults]) -> dict[str, Inspection]:
    """Return trial id -> inspection for each arm's first finished seed, or for all inspections in an export.

    Missing and damaged inspections are left out. Raises ValueError if an export is damaged, or a newer version wrote
    it.
    """
    if source.is_file():
        from results.export import read_inspections  # late: pulls in the Parquet reader

        return read_inspections(source)
    inspections = {}
    for trial_id in sorted({trial_id for study in studies for _, trial_id in study.first_finished.values()}):
        try:
            inspections[trial_id] = eval_files.read_inspection(store.trial(source, trial_id))
        except (FileNotFoundError, store.Broken):
            continue
    return inspections
