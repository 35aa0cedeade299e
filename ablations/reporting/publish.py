"""Write a complete study's tables in every format, and its figure, into its folder."""

from collections.abc import Sequence
from pathlib import Path

from results import report, store
from results.figures import plots
from results.load import load_inspections, load_studies
from results.store.paths import refuse_links
from results.study_results import StudyResults
from results.tables import layout, study_table
from results.tables.formats import FORMATS


def publish(study: StudyResults, runs: Path) -> str:
    """Write the study's tables and figure; return the table as text."""
    folder = store.study_folder(runs, study.name)
    refuse_links(runs, folder / "tables", folder / "figures")
    table = study_table.table(study)
    for name, format in FORMATS.items():
        store.write_bytes(folder / "tables" / f"table.{format.suffix}", f"{layout.render(table, name)}\n".encode())
    plots.draw(study, folder / "figures" / plots.file_name(study))
    return layout.render(table, "md")


def publish_all(runs: Path, plans: Sequence[str]) -> None:
    """Write tables, figures and the report, as `ablate run` and `ablate report` would."""
    studies = load_studies(runs, plans)
    for study in studies:
        publish(study, runs)
    report.write(studies, runs / "report.html", load_inspections(runs, studies))
