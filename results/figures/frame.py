"""The data behind figures: table rows and arms as a data frame, in display units."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import nan
from numbers import Real
from types import SimpleNamespace
from typing import Any

import pandas as pd

from results.records import Interval, Row, Table
from results.store.schemas.metrics import Metric
from results.store.schemas.plans import Arm, Plan
from results.study_results import StudyResults
from results.style import current_style
from results.tables.sentences import EARLIER, EARLIER_LINE, is_from_earlier_look, row_verdict
from results.tables.study_table import table as table_of
from results.units import amount_text

FEWEST = 3  # fewest seeds with an interval: with two seeds, it is wider than most axes
NAMED = 6  # maximum number of arms with absent trials that are named below a figure
GAPS = ("diverged", "failed", "missing", "stopped")  # fields of a row that count trials without the metric
NUMBER = r"-?[\d.]+(e-?\d+)?"
IN_UNITS = ["mean", "low", "high", "delta", "delta_low", "delta_high", "published"]


def styled_metric_name(metric: Metric) -> str:
    return current_style().labels.get(metric.name) or re.sub("^val ", "validation ", metric.title)


def metric_label(metric: Metric) -> str:
    return f"{styled_metric_name(metric)} ({metric.unit})" if metric.unit else styled_metric_name(metric)


def x_setting(plan: Plan) -> str:
    """Return the setting on the horizontal axis: the first curve, else numeric factor, else factor, else "arm"."""
    numeric = [name for name, values in plan.factors.items() if all(map(is_number, values))]
    return [*plan.curves, *numeric, *plan.factors, "arm"][0]


def is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def arms_frame(study: StudyResults, table: Table) -> pd.DataFrame:
    """Return a data frame with a row per arm, in the style's order, with metrics in display units.

    Columns: the fields of `Row`, planned_arm, label, x (value of `x_setting`, by default the arm's name), at (x as a
    float if all are numbers, else its index), tick (the style's label of x), series and line (name and label of the
    other settings), reference (whether the arm is a baseline), gap ("1 diverged, 2 missing"), word (see
    `verdict_word`), earlier (whether the verdict is from an earlier look), and ends of the 95% intervals. Unknown
    numbers are NaN, and so are the intervals of fewer than FEWEST seeds.
    """
    rows = table.rows_by_arm
    ordered = sorted(study.plan.arms, key=lambda arm: current_style().rank(arm.name))
    frame = pd.DataFrame([arm_record(arm, rows[arm.name], study.plan) for arm in ordered])
    frame = frame.astype(dict.fromkeys([*IN_UNITS, "flops"], float))
    frame[IN_UNITS] *= table.plan.primary_metric.scale
    if all(map(is_number, frame["x"])):
        return frame.assign(at=frame["x"].astype(float))
    return frame.assign(at=pd.factorize(frame["x"].map(str))[0].astype(float))


def arm_record(arm: Arm, row: Row, plan: Plan) -> dict[str, Any]:
    low, high = drawn_interval(row, row.ci95)
    delta_low, delta_high = drawn_interval(row, row.delta_ci95)
    x = x_setting(plan)
    at = arm.values.get(x, arm.name)
    series = series_name(arm, x, plan)
    style = current_style()
    return {
        **vars(row),
        "planned_arm": arm,
        "label": style.label(arm.name),
        "x": at,
        "tick": style.labels.get(f"{x}={at}", ""),
        "series": series,
        "line": series_label(series, single=len({*plan.factors, *plan.curves} - {x}) == 1),
        "reference": arm.name == arm.baseline,
        "gap": ", ".join(f"{row.value(word)} {word}" for word in GAPS if row.value(word)),
        "low": low,
        "high": high,
        "delta_low": delta_low,
        "delta_high": delta_high,
        "verdict": row.verdict or "",
        "word": verdict_word(row),
        "earlier": is_from_earlier_look(row),
    }


def drawn_interval(row: Row, interval: Interval | None) -> Interval:
    """Return the ends of an interval, or NaN if it is unknown or of fewer than FEWEST seeds."""
    if interval is None or row.n < FEWEST:
        return nan, nan
    return interval


def verdict_word(row: Row) -> str:
    """Return "baseline", or the verdict with the mark of an earlier look, or ""."""
    if row.arm == row.baseline:
        return "baseline"
    word = row_verdict(row, "")
    if is_from_earlier_look(row):
        word += EARLIER
    return word


def table_for_metric(study: StudyResults, metric: str) -> Table:
    """Return the study's table with another metric, and without verdicts, as no test uses this metric."""
    columns = {metric: [nan] * len(study.columns["arm"])} | study.columns  # NaN for an eval that no trial has yet
    plan = study.plan.model_copy(update={"metric": metric, "claims": []})
    table = table_of(replace(study, plan=plan, columns=columns))
    return replace(table, rows=[replace(row, verdict=None) for row in table.rows])


def series_name(arm: Arm, x: str, plan: Plan) -> str:
    """Return the name of an arm's series (its line): the settings that it changes or sweeps, except `x`."""
    parts = [plan.change_of(arm)]
    if x in plan.factors and not plan.given_name_of(arm):
        parts = arm.assignments(plan.factors, x)
    return ",".join(filter(None, [*parts, *arm.assignments(plan.curves, x)]))


def series_label(name: str, single: bool = True) -> str:
    """Return the legend label of a series. single: whether one setting differs: "pool=gap" becomes "gap"."""
    label = current_style().label(name)
    if label != name:
        return label
    value = name.partition("=")[2]
    if single and name.count("=") == 1 and not re.fullmatch(NUMBER, value):
        return value
    return name.replace(",", ", ")


def one_series_per_arm(frame: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    if plan.curves:  # a line over the swept setting
        return frame
    labels = frame["arm"].map(partial(series_label, single=len(plan.factors) == 1))
    return frame.assign(series=frame["arm"], line=labels)


def rows_of(frame: pd.DataFrame) -> Iterator[Any]:
    """Return the rows as objects whose attributes are the columns, without the new class that `itertuples` makes."""
    names = list(frame.columns)
    return (SimpleNamespace(**dict(zip(names, row, strict=True))) for row in frame.to_numpy(dtype=object))


def seeds_frame(study: StudyResults, metric: Metric) -> pd.DataFrame:
    """Return a row per finished trial that has the metric: arm, seed, and value (the metric in display units)."""
    finished = study.trials[study.trials["status"] == "finished"].reindex(columns=["arm", "seed", metric.name])
    rows = finished.rename(columns={metric.name: "value"}).dropna(subset="value").reset_index(drop=True)
    return rows.assign(value=rows["value"] * metric.scale)


def evidence_text(frame: pd.DataFrame) -> str:
    """Return what markers show, such as "mean and 95% CI over 5 seeds; dots: single seeds"."""
    counts = sorted(set(frame["n"][frame["n"] > 0]))
    if not counts:
        return "no finished trial yet"
    if counts[-1] < FEWEST:
        seeds = " or ".join([*map(str, counts[:-1]), amount_text(counts[-1], "seed")])
        return f"{seeds}, no interval; dots: single seeds"
    over = " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
    return f"mean and 95% CI over {over} seeds; dots: single seeds"


def absence_lines(frame: pd.DataFrame) -> list[str]:
    short = frame[frame["n"] < frame["planned"]]
    lines = [f"{r.label}: {r.n} of {amount_text(r.planned, 'seed')} finished ({r.gap})" for r in rows_of(short[:NAMED])]
    if len(short) > NAMED:
        lines.append(f"and {len(short) - NAMED} more arms with unfinished seeds, see the table")
    return lines


def earlier_look_lines(frame: pd.DataFrame) -> list[str]:
    names = ", ".join(frame["label"][frame["earlier"]])
    return [f"{EARLIER_LINE.removesuffix('.')}: {names}."] if names else []


def minus_text(value: float, digits: int = 1) -> str:
    """Return a number as text with a typographic minus sign."""
    return f"{value:z.{digits}f}".replace("-", "\N{MINUS SIGN}")


def signed_text(value: float, digits: int = 1) -> str:
    return f"{value:+z.{digits}f}".replace("-", "\N{MINUS SIGN}")
