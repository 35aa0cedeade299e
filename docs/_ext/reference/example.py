"""The results in examples/, of studies that were trained once."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from sphinx.application import Sphinx

from results import StudyResults, load_studies, report

REPORT = "example-report.html"
FOLDER = Path(__file__).parents[3] / "examples"
DEMO = "digits.parquet"  # the five studies of `make demo`


@cache
def trained() -> dict[str, list[StudyResults]]:
    """Return the studies in each file of examples/, those of the demo first."""
    files = sorted(FOLDER.glob("*.parquet"), key=lambda path: (path.name != DEMO, path.name))
    return {path.name: load_studies(path) for path in files}


def results_of(study: str) -> Iterator[tuple[str, StudyResults]]:
    """Yield (file, results) for each recipe that a study was trained on."""
    for file, studies in trained().items():
        for results in studies:
            if results.plan.study == study:
                yield file, results


def write_report(app: Sphinx, failure: Exception | None) -> None:
    """Write the report of the demo's studies beside the pages."""
    if failure is None and app.builder.format == "html":
        report.write(trained()[DEMO], Path(app.outdir) / REPORT)
