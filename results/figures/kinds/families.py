"""The figure kind `families`: the metric over training compute (arXiv 2010.11929, Figure 5).

Each model family with enough seeds has a fitted power law.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures import axes, lines
from results.figures.frame import arms_frame, minus_text, one_series_per_arm, seeds_frame
from results.figures.page import add_panels, draw_legend
from results.records import Table
from results.statistics import intervals, power_law
from results.statistics.power_law import MIN_SIZES, Fits
from results.store.schemas import Arm, Metric
from results.study_results import StudyResults
from results.style import current_style
from results.units import amount_text

DRAWN = 40  # points of a fitted curve
LEAST = 3  # fewest seeds for which a fit is drawn
MARKS = "Filled: the baseline, and what differs from it (Holm-adjusted p < 0.05). Open: equivalent, or not resolved."


def draw(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    frame, metric = families_frame(study, table), table.plan.primary_metric
    size, flops = axes.flops_unit(frame["flops"].max())
    looks = lines.with_styles(frame.assign(reference=False))  # no black: the baseline belongs to a family
    frame = looks.assign(at=frame["flops"] / size, reference=frame["reference"])
    (ax,) = add_panels(figure, 1, 3.0)
    points = seeds_frame(study, metric)
    series = {str(name): rows for name, rows in frame.groupby("series", sort=False)}
    errors = {name: errors_by_seed(rows, points, metric) for name, rows in series.items()}
    fits = {name: power_law.fit(own) for name, own in errors.items()}
    fitted = {name: fit for name, fit in fits.items() if fit and len(fit.b) >= LEAST}
    axes.set_compute_axes(frame, points, ax, metric, f"total training compute ({flops})")
    for name, rows in series.items():
        lines.draw_points(rows, points, ax, seed_offset=4.0)
        if name in fitted:
            draw_fit(fitted[name], ax, rows["colour"].iloc[0], metric)
        lines.add_legend_line(ax, rows, rows["line"].iloc[0], linestyle="-" if name in fitted else "")
    lines.draw_spread_absences(frame, ax)
    draw_legend(ax)
    notes = [MARKS, fits_note(frame, fitted)]
    if count := sum(int((error <= 0).sum()) for by_seed in errors.values() for _, error in by_seed.values()):
        notes.append(f"In no fit, as an error of 0 has no logarithm: {amount_text(count, 'trial')}.")
    return notes


def families_frame(study: StudyResults, table: Table) -> pd.DataFrame:
    """Return `arms_frame` with training FLOPs as `flops`. An arm's `series` is its model family if it has one."""
    frame = one_series_per_arm(arms_frame(study, table), study.plan)
    planned = {arm.name: arm for arm in study.plan.arms}
    family = [planned[arm].model_family or "" for arm in frame["arm"]]
    label = [current_style().label(name) for name in family]
    return frame.assign(
        series=np.where(family, family, frame["series"]),
        line=np.where(family, label, frame["line"]),
        flops=[training_flops(planned[arm]) for arm in frame["arm"]],
    )


def training_flops(arm: Arm) -> float:
    """Return the training FLOPs in an arm's plan, or else 3 times the forward FLOPs of all its training images."""
    return float(arm.train_flops or 3 * (arm.flops or 0) * arm.config["steps"] * arm.config["batch"])


def errors_by_seed(rows: pd.DataFrame, points: pd.DataFrame, metric: Metric) -> power_law.Points:
    """Return seed -> arrays (compute, error) for one series. The error is 1 - accuracy, or the loss itself."""
    own = points.merge(rows[["arm", "at"]], on="arm")
    error = 1 - own["value"] / metric.scale if metric.is_accuracy else own["value"]
    by_seed = own.assign(error=error).groupby("seed", sort=False)
    return {seed: (one["at"].to_numpy(), one["error"].to_numpy()) for seed, one in by_seed}


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


def fits_note(frame: pd.DataFrame, fitted: dict[str, Fits]) -> str:
    """Return the note that gives the fitted exponents and names the series without a fit."""
    labels = dict(zip(frame["series"], frame["line"], strict=True))
    planned, texts = frame.groupby("series")["planned"].max(), []
    for name, fit in fitted.items():
        interval, seeds = intervals.mean(fit.b).interval(), len(fit.b)
        b = minus_text(float(fit.b.mean()), 2)
        b += "" if interval is None else f" [{minus_text(interval[0], 2)}, {minus_text(interval[1], 2)}]"
        b += "" if seeds == planned[name] else f" ({seeds} of {planned[name]} seeds)"
        texts.append(f"{labels[name]} {b}")
    found = ", ".join(texts)
    short = ", ".join(label for name, label in labels.items() if name not in fitted)
    law = f"Lines: error = a C^\N{MINUS SIGN}b, fitted per seed, no further than its sizes, 95% t band; b: {found}."
    without = f"No fit, fewer than {LEAST} seeds with {MIN_SIZES} sizes: {short}."
    return " ".join([law] * bool(found) + [without] * bool(short))
