"""A trainable of a few lines, whose loss has a closed form: it shows and tests what the engine asks of a trainable."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ablations.trainables.trainable import Parent, Trainable, TrainingContext, TrainingOutcome
from results import store
from results.store.schemas.base import Settings
from results.store.schemas.metrics import Metric

NAME = "closed_form:CLOSED_FORM"
HELPERS = str(Path(__file__).parent)  # on PYTHONPATH, so that workers find this module
DEFAULTS = {"rate": 0.5, "steps": 3, "pause": 0.0, "act": "", "seed": 0}
RECIPE = f"{{description: A curve., train: '{NAME}', config: {{steps: 3}}, seeds: 3}}"
STUDY = "{question: Which rate?, baseline: {rate: 0.5}, factors: {rate: [0.5, 0.25]}, margin: 0.01}"


def loss(settings: Settings, step: int) -> float:
    return float((1 - settings["rate"]) ** step + settings["rate"] * settings["seed"] / 1000)


class ClosedForm(Trainable):
    """Curves. act: Python source that runs before each step, and sees `step`, `run` and `context`."""

    keys = tuple(DEFAULTS)
    default_metric = "loss"
    how_it_runs = frozenset({"pause"})

    def resolve(self, settings: Mapping[str, Any]) -> Settings:
        if unknown := settings.keys() - DEFAULTS.keys():
            raise ValueError(f"unknown key '{min(unknown)}'")
        return {**DEFAULTS, **settings}

    def metrics(self, trials: object) -> list[Metric]:
        return [Metric(name="loss", higher_is_better=False)]

    def start_worker(self, plugins: Sequence[str], needs_gpu: bool) -> None:
        if "BROKEN" in os.environ:
            raise ValueError("no such library")

    def train(
        self, settings: Settings, run: store.Attempt, sources: Mapping[str, Parent], context: TrainingContext
    ) -> TrainingOutcome:
        saved = run.checkpoint()
        done = json.loads(saved)["step"] if saved else 0
        for step in range(done + 1, settings["steps"] + 1):
            exec(settings["act"], {"step": step, "run": run, "context": context})
            time.sleep(settings["pause"])
            run.log({"step": step, "epoch": 0.0, "images": 0, "seconds": 0.0, "loss": loss(settings, step)})
            run.progress(step, {"loss": loss(settings, step)})
            run.save_checkpoint(step, json.dumps({"step": step}).encode())
            if context.should_stop():
                return TrainingOutcome("stopped", {}, 0.0)
        run.save_weights(json.dumps(loss(settings, settings["steps"])).encode())
        return TrainingOutcome("finished", {"loss": loss(settings, settings["steps"])}, 0.1)


CLOSED_FORM = ClosedForm()
