"""Tables, figures and a report of studies, written into the run directory."""

from collections.abc import Sequence
from pathlib import Path

from results import report, store
from results.figures import study_figure
from results.load import load_inspections, load_studies
from results.store.files import refuse_links
from results.study_results import StudyResults
from results.tables import layout, study_table
from results.tables.formats import TABLE_FORMATS


def publish(study: StudyResults, runs: Path) -> str:
    """Write a study's figure and its table in every format, and return the table as Markdown.

    Raises ValueError if a folder is a symbolic link, and OSError if writing fails.
    """
    folder = store.study_folder(runs, study.name)
    refuse_links(runs, folder / "tables", folder / "figures")
    table = study_table.table(study)
    for name, format in TABLE_FORMATS.items():
        store.write_bytes(folder / "tables" / f"table.{format.suffix}", f"{layout.render(table, name)}\n".encode())
    study_figure.draw(study, folder / "figures" / study_figure.file_name(study))
    return layout.render(table, "md")


def publish_all(runs: Path, plans: Sequence[str]) -> None:
    """Publish each study of the named plans, and write a report. Raises the errors of `publish` and `load_studies`."""
    studies = load_studies(runs, plans)
    for study in studies:
        publish(study, runs)
    report.write(studies, runs / "report.html", load_inspections(runs, studies))
