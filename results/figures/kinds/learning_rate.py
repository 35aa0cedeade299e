"""The figure kind `learning-rate`: the metric over the learning rate, and validation over training.

In arXiv 2010.11929, Figure 9, two classification heads tie, each at a different learning rate. So the learning rate is
an axis of this figure.
"""

from matplotlib.figure import Figure

from results.figures.axes import axis_name, with_positions
from results.figures.frame import arms_frame, seeds_frame, series_label, signed_text, x_setting
from results.figures.kinds import Kind
from results.figures.kinds.curves import add_dash_entries, draw_arms
from results.figures.lines import baseline_notes, draw_over_axis, marks_note
from results.figures.page import add_panels, draw_legend
from results.records import Table
from results.study_results import StudyResults

HEIGHT = 2.9  # inches per panel


def draw(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    frame, x = with_positions(arms_frame(study, table)), x_setting(study.plan)
    evaluations = study.history.groupby(["arm", "seed"])["step"].nunique()
    has_curves = evaluations.empty or (evaluations > 1).any()  # else trials were evaluated only once
    metric = table.plan.primary_metric
    final, *others = add_panels(figure, 2 if has_curves else 1, HEIGHT)
    draw_over_axis(frame, seeds_frame(study, metric), final, metric, x)
    draw_legend(final, "at the end of training")
    notes = [marks_note(x), *baseline_notes(frame), *tuned_note(study, table)]
    for training in others:
        lines, tuned, below = draw_arms(study, frame, training, "step")
        if not tuned:
            add_dash_entries(lines, training)
        draw_legend(training, "over training" if tuned else f"over training, by {axis_name(x)}")
        notes += below
    return notes


KIND = Kind(draw, whole_grid=True)


def tuned_note(study: StudyResults, table: Table) -> list[str]:
    """Return a line with each tuned arm's difference from its baseline, both at the values that validation selects."""
    tuned = {entry.name: entry.change for entry in study.plan.tuned}
    measure = table.plan.primary_metric
    found = [
        f"{series_label(tuned[row.arm])} {signed_text(row.delta * measure.scale)}{measure.unit_of_difference}, "
        f"{(row.verdict or 'no verdict').replace('-', ' ')}"
        for row in table.rows
        if row.arm in tuned and row.delta is not None
    ]
    return [f"Each at its own {' and '.join(map(axis_name, study.plan.tune))}: {'; '.join(found)}."] if found else []
