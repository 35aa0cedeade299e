"""Vision Transformers and their training by vitcore, as a trainable.

The methods import what they need when they are called: commands that only read plans and results load no torch.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ablations.faults import Fault
from ablations.trainables.trainable import Context, EvalResult, Outcome, Parent, Resources
from ablations.trainables.vit import machine_checks
from results import store
from results.store.schemas import Fact, PlannedData, Settings
from vitcore.config import Config
from vitcore.training.parents import LINKS


class Vit:
    links = LINKS
    seed_keys = frozenset({"seed", "data_seed"})

    def resolve(self, settings: Mapping[str, Any]) -> Settings:
        return Config(**settings).model_dump()

    def identity(self, settings: Settings) -> Settings:
        from vitcore.identity import identity

        return identity(Config(**settings))

    def resources(self, settings: Settings) -> Resources:
        return Resources(int(settings.get("gpus", 1)), settings["device"] == "cpu")

    def evaluation_fraction(self, settings: Settings, data: PlannedData | None) -> float:
        """See Trainable. Training on an image takes as long as evaluating three."""
        if data is None:  # in plans of earlier versions
            return 0.0
        evaluations = min(settings["evaluations"], settings["steps"])
        evaluated = evaluations * round(settings["val_fraction"] * data.train) + data.test
        return float(evaluated / (3 * settings["steps"] * settings["batch"]))

    def check_machine(self, settings: Settings, description: Settings) -> None:
        machine_checks.check_machine(settings, description)

    def check_data(self, trials: Sequence[Settings], to_train: Sequence[Settings], data_dir: Path | None) -> None:
        machine_checks.check_data(trials, to_train, data_dir)

    def start_worker(self, plugins: Sequence[str], needs_gpu: bool) -> None:
        from ablations.trainables.vit import training

        training.start_worker(plugins, needs_gpu)

    def environment(self, settings: Settings, needs_gpu: bool) -> dict[str, Fact]:
        from ablations.trainables.vit import training

        training.ensure_device(Config(**settings), needs_gpu)
        return training.environment(Config(**settings))

    def train(self, settings: Settings, run: store.Attempt, parents: Mapping[str, Parent], context: Context) -> Outcome:
        from ablations.trainables.vit import training

        return training.train(Config(**settings), run, parents, context)

    def compute_eval(
        self, name: str, settings: Settings, weights: bytes, number: int | None, data_dir: Path | None
    ) -> EvalResult:
        from ablations.trainables.vit import training

        return training.compute_eval(name, Config(**settings), weights, number, data_dir)

    def fault(self, error: BaseException) -> Fault | None:
        from ablations.trainables.vit import own_faults

        return own_faults.fault(error)

    def release_memory(self) -> None:
        from vitcore.runtime import memory

        memory.release()


VIT = Vit()
