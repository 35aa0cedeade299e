"""The figure kind `new-size`: accuracy over test image size or patch size.

The models are trained at one value of this setting.
"""

import re

import pandas as pd
from matplotlib.figure import Figure

from results.figures.axes import value_text
from results.figures.frame import arms_frame, seeds_frame, series_label, table_for_metric
from results.figures.kinds import Kind
from results.figures.lines import baseline_notes, draw_over_axis
from results.figures.page import add_panels, draw_legend
from results.figures.theme import GREY
from results.records import Table
from results.store.schemas import Metric, Plan
from results.store.schemas.metrics import test_condition
from results.study_results import StudyResults

SETTING = {"": "image_size", "patch": "patch"}  # what a test@... eval varies -> setting
TESTED = re.compile(r"test_\w+@(patch|)([1-9]\d*)")  # groups: what the metric's eval varies, and its value
TRAINED = "\n(trained)"


def draw(study: StudyResults, table: Table, figure: Figure) -> list[str]:
    sizes, metric = metrics_by_size(study), base_metric(study.plan)
    parts = [frames_at_size(study, table, size, name) for size, name in sizes.items()]
    frame, points = (pd.concat(found, ignore_index=True) for found in zip(*parts, strict=True))
    (ax,) = add_panels(figure, 1, 3.0)
    trained = training_size(study)
    places = [f"{value_text(size)}{TRAINED if size == trained else ''}" for size in sizes]
    draw_over_axis(frame, points, ax, metric, SETTING[varied_in_test(study)], places)
    ax.set_xlabel(f"test {ax.get_xlabel()}")
    ax.axvline(trained, color=GREY, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    if frame["series"].nunique() > 1:
        draw_legend(ax)
    tested = test_condition(study.plan.metric) or "at the size of training"
    marks = (
        f"Filled: differs from the baseline (diamond) {tested}, where the study tests, Holm-adjusted p < 0.05. Other "
        "sizes are described, not tested: only the baseline's marks are filled."
    )
    return [marks, *baseline_notes(frame)]


KIND = Kind(draw, metric_of=lambda study: base_metric(study.plan))


def metrics_by_size(study: StudyResults) -> dict[float, str]:
    """Return test size -> metric, ascending. The training size has the base metric unless an eval measures it."""
    base, kind = base_metric(study.plan).name, varied_in_test(study)
    names = [study.plan.metric, *(f"{base}@{name.partition('@')[2]}" for name in study.plan.evals)]
    tested = filter(None, map(TESTED.fullmatch, names))
    sized = {float(found[2]): found[0] for found in tested if found[1] == kind}
    return dict(sorted(({training_size(study): base} | sized).items()))


def varied_in_test(study: StudyResults) -> str:
    """Return what the study's metric varies in the test, as a key of SETTING."""
    found = TESTED.fullmatch(study.plan.metric)
    return found[1] if found else ""


def base_metric(plan: Plan) -> Metric:
    """Return the plan's metric without what its eval varies: test_accuracy for test_accuracy@16."""
    return plan.metric_named(plan.metric.partition("@")[0])


def training_size(study: StudyResults) -> float:
    """Return the baseline's training value of the varied setting, such as the image size in pixels."""
    baseline = next(arm for arm in study.plan.arms if arm.name == arm.baseline)
    return float(baseline.config[SETTING[varied_in_test(study)]])


def frames_at_size(study: StudyResults, table: Table, size: float, metric: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return (`arms_frame`, `seeds_frame`) at one test size, where an arm is a series named such as "wide@64"."""
    here = table if metric == study.plan.metric else table_for_metric(study, metric)
    frame, at_size = arms_frame(study, here), f"@{size:g}"
    points = seeds_frame(study, study.plan.metric_named(metric))
    single = len(study.plan.factors) == 1 and not study.plan.curves
    lines = [series_label(label, single=single) for label in frame["label"]]
    frame = frame.assign(series=frame["arm"], line=lines, x=size, tick="", at=size, arm=frame["arm"] + at_size)
    return frame, points.assign(arm=points["arm"].astype(str) + at_size)
