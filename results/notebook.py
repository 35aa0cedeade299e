"""A study in a notebook: answer, figure and table, and its numbers as data frames."""

import base64
import html
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import pandas as pd

from commonfloor.messages import joined_names
from results.export import csv_rows
from results.figures import study_figure
from results.load import load_studies
from results.records import Table
from results.study_results import StudyResults
from results.style import FULL
from results.tables import layout, sentences, study_table

STYLE = """<style>
.ablate-study .study-table { margin: 1em 0; overflow-x: auto; }
.ablate-study .study-table th, .ablate-study .study-table td {
  text-align: left; white-space: nowrap; padding: 0.2em 0.6em;
}
.ablate-study .study-table .number { text-align: right; }
</style>"""  # a notebook aligns all cells to the right


@dataclass(frozen=True)
class StudyView:
    """A study that Jupyter displays as its answer, figure and table, and a terminal as its table.

    results: what was read, at the time of reading.
    """

    results: StudyResults

    @cached_property
    def table(self) -> Table:
        return study_table.table(self.results)

    def to_frame(self, rows: Literal["trials", "arms"] = "trials") -> pd.DataFrame:
        """Return a data frame with one row per planned trial, or one per arm.

        A trial has its arm, seed, status, metrics, where it ran, and its settings. An arm has the columns of the CSV
        table: mean, difference, interval, p and verdict. Accuracies are fractions. Raises ValueError for other rows.
        """
        if rows == "trials":
            return pd.DataFrame(list(csv_rows(self.results)))
        if rows == "arms":
            return pd.DataFrame(layout.csv_rows([self.table]))
        raise ValueError(f"rows={rows}: one of trials, arms")

    def __repr__(self) -> str:
        return layout.render(self.table, "md")

    def _repr_html_(self) -> str:
        """Return HTML for Jupyter, in which text of the study is escaped."""
        answer = f"<p>{html.escape(sentences.answer(self.table))}</p>"
        parts = [answer, self.picture(), layout.render(self.table, "html", notes="short")]
        return f'{STYLE}\n<div class="ablate-study">\n{"".join(parts)}\n</div>'

    def picture(self) -> str:
        """Return the figure as an HTML image, or why there is none."""
        missing = study_figure.unknown_figure(self.results.plan)
        if missing:
            return f"<p>No figure: {html.escape(missing)}</p>"
        png = study_figure.picture(self.results, "png", FULL, titled=False, table=self.table)
        source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
        label = html.escape(self.results.plan.question)
        return f'<img src="{source}" alt="{label}" style="width: {FULL}in; max-width: 100%; background: white">'


def open_study(name: str, source: str | Path = "runs") -> StudyView:
    """Return a study of a run directory, or of a file that `ablate export` wrote, by a name such as "pooling@digits".

    Raises ValueError if the name fits several studies or none, and in the other cases of `load_studies`.
    """
    studies = load_studies(Path(source), [name])
    if len(studies) > 1:
        raise ValueError(f"{name}: one of {joined_names(study.name for study in studies)}")
    return StudyView(studies[0])
