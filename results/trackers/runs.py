"""The content of a trial that trackers record: its settings, its curves and its final metrics."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from results.names import METRICS
from results.store.schemas import Settings
from results.study_results import StudyResults

CURVES = ("train_loss", "val_loss", "val_accuracy", "lr")

Point = tuple[float, int, dict[str, float]]  # seconds of training, step, scalars by name


@dataclass(frozen=True)
class TrackedRun:
    """A trial of a study, as trackers record it.

    points: one per evaluation, then one with the final metrics if there are any.
    """

    study: str
    arm: str
    seed: int
    trial: str
    status: str
    config: Settings
    points: list[Point]

    @property
    def name(self) -> str:
        """The run's name: the arm and the seed."""
        return f"{self.arm} seed={self.seed}"


def tracked(studies: Sequence[StudyResults]) -> Iterator[TrackedRun]:
    """Yield every trial that has been evaluated. Raises ValueError if no trial has been evaluated."""
    if all(study.history.empty for study in studies):
        raise ValueError("nothing to export: no trial has been evaluated yet")
    for study in studies:
        lines = dict(list(study.history.groupby(["arm", "seed"], sort=False)))
        for trial in study.trials.to_dict("records"):
            history = lines.get((trial["arm"], trial["seed"]))
            if history is not None:
                yield TrackedRun(
                    study=study.name,
                    arm=str(trial["arm"]),
                    seed=int(trial["seed"]),
                    trial=str(trial["id"]),
                    status=str(trial["status"]),
                    config=json.loads(trial["config"] or "{}"),
                    points=list(points(history, trial)),
                )


def points(history: pd.DataFrame, trial: Mapping[Any, Any]) -> Iterator[Point]:
    """Yield a point per evaluation, and a last point with the final metrics if there are any.

    The last point has the time and step of the last evaluation. history: the trial's evaluations. trial: its row of
    `StudyResults.trials`.
    """
    seconds, step = 0.0, None
    for line in history.dropna(subset="step").to_dict("records"):
        seconds, step = 0.0 if math.isnan(line["seconds"]) else float(line["seconds"]), int(line["step"])
        yield seconds, step, without_nan({name: line[name] for name in CURVES})
    final = without_nan({name: trial[name] for name in final_metrics(trial)})
    if step is not None and final:
        yield seconds, step, final


def final_metrics(trial: Mapping[Any, Any]) -> list[str]:
    """Return the names of the metrics that are measured once: after training, and by the trial's evals."""
    evals = json.loads(trial["evals"] or "{}")
    later = [metric for name, found in evals.items() if name != "start" for metric in found["metrics"]]
    return [*(name for name in METRICS if name not in CURVES), *later]


def without_nan(values: Mapping[Any, float]) -> dict[str, float]:
    """Return the values that are not NaN, by name."""
    return {str(name): value for name, value in values.items() if not math.isnan(value)}
