"""The kinds of figure that draw the metric over compute: `compute`, `families` and `shape`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures import plots
from results.figures.frame import arm_change, arms_frame, given_name, minus_text, one_series_per_arm, seeds_frame
from results.figures.kinds import FigureKind
from results.figures.page import add_panels, draw_legend
from results.records import Table
from results.statistics import intervals
from results.statistics.intervals import Estimate
from results.store.schemas import Arm, Metric, Plan
from results.study_results import StudyResults
from results.style import current_style
from results.units import amount_text

RESOLVED_MARKS = "Filled marks differ from the baseline (Holm-adjusted p < 0.05); open ones do not, or cannot be told."
DRAWN = 40  # points of a fitted curve
LEAST = 3  # fewest seeds for which a fit is drawn
FAMILY_MARKS = (
    "Filled: the baseline, and what differs from it (Holm-adjusted p < 0.05). Open: equivalent, or not resolved."
)
WAYS = {"mlp_ratio": "width of the MLP", "patch": "patch size", "depth": "depth", "width": "width"}
BASE = "baseline"
ALL = "all"
APART = 6.0  # points (1/72 inch) between markers at one position
MIN_SIZES = 4  # fewest sizes for a fit of two parameters
Points = Mapping[Any, tuple[np.ndarray, np.ndarray]]  # seed -> compute (sizes,), error (sizes,)


@dataclass(frozen=True)
class Fits:
    """Least-squares fits of log error on log compute, one per seed.

    a, b (seeds,): the coefficients of error = a C^-b, where C is the compute.
    low, high: the range of compute that all fits share.
    """

    a: np.ndarray
    b: np.ndarray
    low: float
    high: float

    def predict(self, compute: np.ndarray) -> tuple[np.ndarray, list[Estimate]]:
        """Return (means over seeds (points,), an Estimate per point) of the fitted error at `compute` (points,).

        Raises ValueError if a point lies outside the fitted range.
        """
        if compute.min() < self.low * (1 - 1e-9) or compute.max() > self.high * (1 + 1e-9):
            raise ValueError(f"no extrapolation: fitted from {self.low:g} to {self.high:g}")
        errors = self.a * compute[:, None] ** -self.b  # (points, seeds)
        return errors.mean(axis=1), [intervals.mean(row) for row in errors]


def fit_power_law(points: Points) -> Fits | None:
    """Return the fits of all seeds that have a positive error at MIN_SIZES or more values of compute.

    Returns None if there is no such seed, or the seeds share no range of compute.
    """
    usable = []
    for compute, error in points.values():
        is_usable = np.isfinite(error) & (error > 0) & (compute > 0)
        if len(np.unique(compute[is_usable])) >= MIN_SIZES:
            usable.append((compute[is_usable], error[is_usable]))
    if not usable:
        return None
    lines = np.array([np.polynomial.polynomial.polyfit(np.log(c), np.log(e), 1) for c, e in usable])
    low = max(float(compute.min()) for compute, _ in usable)
    high = min(float(compute.max()) for compute, _ in usable)
    return Fits(np.exp(lines[:, 0]), -lines[:, 1], low, high) if low < high else None


def draw_compute(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draw the metric over forward compute, with a line per series (arXiv 2010.11929, Figure 5)."""
    frame = arms_frame(study, table)
    size, flops = plots.flops_unit(frame["flops"].max())
    frame = plots.with_styles(one_series_per_arm(frame, study.plan)).assign(at=frame["flops"] / size)
    (ax,) = add_panels(figure, 1, 3.2)
    points = seeds_frame(study, table.plan.primary_metric)
    plots.set_compute_axes(frame, points, ax, table.plan.primary_metric, f"compute: {flops} per image (forward)")
    for rows in plots.series_rows(frame):
        plots.draw_line(rows, ax)
        plots.draw_points(rows, points, ax)
    plots.draw_spread_absences(frame, ax)
    for rows in plots.series_rows(frame):
        if len(rows) == 1:
            rows = rows.assign(dash="")
        plots.add_legend_line(ax, rows, plots.legend_entry(rows))
    draw_legend(ax)
    return [RESOLVED_MARKS, *plots.baseline_notes(frame)]


def draw_families(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draw the metric over training compute (arXiv 2010.11929, Figure 5).

    Each model family with enough seeds has a fitted power law.
    """
    frame = families_frame(study, table)
    metric = table.plan.primary_metric
    size, flops = plots.flops_unit(frame["flops"].max())
    looks = plots.with_styles(frame.assign(reference=False))  # no black: the baseline belongs to a family
    frame = looks.assign(at=frame["flops"] / size, reference=frame["reference"])
    (ax,) = add_panels(figure, 1, 3.0)
    points = seeds_frame(study, metric)
    plots.set_compute_axes(frame, points, ax, metric, f"total training compute ({flops})")
    fits: dict[str, Fits] = {}  # label of a series -> its fit
    perfect = 0  # number of trials with an error of 0
    for _, rows in frame.groupby("series", sort=False):
        label = rows["line"].iloc[0]
        errors = errors_by_seed(rows, points, metric)
        perfect += sum(int((error <= 0).sum()) for _, error in errors.values())
        fit = fit_power_law(errors)
        plots.draw_points(rows, points, ax, seed_offset=4.0)
        dash = ""
        if fit and len(fit.b) >= LEAST:
            dash = "-"
            fits[label] = fit
            draw_fit(fit, ax, rows["colour"].iloc[0], metric)
        plots.add_legend_line(ax, rows, label, linestyle=dash)
    plots.draw_spread_absences(frame, ax)
    draw_legend(ax)
    notes = [FAMILY_MARKS, fits_note(frame, fits)]
    if perfect:
        notes.append(f"In no fit, as an error of 0 has no logarithm: {amount_text(perfect, 'trial')}.")
    return notes


def families_frame(study: StudyResults, table: Table) -> pd.DataFrame:
    """Return `arms_frame` with training FLOPs as `flops`. An arm's `series` is its model family if it has one."""
    frame = one_series_per_arm(arms_frame(study, table), study.plan)
    family = frame["planned_arm"].map(lambda arm: arm.model_family)
    return frame.assign(
        series=family.where(family != "", frame["series"]),
        line=family.map(current_style().label).where(family != "", frame["line"]),
        flops=frame["planned_arm"].map(training_flops),
    )


def training_flops(arm: Arm) -> float:
    """Return the training FLOPs in an arm's plan, or else 3 times the forward FLOPs of all its training images."""
    return float(arm.train_flops or 3 * (arm.flops or 0) * arm.config["steps"] * arm.config["batch"])


def errors_by_seed(rows: pd.DataFrame, points: pd.DataFrame, metric: Metric) -> Points:
    """Return seed -> arrays (compute, error) for one series. The error is 1 - accuracy, or the loss itself."""
    seeds_of_series = points.merge(rows[["arm", "at"]], on="arm")
    error = seeds_of_series["value"]
    if metric.is_accuracy:
        error = 1 - error / metric.scale
    by_seed = seeds_of_series.assign(error=error).groupby("seed", sort=False)
    return {seed: (of_seed["at"].to_numpy(), of_seed["error"].to_numpy()) for seed, of_seed in by_seed}


def draw_fit(fit: Fits, ax: Axes, colour: str, metric: Metric) -> None:
    """Draw the mean of the fits over seeds with its 95% t interval, within the fitted range of compute."""
    compute = np.geomspace(fit.low, fit.high, DRAWN)
    error, estimates = fit.predict(compute)
    intervals = [estimate.interval() for estimate in estimates]
    ax.plot(compute, metric_from_error(error, metric), color=colour, zorder=2)
    if all(intervals):
        low, high = (metric_from_error(end, metric) for end in np.array(intervals).T)
        ax.fill_between(compute, low, high, color=colour, alpha=0.12, linewidth=0)


def metric_from_error(error: np.ndarray, metric: Metric) -> np.ndarray:
    return metric.scale * (1 - error) if metric.is_accuracy else error


def fits_note(frame: pd.DataFrame, fits: dict[str, Fits]) -> str:
    """Return the note that gives the fitted exponents and names the series without a fit. fits: label -> fit."""
    exponents = []
    without = []
    for label, planned in frame.groupby("line", sort=False)["planned"].max().items():
        if label in fits:
            exponents.append(f"{label} {exponent_text(fits[str(label)], planned)}")
        else:
            without.append(str(label))
    notes = []
    if exponents:
        law = "error = a C^\N{MINUS SIGN}b, fitted per seed, no further than its sizes, 95% t band"
        notes.append(f"Lines: {law}; b: {', '.join(exponents)}.")
    if without:
        notes.append(f"No fit, fewer than {LEAST} seeds with {MIN_SIZES} sizes: {', '.join(without)}.")
    return " ".join(notes)


def exponent_text(fit: Fits, planned: int) -> str:
    """Return the mean exponent with its interval, and the number of seeds if it is not the planned number."""
    text = minus_text(float(fit.b.mean()), 2)
    interval = intervals.mean(fit.b).interval()
    if interval:
        text += f" [{minus_text(interval[0], 2)}, {minus_text(interval[1], 2)}]"
    if len(fit.b) != planned:
        text += f" ({len(fit.b)} of {planned} seeds)"
    return text


def draw_scaling(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draw the gain from each way of scaling a model (arXiv 2010.11929, Figure 8).

    All lines meet at the baseline.
    """
    frame = shape_frame(study, table)
    points = seeds_frame(study, table.plan.primary_metric)
    (ax,) = add_panels(figure, 1, 3.2)
    plots.set_compute_axes(frame, points, ax, table.plan.primary_metric, "relative compute (forward)")
    base = frame[frame["series"] == BASE]
    for name, rows in frame.groupby("series", sort=False):
        if name != BASE:
            line = pd.concat([rows, base]).sort_values("at", kind="stable")
            look = rows.iloc[0]
            ax.plot(line["at"], line["mean"], color=look["colour"], linestyle=look["dash"], zorder=2)
        for aside in sorted(set(rows["aside"])):
            plots.draw_points(rows[rows["aside"] == aside], points, ax, aside, 3.0)
        plots.add_legend_line(ax, rows, rows["line"].iloc[0])
    plots.draw_spread_absences(frame, ax)
    draw_legend(ax)
    return [f"{plots.filled_note()} Open: equivalent, or not resolved."]


def shape_frame(study: StudyResults, table: Table) -> pd.DataFrame:
    """Return `arms_frame` with `series` (the scaled dimension), `at` (compute relative to the baseline) and `aside`.

    aside: offset in points (1/72 inch) that keeps markers apart.
    """
    frame = arms_frame(study, table)
    ways = frame["planned_arm"].map(partial(scaled_dimension, plan=study.plan))
    base = frame["baseline"].map(frame.set_index("arm")["flops"])
    frame = frame.assign(series=ways, line=ways.map(way_label), at=frame["flops"] / base)
    together = frame.groupby(frame["at"].round(9))["at"]
    return plots.with_styles(frame.assign(aside=APART * (together.cumcount() - (together.transform("size") - 1) / 2)))


def way_label(name: str) -> str:
    """Return the legend label of a way of scaling."""
    return current_style().labels.get(name) or WAYS.get(name, plots.axis_name(name))


def scaled_dimension(arm: Arm, plan: Plan) -> str:
    """Return the only factor that an arm changes, or else its model family or ALL. A baseline has BASE."""
    if arm.name == arm.baseline:
        return BASE
    change = arm_change(arm, plan)
    if "," in change or given_name(arm, plan):
        return arm.model_family or ALL
    return change.partition("=")[0]


COMPUTE = FigureKind(draw_compute)
FAMILIES = FigureKind(draw_families)
SHAPE = FigureKind(draw_scaling)
