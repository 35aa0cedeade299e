"""The kind of figure that draws the metric over the size of a model at equal training compute: `isoflop`."""

import itertools
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures import plots
from results.figures.frame import metric_label, minus_text
from results.figures.kinds import FigureKind
from results.figures.kinds.over_compute import DRAWN, metric_from_error
from results.figures.page import FAINT, GREY, add_panels, draw_legend
from results.records import Table
from results.statistics import best_sizes
from results.statistics.best_sizes import Growth, Profile
from results.statistics.scaling import MIN_SEEDS, MIN_SIZES
from results.store.schemas.metrics import Metric
from results.study_results import StudyResults
from results.style import current_style
from results.tables.scaling_table import growth_sentence

WHAT = (
    "Curves: a parabola of the error over log size at each training budget. Diamonds: its minimum with a 95% interval "
    "over seeds, cut at the sizes trained; open without an interval."
)


def draw_isoflop(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draw the metric over model size, a curve for each training budget, and its best size over the budget.

    Each numeric factor has panels of its own (approach 2 of arXiv 2203.15556; the star sweep of arXiv 2305.13035).
    """
    profiles = best_sizes.profiles_of(study)
    if not profiles:
        (ax,) = add_panels(figure, 1, 2.0)
        ax.set(xticks=[], yticks=[])
        ax.text(0.5, 0.5, "no budget to fit yet", color=GREY, ha="center", va="center", transform=ax.transAxes)
        return [f"A fit needs {MIN_SIZES} sizes at equal training FLOPs, and {MIN_SEEDS} seeds that finished at all."]
    axes = add_panels(figure, 2 * len(profiles), 2.6, rows=len(profiles))
    for size, over_size, over_compute in zip(profiles, axes[::2], axes[1::2], strict=True):
        name = plots.axis_name(size)
        draw_profiles(profiles[size], table, over_size, name)
        draw_best(profiles[size], best_sizes.growth_of(profiles[size], study), over_compute, name)
    assert table.scaling
    write = partial(minus_text, digits=2)
    return [WHAT, *(growth_sentence(growth, plots.axis_name(growth.size), write) for growth in table.scaling.growth)]


def draw_profiles(profiles: Sequence[Profile], table: Table, ax: Axes, name: str) -> None:
    metric = table.plan.primary_metric
    rows = table.rows_by_arm
    sizes = np.unique(np.concatenate([profile.sizes for profile in profiles]))
    seeds = [metric_from_error(profile.measured.errors, metric) for profile in profiles]  # (seeds, sizes) each
    values = np.concatenate([measured.ravel() for measured in seeds])
    ax.set(xscale="log", xlim=plots.padded_limits(sorted(sizes), log=True), xlabel=f"{name}, log scale")
    ax.set(ylabel=metric_label(metric), ylim=plots.metric_limits(metric, values.min(), values.max(), 0.08))
    plots.set_log_ticks(ax.xaxis, *ax.get_xlim())
    unit, flops = plots.flops_unit(max(profile.compute for profile in profiles))
    for profile, measured, colour in zip(profiles, seeds, colours(), strict=False):
        for arm, size in zip(profile.arms, profile.sizes, strict=True):
            interval = rows[arm.name].ci95
            if interval:
                ax.plot([size, size], np.array(interval) * metric.scale, color=colour, linewidth=1.0)
        ax.plot(
            profile.sizes,
            measured.T,
            "o",
            color=colour,
            markersize=2.5,
            transform=plots.shifted_transform(ax, 4.0),
            **FAINT,
        )
        means = metric_from_error(profile.measured.means, metric)
        label = f"{profile.compute / unit:.3g} {flops}"
        ax.plot(profile.sizes, means, "o", color=colour, markerfacecolor="white", label=label, zorder=3)
        draw_parabola(profile, ax, colour, metric)
    draw_legend(ax, "training compute")


def draw_parabola(profile: Profile, ax: Axes, colour: str, metric: Metric) -> None:
    logs = np.log(profile.sizes)
    coefficients = profile.parabolas(profile.measured.means[None])[:, 0]

    def fitted(sizes: np.ndarray) -> np.ndarray:
        return metric_from_error(np.polyval(coefficients, np.log(sizes) - logs.mean()), metric)

    drawn = np.geomspace(profile.sizes.min(), profile.sizes.max(), DRAWN)
    ax.plot(drawn, fitted(drawn), color=colour, zorder=2)
    best = profile.optimum
    if best is None:
        return
    at = fitted(np.array([best]))[0]
    if profile.interval:
        ax.plot(np.clip(profile.interval, drawn[0], drawn[-1]), [at, at], color=colour, linewidth=2.2, alpha=0.5)
    ax.plot([best], [at], "D", color=colour, markerfacecolor=colour if profile.interval else "white", zorder=4)


def draw_best(profiles: Sequence[Profile], growth: Growth | str, ax: Axes, name: str) -> None:
    compute = np.array([profile.compute for profile in profiles])
    sizes = np.concatenate([profile.sizes for profile in profiles])
    unit, flops = plots.flops_unit(compute.max())
    limits = [plots.padded_limits(sorted(values), log=True) for values in (compute / unit, sizes)]
    ax.set(xscale="log", yscale="log", xlim=limits[0], ylim=limits[1])
    ax.set(xlabel=f"training compute ({flops}), log scale", ylabel=f"best {name}")
    plots.set_log_ticks(ax.xaxis, *limits[0])
    plots.set_log_ticks(ax.yaxis, *limits[1])
    for profile, colour in zip(profiles, colours(), strict=False):
        if profile.optimum is None:
            continue
        at = profile.compute / unit
        if profile.interval:
            ends = np.clip(profile.interval, profile.sizes.min(), profile.sizes.max())
            ax.plot([at, at], ends, color=colour, linewidth=2.2, alpha=0.5)
        ax.plot([at], [profile.optimum], "D", color=colour, markerfacecolor=colour if profile.interval else "white")
    if isinstance(growth, Growth):
        drawn = np.geomspace(growth.budgets.min(), growth.budgets.max(), DRAWN)
        middle, low, high = growth.sizes(drawn)
        ax.plot(drawn / unit, middle, color=GREY, zorder=1)
        if growth.interval:
            ax.fill_between(drawn / unit, low, high, color=GREY, alpha=0.12, linewidth=0)


def colours() -> Iterator[str]:
    return itertools.cycle(current_style().palette)


ISOFLOP = FigureKind(draw_isoflop)
