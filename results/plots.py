"""A study's figure as a file, or as text for the report: deterministic bytes, fonts embedded, no window."""

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from results.figures.axis import axis
from results.figures.compute import compute
from results.figures.frame import arms, evidence, metric_name
from results.figures.intervals import intervals
from results.figures.learning_rate import learning_rate
from results.figures.page import absences, compose
from results.figures.scale import scale
from results.figures.style import FULL, style
from results.names import FIGURES
from results.study import StudyResults
from results.tables import Table
from results.tables import table as table_of

FORMATS = ("png", "pdf", "svg")

DRAW: dict[str, Callable[[StudyResults, Table, Figure], list[str]]] = {
    "intervals": intervals,
    "learning-rate": learning_rate,
    "axis": axis,
    "scale": scale,
    "compute": compute,
}

# What a writer would otherwise stamp with the date or its version.
UNSTAMPED: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
}


def draw(study: StudyResults, folder: Path, format: str = "png") -> Path:
    """Writes `folder`/<study>.<format> and returns its path.

    Raises ValueError for a format that is none of FORMATS and a plan whose figure is none of FIGURES.
    """
    path = folder / f"{study.name}.{format}"
    content = picture(study, format)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def picture(study: StudyResults, format: str, width: float = FULL, titled: bool = True) -> bytes:
    """The study's figure, `width` inches wide; equal results give equal bytes.

    Not `titled`, it stands under a heading that says the question already. Raises ValueError as `draw` does.
    """
    if format not in FORMATS:
        raise ValueError(f"format={format}: one of {', '.join(FORMATS)}")
    stream = io.BytesIO()
    with style():
        figure(study, table_of(study), width, titled).savefig(stream, format=format, metadata=UNSTAMPED[format])
    return stream.getvalue()


def figure(study: StudyResults, table: Table, width: float, titled: bool = True) -> Figure:
    """The study's figure under its question, with what was measured and what is absent written on it."""
    kind = study.plan["figure"]
    if wrong := unknown(study.plan):
        raise ValueError(wrong)
    page = Figure(figsize=(width, 3.0), layout="constrained")
    notes = DRAW[kind](study, table, page)
    frame = arms(study, table)
    title = study.plan["question"] if titled else ""
    compose(page, title, subtitle(study, table), [*notes, *absences(frame)])
    return page


def unknown(plan: Mapping[str, Any]) -> str:
    """Which figure a plan asks for that is none of FIGURES, and which there are; "" where there is nothing wrong."""
    if plan["figure"] in FIGURES:
        return ""
    return f"figure={plan['figure']} of study {plan['study']}: one of {', '.join(FIGURES)}"


def subtitle(study: StudyResults, table: Table) -> str:
    """The setting, the metric, and what the marks stand for."""
    settings = ", ".join([study.plan["recipe"], *(f"{key}={value}" for key, value in study.plan["overrides"].items())])
    return f"{settings}: {metric_name(table['metric'])}, {evidence(arms(study, table))}"
