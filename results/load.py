"""Load results from a run directory or from a file that `ablate export` wrote."""

from collections.abc import Collection, Sequence
from pathlib import Path

from results import store
from results.store import inspection_data, planned
from results.store.inspection_data import Inspection
from results.store.record import PARTS
from results.study_results import StudyResults, load_plans


def load_studies(
    source: Path,
    studies: Sequence[str] = (),
    parts: Collection[str] = PARTS,
) -> list[StudyResults]:
    """Load the named studies, or all of them.

    studies: "pooling" for every recipe, "pooling@digits" for one. parts: what to read of each trial besides its result;
    the rest stays empty. Raises ValueError for an unknown name, an empty source, a file that is no export, or a newer
    version.
    """
    if source.is_file():
        from results.export import read as read_export  # late: pulls in the Parquet reader

        found = {study.name: study for study in read_export(source)}
        return [found[name] for name in planned.select([study.plan for study in found.values()], studies, source)]
    return load_plans(source, planned.plans(source, studies), parts)


def load_inspections(source: Path, studies: Sequence[StudyResults]) -> dict[str, Inspection]:
    """Map trial id to the inspection of each arm's first finished seed; damaged ones are left out."""
    if source.is_file():
        from results.export import read_inspections  # late: pulls in the Parquet reader

        return read_inspections(source)
    inspections = {}
    for trial_id in sorted({trial_id for study in studies for _, trial_id in study.first_finished.values()}):
        try:
            inspections[trial_id] = inspection_data.read(store.trial(source, trial_id))
        except (FileNotFoundError, store.Broken):
            continue
    return inspections
