"""The kinds of figure that draw the metric over a setting: `axis`, `scale`, `learning-rate` and `new-size`."""

import re
from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.figures import plots
from results.figures.frame import arms_frame, seeds_frame, series_label, signed_text, table_for_metric, x_setting
from results.figures.kinds import FigureKind
from results.figures.kinds.curves import add_dash_entries, draw_arms
from results.figures.page import GREY, add_panels, draw_legend
from results.records import NO_VERDICT, Table
from results.store.schemas.metrics import Metric, test_condition
from results.store.schemas.plans import Plan
from results.study_results import StudyResults
from results.units import amount_text

FEW_SHOT = "fewshot5_accuracy"
SETTING = {"": "image_size", "patch": "patch"}  # what a test@... eval varies -> setting
TESTED = re.compile(r"test_\w+@(patch|)([1-9]\d*)")  # groups: what the metric's eval varies, and its value


def draw_axis(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draw the metric over an ordered factor, with the forward FLOPs of each value on a second axis."""
    frame = arms_frame(study, table)
    x = x_setting(study.plan)
    metric = table.plan.primary_metric
    (ax,) = add_panels(figure, 1, 2.6)
    labels = plots.tick_labels(frame)
    if frame["series"].nunique() == 1:  # the verdict below each value
        words = frame.sort_values("at", kind="stable")["word"]
        labels = [f"{value}\n{word}" for value, word in zip(labels, words, strict=True)]
    plots.draw_over_axis(frame, seeds_frame(study, metric), ax, metric, x, labels)
    if frame["flops"].notna().any():
        draw_flops(frame, ax.twinx())
    ax.set_zorder(1)  # the metric in front of its cost
    ax.patch.set_visible(False)
    draw_legend(ax)
    return plots.series_notes(frame, x)


def draw_flops(frame: pd.DataFrame, ax: Axes) -> None:
    size, name = plots.flops_unit(frame["flops"].max())
    for rows in plots.series_rows(frame):
        ax.plot(rows["at"], rows["flops"] / size, color=GREY, linestyle=":", linewidth=1.0, marker="_", markersize=9)
    ax.grid(visible=False)
    ax.spines["right"].set(visible=True, color=GREY)
    low = frame["flops"].min() / size / 1.5
    high = frame["flops"].max() / size * 1.5
    ax.set(yscale="log", ylim=(low, high))
    plots.set_log_ticks(ax.yaxis, low, high)
    ax.tick_params(axis="y", colors=GREY)
    ax.set_ylabel(f"compute: {name} per image (dotted)", color=GREY)


def draw_scale(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draw the metric over the amount of data (arXiv 2010.11929, Figures 3 and 4).

    Few-shot accuracy, if it was measured, is in a second panel.
    """
    frame = arms_frame(study, table)
    x = x_setting(study.plan)
    labels = scale_tick_labels(frame, x, study.history)
    ax, *others = add_panels(figure, 1 + has_few_shot(study), 2.6)
    metric = table.plan.primary_metric
    few_shot = table.plan.metric_named(FEW_SHOT)
    plots.draw_over_axis(frame, seeds_frame(study, metric), ax, metric, x, labels)
    steps = sorted(set(study.trials["steps"].dropna().astype(int)))
    title = ""
    if len(steps) == 1:
        title = f"every point: {amount_text(steps[0], 'step')}"
    elif steps:
        title = f"steps differ: {steps[0]:,} to {steps[-1]:,}"
    draw_legend(ax, title)
    notes = plots.series_notes(frame, x)
    for beside in others:
        frame = arms_frame(study, table_for_metric(study, FEW_SHOT))
        plots.draw_over_axis(frame, seeds_frame(study, few_shot), beside, few_shot, x, labels)
        notes.append("Few-shot accuracy is described, not tested: only the baseline's marks are filled.")
    return notes


def has_few_shot(study: StudyResults) -> bool:
    """Return whether a trial has the 5-shot accuracy that the plan asks for besides its metric."""
    is_asked = study.plan.metric != FEW_SHOT and "fewshot" in study.plan.evals  # else only other studies' arms have it
    return is_asked and FEW_SHOT in study.numbers


def scale_tick_labels(frame: pd.DataFrame, x: str, history: pd.DataFrame) -> list[str]:
    """Return a label for each value of `at`. A data fraction's has the number of images, or a range if folds differ."""
    if not f".{x}".endswith(".data_fraction"):
        return plots.tick_labels(frame)
    seen = history[(history["epoch"] > 0) & (x == "data_fraction")].merge(frame[["arm", "at"]], on="arm")
    images = (seen["images"] / seen["epoch"]).groupby([seen["at"], seen["arm"], seen["seed"]]).median()
    counts = images.groupby("at").agg(["min", "max"])
    labels = []
    for at in sorted(set(frame["at"])):
        label = f"{plots.value_text(100 * at)}%"
        if at in counts.index:
            low, high = (f"{counts.loc[at, end]:,.0f}" for end in ("min", "max"))
            label += f"\n{low} images" if low == high else f"\n{low}\N{EN DASH}{high}\nimages"
        labels.append(label)
    return labels


def draw_learning_rate(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draw the metric over the learning rate, and validation over training.

    In arXiv 2010.11929, Figure 9, two classification heads tie, each at a different learning rate. So the learning rate
    is an axis of this figure.
    """
    frame = arms_frame(study, table)
    x = x_setting(study.plan)
    evaluations = study.history.groupby(["arm", "seed"])["step"].nunique()
    has_curves = bool(evaluations.empty or (evaluations > 1).any())  # else trials were evaluated only once
    metric = table.plan.primary_metric
    final, *others = add_panels(figure, 1 + has_curves, 2.9)
    plots.draw_over_axis(frame, seeds_frame(study, metric), final, metric, x)
    draw_legend(final, "at the end of training")
    notes = [plots.marks_note(x), *plots.baseline_notes(frame), *tuned_note(study, table)]
    for training in others:
        lines, tuned, below = draw_arms(study, frame, training, "step")
        title = "over training"
        if not tuned:
            title += f", by {plots.axis_name(x)}"
            add_dash_entries(lines, training)
        draw_legend(training, title)
        notes += below
    return notes


def tuned_note(study: StudyResults, table: Table) -> list[str]:
    changes = {entry.name: entry.change for entry in study.plan.tuned}
    metric = table.plan.primary_metric
    differences = []
    for row in table.rows:
        if row.arm in changes and row.delta is not None:
            difference = f"{signed_text(row.delta * metric.scale)}{metric.unit_of_difference}"
            verdict = (row.verdict or NO_VERDICT).replace("-", " ")
            differences.append(f"{series_label(changes[row.arm])} {difference}, {verdict}")
    if not differences:
        return []
    return [f"Each at its own {' and '.join(map(plots.axis_name, study.plan.tune))}: {'; '.join(differences)}."]


def draw_new_size(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draw the accuracy over test image size or patch size, of models trained at one value of this setting."""
    sizes = metrics_by_size(study)
    metric = base_metric(study.plan)
    parts = [frames_at_size(study, table, size, name) for size, name in sizes.items()]
    frame, points = (pd.concat(frames, ignore_index=True) for frames in zip(*parts, strict=True))
    (ax,) = add_panels(figure, 1, 3.0)
    trained = training_size(study)
    labels = {size: plots.value_text(size) for size in sizes}
    labels[trained] += "\n(trained)"
    plots.draw_over_axis(frame, points, ax, metric, SETTING[varied_in_test(study)], [*labels.values()])
    ax.set_xlabel(f"test {ax.get_xlabel()}")
    ax.axvline(trained, color=GREY, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    draw_legend(ax)
    tested = test_condition(study.plan.metric) or "at the size of training"
    marks = plots.filled_note(f" {tested}, where the study tests")
    untested = "Other sizes are described, not tested: only the baseline's marks are filled."
    return [f"{marks} {untested}", *plots.baseline_notes(frame)]


def metrics_by_size(study: StudyResults) -> dict[float, str]:
    """Return test size -> metric, ascending. The training size has the base metric unless an eval measures it."""
    base = base_metric(study.plan).name
    kind = varied_in_test(study)
    metrics = {training_size(study): base}
    for name in [study.plan.metric, *(f"{base}@{name.partition('@')[2]}" for name in study.plan.evals)]:
        match = TESTED.fullmatch(name)
        if match and match[1] == kind:
            metrics[float(match[2])] = name
    return dict(sorted(metrics.items()))


def varied_in_test(study: StudyResults) -> str:
    match = TESTED.fullmatch(study.plan.metric)
    return match[1] if match else ""


def base_metric(plan: Plan) -> Metric:
    return plan.metric_named(plan.metric.partition("@")[0])


def training_size(study: StudyResults) -> float:
    baseline = next(arm for arm in study.plan.arms if arm.name == arm.baseline)
    size = baseline.config[SETTING[varied_in_test(study)]]
    if isinstance(size, str):
        raise ValueError(f"image_size={size}: the figure new-size shows square images only; set another figure")
    return float(size)


def frames_at_size(study: StudyResults, table: Table, size: float, metric: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return (`arms_frame`, `seeds_frame`) at one test size, where an arm is a series such as "wide@64"."""
    if metric != study.plan.metric:
        table = table_for_metric(study, metric)
    frame = arms_frame(study, table)
    points = seeds_frame(study, study.plan.metric_named(metric))
    at_size = f"@{size:g}"
    single = len(study.plan.factors) == 1 and not study.plan.curves
    lines = frame["label"].map(partial(series_label, single=single))
    frame = frame.assign(series=frame["arm"], line=lines, x=size, tick="", at=size, arm=frame["arm"] + at_size)
    return frame, points.assign(arm=points["arm"].astype(str) + at_size)


AXIS = FigureKind(draw_axis)
SCALE = FigureKind(draw_scale)
LEARNING_RATE = FigureKind(draw_learning_rate, whole_grid=True)
NEW_SIZE = FigureKind(draw_new_size, metric_of=lambda study: base_metric(study.plan))
