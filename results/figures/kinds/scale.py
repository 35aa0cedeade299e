"""The figure kind `scale`: the metric over the amount of data, with few-shot accuracy in a second panel.

Compare arXiv 2010.11929, Figures 3 and 4.
"""

import pandas as pd
from matplotlib.figure import Figure

from results.figures.axes import tick_labels, value_text, with_positions
from results.figures.frame import arms_frame, seeds_frame, table_for_metric, x_setting
from results.figures.lines import baseline_notes, draw_over_axis, marks_note
from results.figures.page import add_panels, draw_legend
from results.records import Table
from results.study_results import StudyResults
from results.units import amount_text

FEW_SHOT = "fewshot5_accuracy"
HEIGHT = 2.6  # inches per panel


def draw(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    frame, x = with_positions(arms_frame(study, table)), x_setting(study.plan)
    labels = scale_tick_labels(frame, x, study.history)
    own, *others = add_panels(figure, 2 if has_few_shot(study) else 1, HEIGHT)
    metric, few_shot = table.plan.primary_metric, table.plan.metric_named(FEW_SHOT)
    draw_over_axis(frame, seeds_frame(study, metric), own, metric, x, labels)
    steps = sorted(set(study.trials["steps"].dropna().astype(int)))
    title = f"steps differ: {steps[0]:,} to {steps[-1]:,}" if steps else ""
    if len(steps) == 1:
        title = f"every point: {amount_text(steps[0], 'step')}"
    draw_legend(own, title)
    notes = [marks_note(x), *baseline_notes(frame)] if frame["series"].nunique() > 1 else []
    for beside in others:
        frame = with_positions(arms_frame(study, table_for_metric(study, FEW_SHOT)))
        draw_over_axis(frame, seeds_frame(study, few_shot), beside, few_shot, x, labels)
        notes.append("Few-shot accuracy is described, not tested: only the baseline's marks are filled.")
    return notes


def has_few_shot(study: StudyResults) -> bool:
    """Return whether a trial has the 5-shot accuracy that the plan asks for besides its metric."""
    owed = study.plan.metric != FEW_SHOT and "fewshot" in study.plan.evals  # else only arms of other studies have it
    return owed and FEW_SHOT in study.numbers


def scale_tick_labels(frame: pd.DataFrame, x: str, history: pd.DataFrame) -> list[str]:
    """Return a label for each value of `at`, in increasing order.

    A data fraction's label also has the number of images, or a range if folds differ, unless it is a stage's fraction.
    """
    if not f".{x}".endswith(".data_fraction"):
        return tick_labels(frame)
    seen, places = history[history["epoch"] > 0], dict(zip(frame["arm"], frame["at"], strict=True))
    images = (seen["images"] / seen["epoch"]).groupby([seen["arm"], seen["seed"]]).median().droplevel("seed")
    images = images[images.index.isin(places.keys() if x == "data_fraction" else [])]
    counts = images.groupby([places[arm] for arm in images.index]).agg(["min", "max"])
    labels = []
    for at in sorted(set(frame["at"])):
        low, high = (f"{counts.loc[at, end]:,.0f}" if at in counts.index else "" for end in ("min", "max"))
        number = f"\n{low} images" if low == high else f"\n{low}\N{EN DASH}{high}\nimages"
        labels.append(f"{value_text(100 * at)}%{number if low else ''}")
    return labels
