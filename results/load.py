"""Reading results from where they are: a runs folder, or a file that `ablate export` wrote."""

from collections.abc import Collection, Sequence
from pathlib import Path

from results import store
from results.store import inspection_data, planned
from results.store.inspection_data import Inspection
from results.store.record import PARTS
from results.study_results import StudyResults, of_plans


def load_studies(
    source: Path,
    studies: Sequence[str] = (),
    parts: Collection[str] = PARTS,
) -> list[StudyResults]:
    """The named studies ("pooling": with every recipe; "pooling@digits"), or all, of a runs folder or export.

    parts: what to read of each trial of a runs folder besides its result; what is left out is empty.
    Raises ValueError where there is nothing, where a name is not there (naming what is), where the file is no
    export, and where either was written by a newer version.
    """
    if source.is_file():
        from results.export import read as read_export  # late: pulls in the Parquet reader

        found = read_export(source)
        wanted = set(planned.select([study.plan for study in found], studies, source))
        return sorted((s for s in found if s.name in wanted), key=lambda s: planned.order(s.plan, studies))
    return of_plans(source, planned.plans(source, studies), parts)


def load_inspections(source: Path, studies: Sequence[StudyResults]) -> dict[str, Inspection]:
    """Trial id -> what was found in it, of the first seed of every arm that was inspected; not damaged ones.

    source: a runs folder or an exported file.
    """
    if source.is_file():
        from results.export import read_inside  # late: pulls in the Parquet reader

        return read_inside(source)
    first = {arm["trials"][0]["id"] for study in studies for arm in study.plan["arms"]}
    inspections = {}
    for trial_id in sorted(first):
        try:
            inspections[trial_id] = inspection_data.read(store.trial(source, trial_id))
        except (FileNotFoundError, store.Broken):
            continue
    return inspections
