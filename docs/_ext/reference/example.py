"""The results in examples/: five studies on the recipe `digits`, which were trained once."""

from functools import cache
from pathlib import Path

from sphinx.application import Sphinx

from results import StudyResults, load_studies, report

REPORT = "example-report.html"
FILE = Path(__file__).parents[3] / "examples" / "digits.parquet"


@cache
def trained() -> dict[str, StudyResults]:
    return {study.plan.study: study for study in load_studies(FILE)}


def write_report(app: Sphinx, failure: Exception | None) -> None:
    """Write the report of all example studies beside the pages."""
    if failure is None and app.builder.format == "html":
        report.write(list(trained().values()), Path(app.outdir) / REPORT)
