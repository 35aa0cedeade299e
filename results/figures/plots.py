"""A study's figure as a file or as text for the report, with deterministic bytes and embedded fonts."""

import io
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from results import store
from results.figures.frame import arms_frame, evidence_text, styled_metric_name
from results.figures.kinds.axis import axis
from results.figures.kinds.compute import compute
from results.figures.kinds.curves import curves, training_metric
from results.figures.kinds.families import families
from results.figures.kinds.intervals import intervals
from results.figures.kinds.learning_rate import learning_rate
from results.figures.kinds.new_size import base_metric, new_size
from results.figures.kinds.scale import scale
from results.figures.kinds.shape import shape
from results.figures.page import absence_lines, compose
from results.figures.theme import style
from results.names import AXES, FIGURES, METRICS
from results.records import Table
from results.statistics import tuning
from results.store.paths import safe_name
from results.store.planned import objective
from results.store.schemas import Plan
from results.study_results import StudyResults
from results.style import current, use_labels
from results.tables.sentences import setting_parts
from results.tables.study_table import table as table_of
from results.units import OBJECTIVE_SUFFIX, metric_name

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
    """Return the file name of the study's figure, or of its training over `x`. Raises ValueError for an unsafe name."""
    return f"{safe_name(study.name)}{f'-{x}' if x else ''}.{format}"


def draw(study: StudyResults, path: Path, x: str | None = None) -> Path:
    """Write the study's figure, or its training over `x`, in the format of the path's suffix.

    Raises ValueError as `picture` does.
    """
    store.write_bytes(path, picture(study, path.suffix[1:].lower(), x=x))
    return path


def picture(
    study: StudyResults, format: str, width: float | None = None, titled: bool = True, x: str | None = None
) -> bytes:
    """Draw the study's figure, or its training over `x`, as a file's content; equal results give equal bytes.

    width: inches, by default the style's. titled: write the question above it. Raises ValueError for an unknown format,
    kind of figure, axis `x` or font.
    """
    if format not in FORMATS:
        raise ValueError(f"format={format}: one of {', '.join(FORMATS)}")
    stream = io.BytesIO()
    with style(), use_labels(objective_labels(study.plan)):
        page = figure(study, table_of(study), width or current().width, titled, x)
        page.savefig(stream, format=format, metadata=UNSTAMPED[format])
    return stream.getvalue()


def figure(study: StudyResults, table: Table, width: float, titled: bool = True, x: str | None = None) -> Figure:
    """Draw the study's figure below its question, with measurements and absences described.

    A style with `notes: false` leaves descriptions to the caption; an untitled figure always has them.
    """
    page = Figure(figsize=(width, 3.0), layout="constrained")
    under, notes = draw_with_notes(study, table, page, x)
    title = study.plan.question if titled and current().heading else ""
    if titled and not current().notes:
        under, notes = "", []
    compose(page, title, under, notes)
    return page


def caption(study: StudyResults, x: str | None = None) -> list[str]:
    """Return the lines that explain the figure, the one above it first."""
    with style(), use_labels(objective_labels(study.plan)):
        page = Figure(figsize=(current().width, 3.0), layout="constrained")
        under, notes = draw_with_notes(study, table_of(study), page, x)
    return [under, *notes]


def draw_with_notes(study: StudyResults, table: Table, page: Figure, x: str | None) -> tuple[str, list[str]]:
    """Draw the study on `page`; return the lines above and below it."""
    if not x and figure_kind(study.plan) not in OVER_THE_GRID:
        study = tuning.tuned_arms_only(study)
    notes = curves(study, table, page, check_axis(x)) if x else DRAW[figure_kind(study.plan)](study, table, page)
    under = training_subtitle(study) if x or study.plan.figure == "curves" else subtitle(study, table)
    return under, [*notes, *absence_lines(arms_frame(study, table))]


def objective_labels(plan: Plan) -> dict[str, str]:
    """Return labels for the metrics of arms that do not learn labels."""
    if (learned := objective(plan)) not in OBJECTIVE_SUFFIX:
        return {}
    return {metric: metric_name(metric.replace("val_", "validation_"), learned) for metric in METRICS}


def check_axis(x: str) -> str:
    """Raise ValueError unless `x` is one of AXES."""
    if x not in AXES:
        raise ValueError(f"x={x}: one of {', '.join(AXES)}")
    return x


def figure_kind(plan: Plan) -> str:
    """Return the plan's kind of figure. Raises ValueError for an unknown one."""
    if wrong := unknown_figure(plan):
        raise ValueError(wrong)
    return str(plan.figure)


def unknown_figure(plan: Plan) -> str:
    """Describe a plan's unknown kind of figure; "" where it is known."""
    if plan.figure in FIGURES:
        return ""
    return f"figure={plan.figure} of study {plan.study}: one of {', '.join(FIGURES)}"


def subtitle(study: StudyResults, table: Table) -> str:
    """State the setting, the metric and what the marks stand for."""
    metric = base_metric(table.metric) if figure_kind(study.plan) == "new-size" else table.metric
    return f"{settings_text(study.plan)}: {styled_metric_name(metric)}, {evidence_text(arms_frame(study, table))}"


def training_subtitle(study: StudyResults) -> str:
    """State the setting and the metric of training curves."""
    return f"{settings_text(study.plan)}: {styled_metric_name(training_metric(study))} during training"


def settings_text(plan: Plan) -> str:
    """Name the setting that a plan runs on."""
    return ", ".join(setting_parts(plan.recipe, plan.data, plan.overrides))
