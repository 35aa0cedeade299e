"""The metric over the learning rate, and validation over training: arXiv 2010.11929, Figure 9.

That figure shows two heads tied, each at its own learning rate. So the rate is an axis, not a choice.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures.frame import arms_frame, seeds_frame, series_label, signed_text, x_setting
from results.figures.kinds.curves import (
    arms_to_follow,
    dash_entries,
    draw_training_curves,
    evaluations_frame,
    line_entries,
    lines_note,
    training_metric,
    unevaluated_note,
)
from results.figures.lines import axis_name, baseline_notes, draw_over_axis, marks_note, with_positions
from results.figures.page import is_narrow, legends_above
from results.records import Table
from results.study_results import StudyResults
from results.units import unit

HEIGHT = 2.9  # inches a panel


def learning_rate(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draw the study on `figure`; return the lines to write below."""
    frame, x = with_positions(arms_frame(study, table)), x_setting(study.plan)
    final, *others = panels(figure, 2 if has_curves(study) else 1)
    draw_over_axis(frame, seeds_frame(study, table.metric), final, table.metric, x)
    named, notes = (
        [(final, "at the end of training")],
        [marks_note(x), *baseline_notes(frame), *tuned_note(study, table)],
    )
    for training in others:
        title, below = draw_training_panel(study, frame, training)
        named.append((training, title))
        notes += below
    legends_above(figure, named)
    return notes


def draw_training_panel(study: StudyResults, frame: pd.DataFrame, ax: Axes) -> tuple[str, list[str]]:
    """Draw the arms to follow over training; return the title and the lines to write below."""
    lines, said = arms_to_follow(study, frame)
    history = evaluations_frame(study, training_metric(study))
    draw_training_curves(lines, history, ax, training_metric(study))
    (line_entries if said else dash_entries)(lines, ax)
    title = "over training" if said else f"over training, by {axis_name(x_setting(study.plan))}"
    return title, [*said, lines_note(lines), *unevaluated_note(lines, history)]


def panels(figure: Figure, count: int) -> list[Axes]:
    """Add panels side by side, or stacked on a narrow page."""
    stacked = is_narrow(figure)
    figure.set_figheight(count * HEIGHT if stacked else HEIGHT)
    shape = (count, 1) if stacked else (1, count)
    return [figure.add_subplot(*shape, k) for k in range(1, count + 1)]


def has_curves(study: StudyResults) -> bool:
    """Tell whether some trial was evaluated more than once, or none at all yet."""
    evaluations = study.history.groupby(["arm", "seed"])["step"].nunique()
    return bool(evaluations.empty or (evaluations > 1).any())


def tuned_note(study: StudyResults, table: Table) -> list[str]:
    """Compare arms at their own tuned value; [] for a study that tunes nothing."""
    tuned = {entry.name: entry.change for entry in study.plan.tuned}
    measure = unit(table.metric)
    found = [
        f"{series_label(tuned[row.arm])} {signed_text(row.delta * measure.scale)}{measure.of_difference}, "
        f"{(row.verdict or 'no verdict').replace('-', ' ')}"
        for row in table.rows
        if row.arm in tuned and row.delta is not None
    ]
    return [f"Each at its own {' and '.join(map(axis_name, study.plan.tune))}: {'; '.join(found)}."] if found else []
