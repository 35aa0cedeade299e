"""The metric over the amount of data, and few-shot accuracy beside it: arXiv 2010.11929, Figures 3 and 4."""

from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure

from results.figures.frame import arms, seeds, x_of
from results.figures.lines import marks, over_axis, place, plain, spelled, values
from results.figures.page import legend_above, legend_across, narrow
from results.records import Table
from results.study_results import StudyResults
from results.tables.study_table import table as table_of

FEW_SHOT = "fewshot5_accuracy"
HEIGHT = 2.6  # inches a panel


def scale(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    """Draws the study on `figure`; returns what to write under it."""
    frame, x = place(arms(study, table)), x_of(study.plan)
    beside, stacked = few_shot(study, table.metric), narrow(figure)
    panels = 2 if beside else 1
    figure.set_figheight(HEIGHT * panels if stacked else HEIGHT)
    axes = figure.subplots(*((panels, 1) if stacked else (1, panels)), squeeze=False).flat
    over_axis(frame, seeds(study, table.metric), axes[0], table.metric, x, ticks(frame, x, study.history))
    if beside and not stacked:
        legend_across(figure, axes[0], equal_steps(study.trials))
    else:
        legend_above(axes[0], equal_steps(study.trials))
    notes = [marks(x), *spelled(frame)] if frame["series"].nunique() > 1 else []
    if not beside:
        return notes
    frame, points = place(arms(beside, untested(table_of(beside)))), seeds(beside, FEW_SHOT)
    over_axis(frame, points, axes[1], FEW_SHOT, x, ticks(frame, x, study.history))
    return [*notes, "Few-shot accuracy is described, not tested: only the baseline's marks are filled."]


def few_shot(study: StudyResults, metric: str) -> StudyResults | None:
    """The same study by 5-shot accuracy, where its arms owe that, some have it and it is not the metric anyway.

    Of a study that owes none, those arms alone would have it that are trials of another one too.
    """
    owed = metric != FEW_SHOT and "fewshot" in study.plan.get("evals", [])
    known = owed and FEW_SHOT in study.trials and study.trials[FEW_SHOT].notna().any()
    return replace(study, plan=study.plan | {"metric": FEW_SHOT, "claims": []}) if known else None


def untested(table: Table) -> Table:
    """Without verdicts: the family of tests is of the study's own metric."""
    return replace(table, rows=[replace(row, verdict=None) for row in table.rows])


def ticks(frame: pd.DataFrame, x: str, history: pd.DataFrame) -> list[str]:
    """A label a place on the axis; of images that a stage was trained on, their share alone: trials are the arms'."""
    if x == "data_fraction":
        return sizes(frame, history)
    return [f"{plain(100 * at)}%" for at in sorted(set(frame["at"]))] if x.endswith(".data_fraction") else values(frame)


def sizes(frame: pd.DataFrame, history: pd.DataFrame) -> list[str]:
    """A label a size: the share of the training images over their number, where a trial tells it.

    Folds are of unequal size, so that it is a range.
    """
    images, places = training_images(history), dict(zip(frame["arm"], frame["at"], strict=True))
    images = images[images.index.isin(places.keys())]
    counts = images.groupby([places[arm] for arm in images.index]).agg(["min", "max"])
    return [
        f"{plain(100 * at)}%{counted(counts.loc[at]) if at in counts.index else ''}" for at in sorted(set(frame["at"]))
    ]


def counted(found: pd.Series) -> str:
    """Lines of a label: "1,294 images", "1,294\N{EN DASH}1,296" over "images"."""
    low, high = (f"{found[end]:,.0f}" for end in ("min", "max"))
    return f"\n{low} images" if low == high else f"\n{low}\N{EN DASH}{high}\nimages"


def training_images(history: pd.DataFrame) -> pd.Series:
    """Images that an epoch sees, of each trial: indexed by its arm."""
    seen = history[history["epoch"] > 0]
    return (seen["images"] / seen["epoch"]).groupby([seen["arm"], seen["seed"]]).median().droplevel("seed")


def equal_steps(trials: pd.DataFrame) -> str:
    """What every point was trained for, from the trials themselves: nothing is said before one has finished."""
    steps = sorted(set(trials["steps"].dropna().astype(int)))
    if not steps:
        return ""
    return f"every point: {steps[0]:,} steps" if len(steps) == 1 else f"steps differ: {steps[0]:,} to {steps[-1]:,}"
