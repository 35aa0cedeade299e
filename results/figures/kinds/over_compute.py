"""The kinds of figure that draw the metric over compute: `compute`, `families` and `shape`."""

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures import plots
from results.figures.frame import arms_frame, minus_text, one_series_per_arm, seeds_frame
from results.figures.kinds import FigureKind
from results.figures.page import GREY, add_panels, draw_legend
from results.records import Table
from results.statistics import scaling
from results.statistics.best_sizes import BASE, scaled_dimension
from results.statistics.scaling import FURTHER, Law, group_of, training_flops
from results.store.schemas.metrics import Metric
from results.study_results import StudyResults
from results.style import current_style
from results.tables.scaling_table import with_interval

RESOLVED_MARKS = "Filled marks differ from the baseline (Holm-adjusted p < 0.05); open ones do not, or cannot be told."
DRAWN = 40  # points of a fitted curve
FAMILY_MARKS = (
    "Filled: the baseline, and what differs from it (Holm-adjusted p < 0.05). Open: equivalent, or not resolved."
)
LAW_MARKS = (
    "Lines: error = a C^\N{MINUS SIGN}b + c with its 95% band over seeds. Dashed: beyond the data, where nothing was "
    "trained."
)
WAYS = {"mlp_ratio": "width of the MLP", "patch": "patch size", "depth": "depth", "width": "width"}
APART = 6.0  # points (1/72 inch) between markers at one position


def draw_compute(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draw the metric over forward compute, with a line per series (arXiv 2010.11929, Figure 5)."""
    frame = arms_frame(study, table)
    size, flops = plots.flops_unit(frame["flops"].max())
    frame = plots.with_styles(one_series_per_arm(frame, study.plan)).assign(at=frame["flops"] / size)
    frame, unknown = split_by_compute(frame)
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
    return [RESOLVED_MARKS, *plots.baseline_notes(frame), *unknown]


def split_by_compute(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the arms whose compute, `at`, is known, and a note on the others."""
    is_known = frame["at"].notna()
    others = ", ".join(frame["label"][~is_known])
    return frame[is_known], [f"Not drawn, as their compute is unknown: {others}."] if others else []


def draw_families(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draw the metric over training compute (arXiv 2010.11929, Figure 5).

    A model family with enough seeds and sizes has a fitted power law, dashed beyond the data.
    """
    frame = families_frame(study, table)
    metric = table.plan.primary_metric
    size, flops = plots.flops_unit(frame["flops"].max())
    looks = plots.with_styles(frame.assign(reference=False))  # no black: the baseline belongs to a family
    frame = looks.assign(at=frame["flops"] / size, reference=frame["reference"])
    frame, unknown = split_by_compute(frame)
    (ax,) = add_panels(figure, 1, 3.0)
    points = seeds_frame(study, metric)
    laws = scaling.laws_of(study)
    fits = {group: law for group, law in laws.items() if isinstance(law, Law)}
    further = frame.assign(at=frame["at"] * (FURTHER if fits else 1))
    plots.set_compute_axes(pd.concat([frame, further]), points, ax, metric, f"total training compute ({flops})")
    for group, rows in frame.groupby("series", sort=False):
        label = rows["line"].iloc[0]
        plots.draw_points(rows, points, ax, seed_offset=4.0)
        if group in fits:
            draw_law(fits[str(group)], ax, rows["colour"].iloc[0], metric, size)
        plots.add_legend_line(ax, rows, label, linestyle="-" if group in fits else "")
    if fits:
        ax.plot([], [], color=GREY, linestyle="--", label="beyond the data")
    plots.draw_spread_absences(frame, ax)
    draw_legend(ax)
    return [FAMILY_MARKS, *law_notes(frame, laws, metric), *unknown]


def families_frame(study: StudyResults, table: Table) -> pd.DataFrame:
    """Return `arms_frame` with training FLOPs as `flops`, and the group of arms that share a law as `series`."""
    frame = one_series_per_arm(arms_frame(study, table), study.plan)
    family = frame["planned_arm"].map(lambda arm: arm.model_family)
    return frame.assign(
        series=frame["planned_arm"].map(partial(group_of, plan=study.plan)),
        line=family.map(current_style().label).where(family != "", frame["line"]),
        flops=frame["planned_arm"].map(training_flops),
    )


def draw_law(law: Law, ax: Axes, colour: str, metric: Metric, unit: float) -> None:
    low, high = law.measured.compute.min(), law.measured.compute.max()
    for start, end, dash in ((low, high, "-"), (high, FURTHER * high, "--")):
        compute = np.geomspace(start, end, DRAWN)
        middle, low_end, high_end = (metric_from_error(error, metric) for error in law.errors(compute))
        ax.plot(compute / unit, middle, color=colour, linestyle=dash, zorder=2)
        ax.fill_between(compute / unit, low_end, high_end, color=colour, alpha=0.12, linewidth=0)


def metric_from_error(error: np.ndarray, metric: Metric) -> np.ndarray:
    if metric.is_accuracy:
        return metric.scale * (1 - error)
    return metric.scale * error


def law_notes(frame: pd.DataFrame, laws: Mapping[str, Law | str], metric: Metric) -> list[str]:
    described = []
    without: dict[str, list[str]] = {}
    for group, rows in frame.groupby("series", sort=False):
        label = str(rows["line"].iloc[0])
        law = laws[str(group)]
        if isinstance(law, Law):
            described.append(f"{label} {law_text(law, int(rows['planned'].max()), metric)}")
        else:
            without.setdefault(law, []).append(label)
    notes = [f"No fit, {why}: {', '.join(labels)}." for why, labels in without.items()]
    if not described:
        return notes
    return [f"{LAW_MARKS} {'; '.join(described)}.", *notes]


def law_text(law: Law, planned: int, metric: Metric) -> str:
    write = partial(minus_text, digits=2)
    c = with_interval(law.c, law.c_interval, metric.value_text)
    text = f"b {with_interval(law.b, law.b_interval, write)}, c {c} {metric.unit}".rstrip()
    if law.c_interval[0] == 0:
        text += f", which may be 0: then b {with_interval(*law.slope, write)}"
    if law.measured.seeds != planned:
        text += f" ({law.measured.seeds} of {planned} seeds)"
    return text


def draw_scaling(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draw the gain from each way of scaling a model (arXiv 2010.11929, Figure 8).

    All lines meet at the baseline.
    """
    frame, unknown = split_by_compute(shape_frame(study, table))
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
    return [f"{plots.filled_note()} Open: equivalent, or not resolved.", *unknown]


def shape_frame(study: StudyResults, table: Table) -> pd.DataFrame:
    """Return `arms_frame` with the scaled dimension as `series`. `aside` keeps markers apart."""
    frame = arms_frame(study, table)
    style = current_style()
    ways = frame["planned_arm"].map(partial(scaled_dimension, plan=study.plan))
    base = frame["baseline"].map(frame.set_index("arm")["flops"])
    frame = frame.assign(
        series=ways,
        line=[style.labels.get(way) or WAYS.get(way, plots.axis_name(way)) for way in ways],
        at=frame["flops"] / base,
    )
    together = frame.groupby(frame["at"].round(9))["at"]
    return plots.with_styles(frame.assign(aside=APART * (together.cumcount() - (together.transform("size") - 1) / 2)))


COMPUTE = FigureKind(draw_compute)
FAMILIES = FigureKind(draw_families)
SHAPE = FigureKind(draw_scaling)
