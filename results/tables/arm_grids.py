"""Grids of arms as papers print them: a cross of two factors, one down, one across, and arms by data set.

A cross has a grid at each point of the study's curves. A tuned setting is at each arm's own value.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from results.records import NO_VERDICT, AverageRow, Row, Table
from results.statistics.verdict import UNRESOLVED
from results.store.schemas.metrics import Metric
from results.store.schemas.plans import Arm, Plan
from results.style import current_style
from results.tables import sentences
from results.tables.cell_text import ABSENT, INTERVALS, difference_text, metric_label, plus_minus, unit_suffix
from results.tables.formats import Cell, Grid
from results.units import amount_text, probability_text


@dataclass(frozen=True)
class CrossGrid:
    """The arms of a cross of two factors at a point of the curves. cells: names of arms, or None."""

    rows: str
    columns: str
    row_values: Sequence[Any]
    column_values: Sequence[Any]
    at: Mapping[str, Any]
    cells: Sequence[Sequence[str | None]]


def cross_grids(table: Table) -> list[CrossGrid]:
    plan = table.plan
    rows = table.rows_by_arm
    curves = plan.curves | {name: ["tuned"] for name in plan.tune}
    grids = []
    for cross in plan.crosses:
        if len(cross) != 2:
            continue
        across, down = sorted(cross, key=lambda name: len(cross[name]))  # paper is longer than wide
        if len(cross[across]) == len(cross[down]):
            down, across = cross
        for values in itertools.product(*curves.values()):
            at = dict(zip(curves, values, strict=True))
            cells = []
            for value in cross[down]:
                names = []
                for other in cross[across]:
                    name = arm_name(plan, {down: value, across: other}, at)
                    names.append(name if name in rows else None)
                cells.append(names)
            if any(itertools.chain.from_iterable(cells)):
                grids.append(CrossGrid(down, across, cross[down], cross[across], at, cells))
    return grids


def arm_name(plan: Plan, values: Mapping[str, Any], at: Mapping[str, Any]) -> str:
    of_baseline = plan.baseline_arm.values
    changed = []
    for key in plan.factors:
        if key in values and values[key] != of_baseline[key]:
            changed.append(assigned(key, values[key]))
    own_point = [assigned(key, of_baseline[key]) for key in plan.curves]
    change = plan.baseline.removesuffix(",".join(["", *own_point]))
    if changed:
        change = ",".join(changed)
    return ",".join([change, *itertools.starmap(assigned, at.items())])


def assigned(key: str, value: Any) -> str:
    return f"{key}={value}"


def grids_of_crosses(table: Table) -> Iterator[Grid]:
    label = current_style().label
    by_arm = table.rows_by_arm
    metric = table.plan.primary_metric
    for cross in cross_grids(table):
        title = f"{table.plan.name}: {label(cross.rows)} × {label(cross.columns)}"
        if cross.at:
            title += f" at {label(','.join(itertools.starmap(assigned, cross.at.items())))}"
        lines = []
        for value, names in zip(cross.row_values, cross.cells, strict=True):
            cells = [Cell(ABSENT) if name is None else cross_cell(by_arm[name], metric) for name in names]
            lines.append([Cell(value_label(cross.rows, value)), *cells])
        yield Grid(
            title=title,
            caption=[cross_caption(table)],
            header=[label(cross.rows), *(value_label(cross.columns, value) for value in cross.column_values)],
            numeric=[False] * (1 + len(cross.column_values)),  # to the left, as words follow the numbers
            rows=lines,
            groups=[("", 1), (label(cross.columns), len(cross.column_values))],
            label=title,
        )


def value_label(key: str, value: Any) -> str:
    return current_style().labels.get(assigned(key, value), str(value))


def cross_cell(row: Row, metric: Metric) -> Cell:
    """Return a cell such as "76.42 ± 1.93 (worse, 1 of 5 diverged)"."""
    details = []
    if row.arm == row.baseline:
        details.append("baseline")
    elif row.is_judged_anew:
        now = sentences.verdict_text(row.verdict, NO_VERDICT)
        details.append(f"{now}, first declared: {sentences.verdict_text(row.first_declared, NO_VERDICT)}")
    elif row.verdict not in (None, UNRESOLVED):
        details.append(str(row.verdict))
        if sentences.is_from_earlier_look(row):
            details[-1] += sentences.EARLIER
    for count, what in ((row.diverged, "diverged"), (row.failed, "failed"), (row.missing, "missing")):
        if count:
            details.append(f"{count} of {row.planned} {what}")
    parts = [plus_minus(metric.value_text(row.mean), row.ci95, metric)]
    if details:
        parts.append(f"({', '.join(details)})")
    return Cell(" ".join(filter(None, parts)), row.mean)


def cross_caption(table: Table) -> str:
    metric = table.plan.primary_metric
    text = f"{metric_label(metric)}{unit_suffix(metric)}, {INTERVALS}"
    if not table.judged:
        return f"{text}; no verdict yet."
    interim = "interim " if table.interim else ""
    contrasts = amount_text(table.plan.family, "planned contrast")
    return f"{text}; in brackets the {interim}verdict after Holm over {contrasts}, unless it is not resolved."


# -- arms by data set, with their averages over all data sets ----------------------------------------------------------


def data_grid(table: Table) -> Grid:
    plan = table.plan
    grid = Grid(
        title=f"{plan.name}: arms by data",
        caption=[data_caption(table)],
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
    value = arm.values["data"]
    return value_label("data", value if arm.data is None else arm.data.name)


def average_cells(average: AverageRow, table: Table) -> list[Cell]:
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


def data_caption(table: Table) -> str:
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
