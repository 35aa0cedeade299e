"""The grid of a cross of two factors: one factor down, the other across, as papers print it.

Each point of the study's curves has a grid of its own. A tuned setting is at each arm's own value.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from results.records import NO_VERDICT, Row, Table
from results.statistics.verdict import UNRESOLVED
from results.store.schemas import Metric, Plan
from results.style import current_style
from results.tables import sentences
from results.tables.cell_text import ABSENT, INTERVALS, metric_label, plus_minus, unit_suffix
from results.tables.formats import Cell, Grid
from results.units import amount_text


@dataclass(frozen=True)
class CrossGrid:
    """The arms of a cross of two factors at a point of the curves.

    rows, columns: the factors. row_values, column_values: their values. at: curve -> value. cells: names of arms by row
    and column, None where the table has none.
    """

    rows: str
    columns: str
    row_values: Sequence[Any]
    column_values: Sequence[Any]
    at: Mapping[str, Any]
    cells: Sequence[Sequence[str | None]]


def cross_grids(table: Table) -> list[CrossGrid]:
    """Return the grids of all crosses of two factors of which the table has an arm."""
    plan = table.plan
    known = table.rows_by_arm
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
                    names.append(name if name in known else None)
                cells.append(names)
            if any(itertools.chain.from_iterable(cells)):
                grids.append(CrossGrid(down, across, cross[down], cross[across], at, cells))
    return grids


def arm_name(plan: Plan, values: Mapping[str, Any], at: Mapping[str, Any]) -> str:
    """Return the name of the arm with these values of two factors, all else as in the baseline, at a point."""
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


def as_grids(table: Table) -> Iterator[Grid]:
    """Yield each of the `cross_grids` as a table of text."""
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
            caption=[caption(table)],
            header=[label(cross.rows), *(value_label(cross.columns, value) for value in cross.column_values)],
            numeric=[False] * (1 + len(cross.column_values)),  # to the left, as words follow the numbers
            rows=lines,
            groups=[("", 1), (label(cross.columns), len(cross.column_values))],
            label=title,
        )


def value_label(key: str, value: Any) -> str:
    """Return a setting's value as a heading: the style's label of the setting, or else the value alone."""
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


def caption(table: Table) -> str:
    metric = table.plan.primary_metric
    text = f"{metric_label(metric)}{unit_suffix(metric)}, {INTERVALS}"
    if not table.judged:
        return f"{text}; no verdict yet."
    interim = "interim " if table.interim else ""
    contrasts = amount_text(table.plan.family, "planned contrast")
    return f"{text}; in brackets the {interim}verdict after Holm over {contrasts}, unless it is not resolved."
