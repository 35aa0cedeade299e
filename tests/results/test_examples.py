"""The exported example: whole, and readable by today's code."""

from pathlib import Path

import pytest

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


@pytest.mark.parametrize(("arm", "verdict"), [("position=none", "worse"), ("position=2d", "equivalent")])
def test_the_example_gives_the_verdicts_that_the_documentation_shows(arm: str, verdict: str) -> None:
    """The README's table begins with these rows."""
    (study,) = load_studies(FILE, ["position-embedding@digits"])
    (row,) = (row for row in study_table.table(study).rows if row.arm == arm)
    assert (row.n, row.verdict) == (5, verdict)
