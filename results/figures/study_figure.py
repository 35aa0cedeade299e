"""The figure of a study as a file or as a picture for the report, and its caption. Equal results give equal bytes."""

from pathlib import Path

from matplotlib.figure import Figure

from commonfloor.files import safe_name
from results import store
from results.figures import kinds
from results.figures.frame import absence_lines, arms_frame, earlier_look_lines, evidence_text, styled_metric_name
from results.figures.kinds import curves
from results.figures.page import apply_style, compose, file_content
from results.records import Table
from results.statistics import tuning
from results.store.schemas.plans import Plan
from results.study_results import StudyResults
from results.style import current_style
from results.tables.sentences import setting_parts
from results.tables.study_table import table as table_of


def file_name(study: StudyResults, format: str = "png", x: str | None = None) -> str:
    return f"{'-'.join(filter(None, [safe_name(study.name), x]))}.{format}"


def draw(study: StudyResults, path: Path, x: str | None = None, table: Table | None = None) -> Path:
    store.write_bytes(path, picture(study, path.suffix[1:].lower(), x=x, table=table))
    return path


def picture(
    study: StudyResults,
    format: str,
    width: float | None = None,
    titled: bool = True,
    x: str | None = None,
    table: Table | None = None,
) -> bytes:
    """Return the study's figure as the content of a file. width: inches, by default the style's.

    titled: whether to write the question above it. Raises ValueError for an unknown format, figure, axis or font.
    """
    with apply_style():
        return file_content(figure(study, width or current_style().width, titled, x, table), format)


def figure(
    study: StudyResults, width: float, titled: bool = True, x: str | None = None, table: Table | None = None
) -> Figure:
    """Return the study's figure, `width` inches wide. x: a key of AXES, or None for the study's figure.

    Without the style's `notes`, a titled figure leaves the setting and notes to its caption.
    """
    page, above, below = draw_with_notes(study, width, x, table)
    style = current_style()
    if titled and not style.notes:
        above = ""
        below = []
    heading = study.plan.question if titled and style.heading else ""
    compose(page, heading, above, below)
    return page


def caption(study: StudyResults, x: str | None = None) -> list[str]:
    """Return the line above the figure and the lines below it."""
    with apply_style():
        _, above, below = draw_with_notes(study, current_style().width, x)
    return [above, *below]


def draw_with_notes(
    study: StudyResults, width: float, x: str | None, table: Table | None = None
) -> tuple[Figure, str, list[str]]:
    """Return (figure, line above it, lines below it). Raises ValueError for an unknown kind or `x`."""
    wrong = unknown_figure(study.plan)
    if wrong and not x:
        raise ValueError(wrong)
    kind = curves.kind_over(x) if x else kinds.kind(study.plan.figure)
    table = table or table_of(study)
    page = Figure(figsize=(width, 3.0), layout="constrained")
    drawn = study if kind.whole_grid else tuning.tuned_arms_only(study)
    notes = kind.draw(drawn, table, page)
    frame = arms_frame(drawn, table)
    above = f"{', '.join(setting_parts(study.plan))}: {styled_metric_name(kind.metric_of(drawn))}"
    if kind.over_training:
        above += " during training"
    else:
        above += f", {evidence_text(frame)}"
        notes += earlier_look_lines(frame)
    return page, above, [*notes, *absence_lines(frame)]


def unknown_figure(plan: Plan) -> str:
    if plan.figure in kinds.FIGURE_KINDS:
        return ""
    return f"figure={plan.figure} of study {plan.study}: one of {', '.join(kinds.FIGURE_KINDS)}"
