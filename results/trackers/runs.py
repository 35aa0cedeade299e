"""Collect what trackers record of a trial: its settings, its curves, its final metrics."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from results.store.schemas import Settings
from results.study_results import StudyResults
from results.tensorboard import events


@dataclass(frozen=True)
class TrackedRun:
    """A trial of a study. points: (seconds, step, scalars), the final metrics last."""

    study: str
    arm: str
    seed: int
    trial: str
    status: str
    config: Settings
    points: list[tuple[float, int, dict[str, float]]]

    @property
    def name(self) -> str:
        return f"{self.arm} seed={self.seed}"


def tracked(studies: Sequence[StudyResults]) -> Iterator[TrackedRun]:
    """Yield every trial that has been evaluated. Raises ValueError where there is none."""
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
                    points=[(seconds, step, dict(scalars)) for seconds, step, scalars in events(history, trial)],
                )
