"""The exported example: whole, and readable by today's code."""

from pathlib import Path

from results.load import load_studies
from results.tables import study_table

FILE = Path(__file__).parents[2] / "examples" / "digits.parquet"
STUDIES = ["position-embedding", "pooling", "patch-size", "data-fraction", "hybrid-stem"]


def test_the_example_holds_the_studies_of_make_demo() -> None:
    """Every planned trial is finished, in a file of a few hundred KB."""
    makefile = (FILE.parents[1] / "Makefile").read_text()
    assert f"STUDIES := {' '.join(STUDIES)}\n" in makefile
    found = {study.plan.study: study for study in load_studies(FILE, [])}
    assert set(found) == set(STUDIES)
    assert {status for study in found.values() for status in study.trials["status"]} == {"finished"}
    assert FILE.stat().st_size < 500_000


def test_the_example_gives_the_verdicts_that_the_readme_shows() -> None:
    (study,) = load_studies(FILE, ["position-embedding@digits"])
    rows = {row.arm: (row.n, row.verdict) for row in study_table.table(study).rows}
    assert (rows["position=none"], rows["position=2d"]) == ((5, "worse"), (5, "equivalent"))
