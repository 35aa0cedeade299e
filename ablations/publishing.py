"""What a complete study leaves in its folder: its tables in every format, and its figure."""

from collections.abc import Sequence
from pathlib import Path

from results import inside, plots, report, store, tables
from results.paths import refuse_links
from results.study import StudyResults, load

FORMATS = {"md": "md", "latex": "tex", "csv": "csv", "json": "json", "html": "html"}  # format: suffix


def publish(study: StudyResults, runs: Path) -> str:
    """Writes them; returns the table for a person."""
    folder = store.study_folder(runs, study.name)
    refuse_links(runs, folder / "tables", folder / "figures")
    table = tables.table(study)
    for format, suffix in FORMATS.items():
        store.write_bytes(folder / "tables" / f"table.{suffix}", f"{tables.render(table, format)}\n".encode())
    plots.draw(study, folder / "figures" / plots.file_name(study))
    return tables.render(table, "md")


def publish_all(runs: Path, plans: Sequence[str]) -> None:
    """Tables, figures and the report, as `ablate run` and `ablate report` would write them."""
    studies = load(runs, plans)
    for study in studies:
        publish(study, runs)
    report.write(studies, runs / "report.html", inside.found(runs, studies))
