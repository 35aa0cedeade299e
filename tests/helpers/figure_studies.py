"""Make a study for each kind of figure, for tests and for the gallery of the documentation, and draw studies."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import synthetic
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from results.figures import study_figure
from results.figures.page import apply_style
from results.store.schemas.trials import EvalSummary
from results.study_results import StudyResults
from results.style import FULL


def draw_figure(study: StudyResults, width: float = FULL, x: str | None = None) -> Figure:
    with apply_style():
        figure = study_figure.figure(study, width, x=x)
        figure.draw_without_rendering()
    return figure


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_visible() and text.get_text()]


def words(figure: Figure) -> str:
    return " ".join(texts(figure)).replace("\n", " ")


def lines_of(ax: Axes, points: int) -> list[Line2D]:
    return [line for line in ax.lines if len(line.get_xdata()) == points]


@cache
def usual_figure(kind: str) -> Figure:
    return draw_figure(complete(kind))


def complete(figure: str, **given: Any) -> StudyResults:
    """Make the study that shows this kind of figure, by default that of position embeddings."""
    plans = {
        "learning-rate": synthetic.pooling,
        "axis": synthetic.patch_size,
        "scale": synthetic.dataset_scale,
        "compute": synthetic.hybrid_stem,
        "curves": synthetic.pooling,
        "shape": synthetic.model_shape,
        "families": synthetic.compute,
    }
    if figure == "isoflop":
        return at_equal_compute(**given)
    return synthetic.results(spread(plans.get(figure, synthetic.position)(figure=figure, **given)))


def spread(plan: dict[str, Any], ratio: float = 1.7) -> dict[str, Any]:
    """Give a different compute to every arm that has none of its own."""
    for k, arm in enumerate(plan["arms"]):
        arm["flops"] = arm.get("flops_of_its_own") or int(1.6e6 * ratio**k)
        arm["train_flops"] = 3 * arm["flops"] * 42_240
        arm["config"].setdefault("image_size", 8)
    return plan


def at_equal_compute(spread: float = 0.004, seeds: int = 5, **given: Any) -> StudyResults:
    """Make a study of widths at four budgets: the error is lowest at a width of 40 (C / 1e12)^0.3.

    The error is a parabola over log width. spread: standard deviation of a seed.
    """
    widths = [16, 32, 64, 128, 256]
    curves = {"steps": [500, 1000, 2000, 4000]}
    plan = synthetic.make_plan("shape", {"width": widths}, {"width": 64}, curves=curves, seeds=seeds, **given)
    plan |= {"figure": "isoflop", "budget": "flops"}
    rng = np.random.default_rng(0)
    accuracies = {}
    for arm in plan["arms"]:
        width, budget = arm["values"]["width"], arm["values"]["steps"] / 500
        arm |= {"train_flops": int(1e12 * budget), "params": 12 * width**2}
        error = 0.3 * budget**-0.25 + 0.03 * np.log(width / (40 * budget**0.3)) ** 2
        accuracies[arm["name"]] = list(1 - error + rng.normal(0, spread, seeds))
    return synthetic.results(plan, synthetic.from_accuracies(plan, accuracies))


def at_new_sizes() -> StudyResults:
    """Make a study trained at 8 pixels, tested at 16 with 20 points less, and not yet tested at 32."""
    plan = spread(synthetic.position(figure="new-size", metric="test_accuracy@16", evals=["test@16", "test@32"]))
    records = {}
    for trial, record in synthetic.simulate(plan).items():
        metrics = {"test_accuracy@16": record.values["test_accuracy"] - 0.2}
        records[trial] = replace(record, evals={"test@16": EvalSummary(metrics=metrics)})
    return synthetic.results(plan, records)


def incomplete(figure: str) -> StudyResults:
    """Return a study whose last arm diverged, whose first never started, and of whose second two seeds failed."""
    plan = complete(figure).plan
    first, second, *_, last = plan.arms
    known = synthetic.simulate(plan)
    holes = {trial.id: synthetic.hole("missing", "not started") for trial in first.trials}
    holes |= {trial.id: synthetic.hole("failed", "ValueError: boom") for trial in second.trials[:2]}
    for trial in last.trials:
        holes[trial.id] = synthetic.changed(known[trial.id], status="diverged", test_accuracy=np.nan)
    return synthetic.results(plan, holes)
