"""The data behind figures: table rows and arms as a data frame, in display units."""

import re
from collections.abc import Iterator
from dataclasses import replace
from math import nan
from numbers import Real
from typing import Any

import pandas as pd

from results.records import Row, Table
from results.store.schemas import Arm, Metric, Plan
from results.study_results import StudyResults
from results.style import current_style
from results.tables.sentences import EARLIER, EARLIER_LINE, is_from_earlier_look
from results.tables.study_table import table as table_of
from results.units import amount_text

FEWEST = 3  # fewest seeds with an interval: with two seeds, it is wider than most axes
NUMBER = r"-?[\d.]+(e-?\d+)?"
IN_UNITS = ["mean", "low", "high", "delta", "delta_low", "delta_high", "published"]


def styled_metric_name(metric: Metric) -> str:
    """Return the label that the style gives a metric, by default the metric's readable name."""
    return current_style().labels.get(metric.name) or re.sub("^val ", "validation ", metric.title)


def metric_label(metric: Metric) -> str:
    """Return the axis label of a metric with its unit, such as "test accuracy (%)"."""
    return f"{styled_metric_name(metric)} ({metric.unit})" if metric.unit else styled_metric_name(metric)


def x_setting(plan: Plan) -> str:
    """Return the setting on the horizontal axis: the first curve, else numeric factor, else factor, else "arm"."""
    if plan.curves:
        return str(next(iter(plan.curves)))
    numeric = [name for name, values in plan.factors.items() if all(map(is_number, values))]
    return str((numeric or list(plan.factors) or ["arm"])[0])


def is_number(value: object) -> bool:
    """Return whether a value is a real number and not a boolean."""
    return isinstance(value, Real) and not isinstance(value, bool)


def arms_frame(study: StudyResults, table: Table) -> pd.DataFrame:
    """Return a data frame with a row per arm, in the style's order.

    Columns: arm, label, x (value of `x_setting`, by default the arm's name), tick (the style's label of x, or ""),
    series and line (name and label of the other settings), reference (whether the arm is a baseline), n and planned
    (numbers of finished and planned trials), gap ("1 diverged, 2 missing", or "" if no trial is absent), mean, low,
    high, delta, delta_low, delta_high, verdict, mark (of a verdict from an earlier look, or ""), published, flops. low
    and high are the 95% interval of the mean, delta_low and delta_high that of the difference delta. Metrics are in
    display units. Unknown numbers are NaN, and so are the intervals of fewer than FEWEST seeds. A missing verdict is
    "".
    """
    plan = study.plan
    x = x_setting(study.plan)
    rows = {row.arm: row for row in table.rows}
    ordered = sorted(plan.arms, key=lambda arm: current_style().rank(arm.name))
    frame = pd.DataFrame([arm_record(arm, rows[arm.name], x, plan) for arm in ordered])
    frame = frame.astype(dict.fromkeys([*IN_UNITS, "flops"], float))
    frame[IN_UNITS] *= table.plan.primary_metric.scale
    return frame


def arm_record(arm: Arm, row: Row, x: str, plan: Plan) -> dict[str, Any]:
    """Return one row of `arms_frame`, with metrics not yet in display units."""
    low, high = (row.ci95 if row.n >= FEWEST else None) or (None, None)
    delta_low, delta_high = (row.delta_ci95 if row.n >= FEWEST else None) or (None, None)
    absent = {word: row.value(word) for word in ("diverged", "failed", "missing")}
    at = arm.values.get(x, arm.name)
    style = current_style()
    return {
        "arm": arm.name,
        "label": style.label(arm.name),
        "x": at,
        "tick": style.labels.get(f"{x}={at}", ""),
        "series": series_name(arm, x, plan),
        "line": series_label(series_name(arm, x, plan), single=len({*plan.factors, *plan.curves} - {x}) == 1),
        "reference": arm.name == arm.baseline,
        "gap": ", ".join(f"{count} {word}" for word, count in absent.items() if count),
        "low": low,
        "high": high,
        "delta_low": delta_low,
        "delta_high": delta_high,
        "verdict": row.verdict or "",
        "mark": EARLIER if is_from_earlier_look(row) else "",
    } | {name: row.value(name) for name in ("n", "planned", "flops", "mean", "delta", "published")}


def table_for_metric(study: StudyResults, metric: str) -> Table:
    """Return the study's table with another metric, and without verdicts, as no test uses this metric."""
    columns = {metric: [nan] * len(study.columns["arm"])} | study.columns  # NaN for an eval that no trial has yet
    plan = study.plan.model_copy(update={"metric": metric, "claims": []})
    table = table_of(replace(study, plan=plan, columns=columns))
    return replace(table, rows=[replace(row, verdict=None) for row in table.rows])


def series_name(arm: Arm, x: str, plan: Plan) -> str:
    """Return the name of an arm's series (its line): the settings that it changes or sweeps, except `x`."""
    change = arm_change(arm, plan)
    values = arm.values
    if x in plan.factors and not given_name(arm, plan):
        change = ",".join(f"{name}={values[name]}" for name in plan.factors if name != x and name in values)
    others = [f"{name}={values[name]}" for name in plan.curves if name != x and name in values]
    return ",".join([change, *others] if change else others)


def series_label(name: str, single: bool = True) -> str:
    """Return the legend label of a series. single: whether one setting differs, so that "pool=gap" becomes "gap"."""
    label = current_style().label(name)
    if label != name:
        return label
    value = name.partition("=")[2]
    alone = single and name.count("=") == 1 and not re.fullmatch(NUMBER, value)
    return value if alone else name.replace(",", ", ")


def one_series_per_arm(frame: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    """Return the frame with every arm as a separate series, or unchanged if the study has swept settings."""
    if plan.curves:
        return frame
    labels = [series_label(arm, single=len(plan.factors) == 1) for arm in frame["arm"]]
    return frame.assign(series=frame["arm"], line=labels)


def arm_change(arm: Arm, plan: Plan) -> str:
    """Return an arm's name without the values of swept settings: "patch=8" for "patch=8,lr=0.001" if lr is swept."""
    point = "".join(f",{name}={arm.values[name]}" for name in plan.curves if name in arm.values)
    return str(arm.change or arm.name.removesuffix(point))


def given_name(arm: Arm, plan: Plan) -> str:
    """Return the name that the study gives an arm with several changes, or "" for an arm named by its factors."""
    change = arm_change(arm, plan)
    settings = {part.partition("=")[0] for part in change.split(",")}
    return "" if settings <= plan.factors.keys() else change


def rows_of(frame: pd.DataFrame) -> Iterator[Any]:
    """Yield the rows of a data frame as named tuples, with the columns as attributes."""
    return iter(frame.itertuples())


def seeds_frame(study: StudyResults, metric: Metric) -> pd.DataFrame:
    """Return a row per finished trial that has the metric: arm, seed, and value (the metric in display units)."""
    finished = study.trials[study.trials["status"] == "finished"].reindex(columns=["arm", "seed", metric.name])
    rows = finished.rename(columns={metric.name: "value"}).dropna(subset="value").reset_index(drop=True)
    return rows.assign(value=rows["value"] * metric.scale)


def evidence_text(frame: pd.DataFrame) -> str:
    """Return what the markers of a figure show, such as "mean and 95% CI over 5 seeds; dots: single seeds"."""
    counts = sorted(set(frame["n"][frame["n"] > 0]))
    if not counts:
        return "no finished trial yet"
    if counts[-1] < FEWEST:
        return f"{'1 or ' if len(counts) > 1 else ''}{amount_text(counts[-1], 'seed')}, no interval; dots: single seeds"
    over = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"mean and 95% CI over {over} seeds; dots: single seeds"


def earlier_look_lines(frame: pd.DataFrame) -> list[str]:
    """Return a line that names the arms with a verdict from an earlier look, or []."""
    names = list(frame["label"][frame["mark"] != ""])
    return [f"{EARLIER_LINE.removesuffix('.')}: {', '.join(names)}."] if names else []


def minus_text(value: float, digits: int = 1) -> str:
    """Return a number as text with a typographic minus sign."""
    return f"{value:z.{digits}f}".replace("-", "\N{MINUS SIGN}")


def signed_text(value: float, digits: int = 1) -> str:
    """Return a difference as text with a plus sign or a typographic minus sign."""
    return f"{value:+z.{digits}f}".replace("-", "\N{MINUS SIGN}")
