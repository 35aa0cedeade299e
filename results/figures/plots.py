"""A study's figure as a file, or as text for the report: deterministic bytes, fonts embedded, no window."""

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from results import store
from results.figures.frame import arms, evidence, metric_name
from results.figures.kinds.axis import axis
from results.figures.kinds.compute import compute
from results.figures.kinds.curves import curves, measure
from results.figures.kinds.families import families
from results.figures.kinds.intervals import intervals
from results.figures.kinds.learning_rate import learning_rate
from results.figures.kinds.new_size import at_any_size, new_size
from results.figures.kinds.scale import scale
from results.figures.kinds.shape import shape
from results.figures.page import absences, compose
from results.figures.theme import style
from results.names import AXES, FIGURES, METRICS
from results.records import Table
from results.statistics import tuning
from results.store.paths import safe_name
from results.store.planned import objective
from results.study_results import StudyResults
from results.style import current, naming
from results.tables.sentences import setting_parts
from results.tables.study_table import table as table_of
from results.units import PREDICTED, name

FORMATS = ("png", "pdf", "svg")

DRAW: dict[str, Callable[[StudyResults, Table, Figure], list[str]]] = {
    "intervals": intervals,
    "learning-rate": learning_rate,
    "axis": axis,
    "scale": scale,
    "new-size": new_size,
    "compute": compute,
    "curves": curves,
    "shape": shape,
    "families": families,
}

OVER_THE_GRID = ("learning-rate", "curves")  # of a tuned study; the others show each arm at its own value

# What a writer would otherwise stamp with the date or its version.
UNSTAMPED: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
}


def file_name(study: StudyResults, format: str = "png", x: str | None = None) -> str:
    """The name of the study's figure, or of its training over `x`. Raises ValueError for a study's that is no name."""
    return f"{safe_name(study.name)}{f'-{x}' if x else ''}.{format}"


def draw(study: StudyResults, path: Path, x: str | None = None) -> Path:
    """Writes the study's figure, or its training over `x`, to `path`, by whose suffix it is drawn; returns the path.

    Raises ValueError as `picture` does.
    """
    store.write_bytes(path, picture(study, path.suffix[1:].lower(), x=x))
    return path


def picture(
    study: StudyResults, format: str, width: float | None = None, titled: bool = True, x: str | None = None
) -> bytes:
    """The study's figure, or its training over `x`, `width` inches wide (else the style's); equal results, equal bytes.

    Not `titled`, it stands under a heading that says the question already. Raises ValueError for a format that is none
    of FORMATS, a plan whose figure is none of FIGURES, an `x` that is none of AXES, and a font that is not there.
    """
    if format not in FORMATS:
        raise ValueError(f"format={format}: one of {', '.join(FORMATS)}")
    stream = io.BytesIO()
    with style(), naming(predicted(study.plan)):
        page = figure(study, table_of(study), width or current().width, titled, x)
        page.savefig(stream, format=format, metadata=UNSTAMPED[format])
    return stream.getvalue()


def figure(study: StudyResults, table: Table, width: float, titled: bool = True, x: str | None = None) -> Figure:
    """The study's figure under its question, with what was measured and what is absent written on it.

    A style's `notes: false` leaves the latter to a caption; what is not `titled` stands where there is none.
    """
    page = Figure(figsize=(width, 3.0), layout="constrained")
    under, notes = explained(study, table, page, x)
    title = study.plan["question"] if titled and current().heading else ""
    if titled and not current().notes:
        under, notes = "", []
    compose(page, title, under, notes)
    return page


def caption(study: StudyResults, x: str | None = None) -> list[str]:
    """What explains the study's figure, or its training over `x`: the line above it and those below."""
    with style(), naming(predicted(study.plan)):
        page = Figure(figsize=(current().width, 3.0), layout="constrained")
        under, notes = explained(study, table_of(study), page, x)
    return [under, *notes]


def explained(study: StudyResults, table: Table, page: Figure, x: str | None) -> tuple[str, list[str]]:
    """Draws the study on `page`; returns what to write above and below it."""
    if not x and kind(study.plan) not in OVER_THE_GRID:
        study = tuning.tuned_arms_only(study)
    notes = curves(study, table, page, checked(x)) if x else DRAW[kind(study.plan)](study, table, page)
    under = during(study) if x or study.plan["figure"] == "curves" else subtitle(study, table)
    return under, [*notes, *absences(arms(study, table))]


def predicted(plan: Mapping[str, Any]) -> dict[str, str]:
    """What the metrics of arms are called that do not learn labels."""
    if (learned := objective(plan)) not in PREDICTED:
        return {}
    return {metric: name(metric.replace("val_", "validation_"), learned) for metric in METRICS}


def checked(x: str) -> str:
    if x not in AXES:
        raise ValueError(f"x={x}: one of {', '.join(AXES)}")
    return x


def kind(plan: Mapping[str, Any]) -> str:
    if wrong := unknown(plan):
        raise ValueError(wrong)
    return str(plan["figure"])


def unknown(plan: Mapping[str, Any]) -> str:
    """Which figure a plan asks for that is none of FIGURES, and which there are; "" where there is nothing wrong."""
    if plan["figure"] in FIGURES:
        return ""
    return f"figure={plan['figure']} of study {plan['study']}: one of {', '.join(FIGURES)}"


def subtitle(study: StudyResults, table: Table) -> str:
    """The setting, the metric, and what the marks stand for."""
    metric = at_any_size(table.metric) if kind(study.plan) == "new-size" else table.metric
    return f"{settings(study.plan)}: {metric_name(metric)}, {evidence(arms(study, table))}"


def during(study: StudyResults) -> str:
    """The same of training curves."""
    return f"{settings(study.plan)}: {metric_name(measure(study))} during training"


def settings(plan: Mapping[str, Any]) -> str:
    return ", ".join(setting_parts(plan["recipe"], plan.get("data"), plan["overrides"]))
