"""What the figures draw: the table's rows beside the plan's arms, in the unit that a reader expects."""

from collections.abc import Iterator
from numbers import Real
from typing import Any

import pandas as pd

from results.study import StudyResults
from results.tables import Table
from results.units import name, unit

Plan = dict[str, Any]


def metric_name(metric: str) -> str:
    """test_accuracy -> "test accuracy"."""
    return name(metric.replace("val_", "validation_"))


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
    """A row an arm, in plan order: the table's numbers in the metric's unit, and where the arm stands.

    Columns: arm, x (its value of `x_of`), series (its other factors' values), reference (it is a baseline),
    n, planned, gap (why trials are absent, or ""), mean, low, high, delta, delta_low, delta_high, verdict, published,
    flops. What the table does not have is NaN.
    """
    plan, scale = study.plan, unit(table["metric"]).scale
    x, rows = x_of(plan), {row["arm"]: row for row in table["rows"]}
    frame = pd.DataFrame([arm_row(arm, rows[arm["name"]], x, plan, scale) for arm in plan["arms"]])
    numbers = ["mean", "low", "high", "delta", "delta_low", "delta_high", "published", "flops"]
    return frame.astype(dict.fromkeys(numbers, float))


def arm_row(arm: dict[str, Any], row: dict[str, Any], x: str, plan: Plan, scale: float) -> dict[str, Any]:
    low, high = row["ci95"] or (None, None)
    delta_low, delta_high = row["delta_ci95"] or (None, None)
    scaled = {
        "mean": row["mean"],
        "low": low,
        "high": high,
        "delta": row["delta"],
        "delta_low": delta_low,
        "delta_high": delta_high,
        "published": row["published"],
    }
    return {
        "arm": arm["name"],
        "x": arm["values"].get(x, arm["name"]),
        "series": series(arm["values"], x, plan),
        "reference": arm["name"] == arm["baseline"],
        "verdict": row["verdict"],
        "n": row["n"],
        "planned": row["planned"],
        "gap": gap(row),
        "flops": row["flops"],
        **{name: None if value is None else value * scale for name, value in scaled.items()},
    }


def series(values: dict[str, Any], x: str, plan: Plan) -> str:
    """The name of the line that an arm lies on: its values of every factor but the axis."""
    others = [name for name in plan["factors"] if name != x]
    if len(others) == 1:
        return str(values.get(others[0], ""))
    return ", ".join(f"{name}={values[name]}" for name in others if name in values)


def gap(row: dict[str, Any]) -> str:
    """Why an arm has fewer finished trials than planned: "1 diverged, 2 missing"; "" where it has them all."""
    counts = {word: row[word] for word in ("diverged", "failed", "missing")}
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
    return f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")
