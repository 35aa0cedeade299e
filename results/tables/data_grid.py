"""The table of arms by data set, with their averages over all data sets."""

from results.records import NO_VERDICT, AverageRow, Table
from results.store.schemas import Arm
from results.style import current_style
from results.tables import sentences
from results.tables.cell_text import INTERVALS, difference_text, metric_label, plus_minus, unit_suffix
from results.tables.cross_grid import cross_cell, value_label
from results.tables.formats import Cell, Grid
from results.units import probability_text


def as_grid(table: Table) -> Grid:
    """Return the table: a row per arm, a column per data set, and the average difference with its verdict."""
    plan = table.plan
    grid = Grid(
        title=f"{plan.name}: arms by data",
        caption=[caption(table)],
        header=[
            "arm",
            *map(heading, map(plan.arms_by_name.__getitem__, table.averages[0].arms)),
            "average",
            "difference",
        ],
        numeric=[False] * (1 + len(plan.data_sets)) + [True, True],  # to the left where words follow the numbers
        rows=[],
        label=f"{plan.name} data",
    )
    if table.judged:
        grid.header.extend(["p (Holm)", "verdict"])
        grid.numeric.extend([True, False])
    for average in table.averages:
        grid.rows.append(average_cells(average, table))
        for note in average.notes:
            grid.closing.append(f"{current_style().label(average.arm)}: {note}.")
    return grid


def heading(arm: Arm) -> str:
    """Return the style's label of an arm's data set, or else the name of the data set or of its folder."""
    value = arm.values["data"]
    return value_label("data", value if arm.data is None else arm.data.name)


def average_cells(average: AverageRow, table: Table) -> list[Cell]:
    """Return the cells of an arm: each data set, then the average."""
    metric = table.plan.primary_metric
    by_arm = table.rows_by_arm
    mean = plus_minus(metric.value_text(average.mean), average.ci95, metric)
    difference = difference_text(average.delta, average.delta_ci95, metric)
    cells = [Cell(current_style().label(average.arm), average.arm)]
    cells += [cross_cell(by_arm[name], metric) for name in average.arms]
    cells += [Cell(mean, average.mean), Cell(difference, average.delta)]
    if table.judged:
        is_baseline = by_arm[average.arms[0]].baseline == average.arms[0]
        verdict = "baseline" if is_baseline else sentences.verdict_text(average.verdict, NO_VERDICT)
        cells += [Cell(probability_text(average.p_holm), average.p_holm), Cell(verdict)]
    return cells


def caption(table: Table) -> str:
    """Return what the numbers are, and how the averages are tested."""
    metric = table.plan.primary_metric
    text = (
        f"{metric_label(metric)}{unit_suffix(metric)}, {INTERVALS}. Averages are over these data sets, with equal "
        "weights, and say nothing of others"
    )
    if not table.judged:
        return f"{text}; no verdict yet."
    if any(average.delta_ci95_images for average in table.averages):
        text += "; verdicts allow for other test images too"
    family = table.plan.averages_family
    return f"{text}; differences {sentences.pairing(table.plan)} on each data set, p after Holm over {family}."
