"""The metric over the learning rate, and validation over training: arXiv 2010.11929, Figure 9.

The point of that figure: two heads tie, each at a learning rate of its own. So the rate is an axis here, not a choice.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures.frame import arms, seeds, signed, written, x_of
from results.figures.kinds.curves import (
    dashes_legend,
    evaluations,
    followed,
    measure,
    name_lines,
    note,
    training_curves,
)
from results.figures.lines import axis_name, marks, over_axis, place, spelled
from results.figures.page import legends_above, narrow
from results.records import Table
from results.study_results import StudyResults
from results.units import unit

HEIGHT = 2.9  # inches a panel


def learning_rate(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draws the study on `figure`; returns what to write under it."""
    frame, x = place(arms(study, table)), x_of(study.plan)
    final, *others = panels(figure, 2 if evaluated(study) else 1)
    over_axis(frame, seeds(study, table.metric), final, table.metric, x)
    named, notes = [(final, "at the end of training")], [marks(x), *spelled(frame), *at_own_values(study, table)]
    for training in others:
        title, below = over_training(study, frame, training)
        named.append((training, title))
        notes += below
    legends_above(figure, named)
    return notes


def over_training(study: StudyResults, frame: pd.DataFrame, ax: Axes) -> tuple[str, list[str]]:
    """The training of the arms that the question is about, else of all; what to write over and under it."""
    lines, said = followed(study, frame)
    training_curves(lines, evaluations(study, measure(study)), ax, measure(study))
    (name_lines if said else dashes_legend)(lines, ax)
    title = "over training" if said else f"over training, by {axis_name(x_of(study.plan))}"
    return title, [*said, note(lines)]


def panels(figure: Figure, count: int) -> list[Axes]:
    """Side by side, or where the figure is a column wide one above the other."""
    stacked = narrow(figure)
    figure.set_figheight(count * HEIGHT if stacked else HEIGHT)
    shape = (count, 1) if stacked else (1, count)
    return [figure.add_subplot(*shape, k) for k in range(1, count + 1)]


def evaluated(study: StudyResults) -> bool:
    """Whether there is a line to draw over training, or may be one yet: trials evaluated once have but a point."""
    evaluations = study.history.groupby(["arm", "seed"])["step"].nunique()
    return bool(evaluations.empty or (evaluations > 1).any())


def at_own_values(study: StudyResults, table: Table) -> list[str]:
    """How the arms compare that were each tuned, where the study tunes: "At its own value: gap +0.4 points, ..."."""
    tuned = {entry["name"]: entry["change"] for entry in study.plan.get("tuned", [])}
    measure = unit(table.metric)
    found = [
        f"{written(tuned[row.arm])} {signed(row.delta * measure.scale)}{measure.of_difference}, "
        f"{(row.verdict or 'no verdict').replace('-', ' ')}"
        for row in table.rows
        if row.arm in tuned and row.delta is not None
    ]
    return [f"Each at its own {' and '.join(map(axis_name, study.plan['tune']))}: {'; '.join(found)}."] if found else []
