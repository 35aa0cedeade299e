"""What a complete study leaves in its folder: its tables in every format, and its figure."""

from pathlib import Path

from results import plots, store, tables
from results.paths import refuse_links
from results.study import StudyResults

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
