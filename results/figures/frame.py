"""What the figures draw: the table's rows beside the plan's arms, in the unit that a reader expects."""

import re
from collections.abc import Iterator
from numbers import Real
from typing import Any

import pandas as pd

from results.records import Row, Table
from results.study_results import StudyResults
from results.style import current
from results.units import name, unit

Plan = dict[str, Any]
NUMBER = r"-?[\d.]+(e-?\d+)?"


def metric_name(metric: str) -> str:
    """test_accuracy -> "test accuracy"."""
    return current().labels.get(metric) or name(metric.replace("val_", "validation_"))


def metric_label(metric: str) -> str:
    """What an axis of the metric is called: "test accuracy (%)"."""
    sign = unit(metric).of_value
    return f"{metric_name(metric)} ({sign})" if sign else metric_name(metric)


def x_of(plan: Plan) -> str:
    """The axis of a study: its curve; without one, its first factor that is a number; else its first factor."""
    if plan["curves"]:
        return str(next(iter(plan["curves"])))
    numeric = [name for name, values in plan["factors"].items() if all(map(is_number, values))]
    return str((numeric or list(plan["factors"]) or ["arm"])[0])


def is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def arms(study: StudyResults, table: Table) -> pd.DataFrame:
    """A row an arm, in the style's order, else the plan's: the table's numbers in the metric's unit, and its place.

    Columns: arm, label (what is written for it), x (its value of `x_of`), tick (what is written for that, if the style
    says), series (its other factors' values) and line (what is written for that), reference (it is a baseline),
    n, planned, gap (why trials are absent, or ""), mean, low, high, delta, delta_low, delta_high, verdict, published,
    flops. What the table does not have is NaN.
    """
    plan, scale = study.plan, unit(table.metric).scale
    x, rows = x_of(plan), {row.arm: row for row in table.rows}
    ordered = sorted(plan["arms"], key=lambda arm: current().rank(arm["name"]))
    frame = pd.DataFrame([arm_row(arm, rows[arm["name"]], x, plan, scale) for arm in ordered])
    numbers = ["mean", "low", "high", "delta", "delta_low", "delta_high", "published", "flops"]
    return frame.astype(dict.fromkeys(numbers, float))


def arm_row(arm: dict[str, Any], row: Row, x: str, plan: Plan, scale: float) -> dict[str, Any]:
    low, high = row.ci95 or (None, None)
    delta_low, delta_high = row.delta_ci95 or (None, None)
    scaled = {
        "mean": row.mean,
        "low": low,
        "high": high,
        "delta": row.delta,
        "delta_low": delta_low,
        "delta_high": delta_high,
        "published": row.published,
    }
    at, style = arm["values"].get(x, arm["name"]), current()
    return {
        "arm": arm["name"],
        "label": style.label(arm["name"]),
        "x": at,
        "tick": style.labels.get(f"{x}={at}", ""),
        "series": series(arm, x, plan),
        "line": written(series(arm, x, plan), single=len({*plan["factors"], *plan["curves"]} - {x}) == 1),
        "reference": arm["name"] == arm["baseline"],
        "verdict": row.verdict,
        "n": row.n,
        "planned": row.planned,
        "gap": gap(row),
        "flops": row.flops,
        **{name: None if value is None else value * scale for name, value in scaled.items()},
    }


def series(arm: dict[str, Any], x: str, plan: Plan) -> str:
    """The name of the line that an arm lies on: what it changes, and its place on every axis but `x`."""
    change, values = changed(arm, plan), arm["values"]
    if x in plan["factors"] and not given_name(arm, plan):
        change = ",".join(f"{name}={values[name]}" for name in plan["factors"] if name != x and name in values)
    others = [f"{name}={values[name]}" for name in plan["curves"] if name != x and name in values]
    return ",".join([change, *others] if change else others)


def written(name: str, single: bool = True) -> str:
    """What is written for a series: of a single factor, where there is no other, a word of its own is enough."""
    label = current().label(name)
    if label != name:
        return label
    value = name.partition("=")[2]
    alone = single and name.count("=") == 1 and not re.fullmatch(NUMBER, value)
    return value if alone else name.replace(",", ", ")


def alone(frame: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    """The rows with a series along the study's curve; without a curve, every arm is a series of its own."""
    if plan["curves"]:
        return frame
    if len(plan["factors"]) == 1:
        return frame.assign(series=frame["arm"], line=[written(arm) for arm in frame["arm"]])
    return frame.assign(series=frame["arm"], line=frame["label"].str.replace(",", ", "))


def changed(arm: dict[str, Any], plan: Plan) -> str:
    """An arm's name without the point of the curves."""
    point = "".join(f",{name}={arm['values'][name]}" for name in plan["curves"] if name in arm["values"])
    return str(arm.get("change") or arm["name"].removesuffix(point))  # plans written before the field existed


def given_name(arm: dict[str, Any], plan: Plan) -> str:
    """What a study calls an arm that changes several things; "" for one that is named by its factors."""
    change = changed(arm, plan)
    return "" if all(part.partition("=")[0] in plan["factors"] for part in change.split(",")) else change


def gap(row: Row) -> str:
    """Why an arm has fewer finished trials than planned: "1 diverged, 2 missing"; "" where it has them all."""
    counts = {"diverged": row.diverged, "failed": row.failed, "missing": row.missing}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


def each(frame: pd.DataFrame) -> Iterator[Any]:
    """The rows with their columns as attributes; what type each has, `arms` says."""
    return iter(frame.itertuples())


def seeds(study: StudyResults, metric: str) -> pd.DataFrame:
    """A row a finished trial: arm, seed, value in the metric's unit."""
    finished = study.trials[study.trials["status"] == "finished"]
    if metric not in finished:
        return pd.DataFrame({"arm": [], "seed": [], "value": []})
    rows = finished[["arm", "seed"]].assign(value=finished[metric] * unit(metric).scale)
    return rows.dropna(subset="value").reset_index(drop=True)


def evidence(frame: pd.DataFrame) -> str:
    """What stands behind the marks: "mean and 95% CI over 5 seeds; dots: single seeds"."""
    counts = sorted(set(frame["n"][frame["n"] > 0]))
    if not counts:
        return "no finished trial yet"
    if counts == [1]:
        return "1 seed: no interval"
    over = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"mean and 95% CI over {over} seeds; dots: single seeds"


def number(value: float, digits: int = 1) -> str:
    """A number with a true minus sign: "−18.2"."""
    return f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def signed(value: float, digits: int = 1) -> str:
    """A difference with its sign: "+0.4", "−18.2"."""
    return f"{value:+z.{digits}f}".replace("-", "\N{MINUS SIGN}")
