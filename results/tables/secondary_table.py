"""The table of a study's secondary metrics, below the list of arms."""

from collections.abc import Iterable, Sequence
from typing import Any

from results import units
from results.records import Row, SecondaryResult, Table
from results.store.schemas.metrics import EXACT, Metric
from results.style import current_style
from results.tables import sentences
from results.tables.cell_text import ABSENT, INTERVALS, difference_text, metric_label, plus_minus, unit_suffix
from results.tables.formats import Cell, Grid

SOURCE = "Bretz et al. 2009"
UNTESTED = f"{ABSENT}: not tested"


def as_grid(table: Table) -> Grid:
    metrics = list(map(table.plan.metric_named, table.plan.secondary_metrics))
    grid = Grid(
        title=f"{table.plan.name}: Secondary metrics",
        caption=captions(table, metrics),
        header=["arm"],
        numeric=[False],
        rows=[],
        label=f"{table.plan.name} secondary",
    )
    for metric in metrics:
        headings = [metric_label(metric)]
        if metric.name not in EXACT:
            headings.append("difference")
            if table.judged:
                headings.append("verdict")
        grid.header.extend(headings)
        grid.numeric.extend(heading != "verdict" for heading in headings)
    for row in table.rows:
        cells = [Cell(current_style().label(row.arm), row.arm)]
        for metric in metrics:
            cells += metric_cells(row, metric, table.judged)
        grid.rows.append(cells)
    if shows_dominance(table):
        grid.header.append("Pareto")
        grid.numeric.append(False)
        for row, cells in zip(table.rows, grid.rows, strict=True):
            cells.append(Cell(dominance_text(row)))
    return grid


def shows_dominance(table: Table) -> bool:
    return any(row.dominated_by is not None for row in table.rows)


def dominance_text(row: Row) -> str:
    if not row.dominated_by:
        return "not dominated"
    first, *others = map(current_style().label, row.dominated_by)
    text = f"dominated by {first}"
    if others:
        text += f" and {len(others)} more"
    return text


def metric_cells(row: Row, metric: Metric, judged: bool) -> list[Cell]:
    result = row.secondary[metric.name]
    if metric.name in EXACT:
        count = None if result.mean is None else int(result.mean)
        return [Cell(units.count_text(count), count)]
    mean = plus_minus(metric.value_text(result.mean), result.ci95, metric)
    difference = difference_text(result.delta, result.delta_ci95, metric)
    cells = [Cell(mean, result.mean), Cell(difference, result.delta)]
    if judged:
        cells.append(Cell(verdict_text(row, result), result.verdict))
    return cells


def verdict_text(row: Row, result: SecondaryResult) -> str:
    if row.arm == row.baseline:
        return "baseline"
    text = sentences.verdict_text(result.verdict, ABSENT)
    if result.is_judged_anew:
        text += f" (first declared: {sentences.verdict_text(result.first_declared, '')})"
    return text


def captions(table: Table, metrics: Sequence[Metric]) -> list[str]:
    named = ", ".join(f"{metric_label(metric)}{unit_suffix(metric)}" for metric in metrics)
    first = metric_label(table.plan.primary_metric)
    lines = [f"{named}; {INTERVALS}."]
    if not table.judged:
        return lines
    lines.append(
        f"An arm is tested where its {first} is resolved. All metrics and arms together err in at most 5% of studies "
        f"({SOURCE}). {UNTESTED}."
    )
    if shows_dominance(table):
        lines.append(
            "Dominated: another arm is better in one metric and worse in none, by intervals that all hold at 95%. "
            "Not dominated: no arm is shown to be."
        )
    for metric in metrics:
        reasons = dict.fromkeys(row.secondary[metric.name].untested for row in table.rows)
        for reason in reasons:
            if reason and metric.name not in EXACT and not reason.startswith("the difference in"):
                lines.append(f"{metric_label(metric)} of some arms is not tested: {reason}.")
    return lines


def csv_cells(row: Row, names: Iterable[str]) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for name in names:
        result = row.secondary.get(name, SecondaryResult(n=0, mean=None))
        cells |= {name: result.mean, f"{name}_ci95": result.ci95}
        cells |= {f"{name}_delta": result.delta, f"{name}_delta_ci95": result.delta_ci95}
        cells |= {f"{name}_p_adjusted": result.p_adjusted, f"{name}_verdict": result.verdict}
    return cells
