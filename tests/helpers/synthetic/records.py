"""Made-up records of trials: accuracies that are given, or drawn around a known truth."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from results.store.record import Correct, Record
from results.store.schemas.plans import Plan, Split
from synthetic.plans import SETTING, digest

EVALUATIONS = 10
STEPS = 1320
ACCURACIES: dict[str, list[float]] = {  # of the arms of `position`, by seed: worse, the baseline, a tie, a little worse
    "position=none": [0.76, 0.75, 0.77, 0.74, 0.78],
    "position=1d": [0.94, 0.95, 0.93, 0.94, 0.96],
    "position=2d": [0.95, 0.94, 0.94, 0.95, 0.95],
    "position=relative": [0.91, 0.92, 0.91, 0.93, 0.90],
}
MEANS = {
    "position": {"none": -0.18, "relative": -0.04, "2d": 0.004},
    "pool": {"cls": -0.002},
    "patch": {1: 0.012, 4: -0.12},
    "stem": {"conv": 0.03, "resnet-small": 0.015},
    "data_fraction": {0.1: -0.25, 0.3: -0.10},
    "lr": {0.001: -0.03, 0.004: -0.02},
    "depth": {2: -0.05, 8: 0.01, 16: 0.02},
    "width": {16: -0.05, 64: 0.01, 128: 0.015, 256: 0.02},
    "mlp_ratio": {1: -0.01, 8: 0.005},
}


def truth(config: Mapping[str, Any]) -> float:
    """A plausible accuracy; 0.945 where nothing is changed."""
    return 0.945 + sum(means.get(config[name], 0.0) for name, means in MEANS.items() if name in config)


def fold(seed: int, split: Split) -> np.ndarray:
    """The images that `seed` tests: all, or fold seed mod folds of repetition seed // folds."""
    images = np.arange(split.images)
    if split.folds is None:
        return images
    shuffled = np.random.default_rng(seed // split.folds).permutation(images)
    return np.sort(shuffled[seed % split.folds :: split.folds])


def trained(config: Mapping[str, Any], accuracy: float, index: np.ndarray, difficulty: np.ndarray) -> Record:
    """A finished trial: easy images are right more often, every seed is a little better or worse."""
    seed = int(config["seed"])
    rng = np.random.default_rng(int(digest(dict(config)), 16))
    logit = np.log(accuracy / (1 - accuracy)) + 0.1 * rng.standard_normal() + difficulty[index]
    correct = (rng.random(len(index)) < 1 / (1 + np.exp(-logit))).astype(np.uint8)
    return finished(float(correct.mean()), config=config, seed=seed, correct=(index.astype(np.int32), correct))


def finished(
    accuracy: float, *, config: Mapping[str, Any] | None = None, seed: int = 0, correct: Correct | None = None
) -> Record:
    config = dict(config or {"seed": seed})
    values = {"status": "finished", "reason": "", "config": json.dumps(config, sort_keys=True)}
    values |= {"test_accuracy": accuracy, "val_accuracy": accuracy, "test_loss": 2.3 * (1.01 - accuracy)}
    values |= {"val_loss": 2.2 * (1.01 - accuracy), "train_loss": 0.5 * (1.01 - accuracy)}
    values |= {"train_seconds": 9.0 + 0.1 * seed, "images_per_second": 4700.0}
    values |= {"steps": STEPS, "images": 32 * STEPS, "code": "0123456789ab", "revision": "v0.1.0", "host": "laptop"}
    values |= {"device": "cpu", "threads": "1", "python": "3.11.2", "torch": "2.14.1", "numpy": "2.4.6"}
    return Record(values, curve(accuracy, float(config.get("lr", 0.002))), correct)


def curve(accuracy: float, lr: float) -> list[dict[str, float]]:
    """Evaluations that rise to `accuracy`, with warm-up and cosine."""
    lines = []
    for i in range(1, EVALUATIONS + 1):
        done = i / EVALUATIONS
        reached = 0.1 + (accuracy - 0.1) * (1 - np.exp(-4 * done)) / (1 - np.exp(-4))
        line = {"step": STEPS * i // EVALUATIONS, "epoch": 33 * done, "images": 32 * STEPS * i // EVALUATIONS}
        line |= {"seconds": 9 * done, "train_loss": 2 * (1.01 - reached), "val_loss": 2.2 * (1.01 - reached)}
        lines.append(line | {"val_accuracy": reached, "lr": lr * 0.5 * (1 + np.cos(np.pi * done))})
    return lines


def hole(status: str, reason: str = "") -> Record:
    return Record({"status": status, "reason": reason, "config": ""})


def changed(record: Record, **values: Any) -> Record:
    return replace(record, values={**record.values, **values})


def simulate(plan: dict[str, Any] | Plan) -> dict[str, Record]:
    """A finished record for every planned trial, by id; the same for the same trial in every study."""
    records, planned = {}, Plan.model_validate(plan)
    difficulty = np.random.default_rng(0).normal(0, 1.0, planned.split.images)
    for arm in planned.arms:
        for trial in arm.trials:
            config = arm.config | {"seed": trial.seed}
            index = fold(trial.seed, planned.split)
            record = trained(config, truth(config), index, difficulty)
            records[trial.id] = changed(record, params=arm.params, flops=arm.flops)
    return records


def from_accuracies(plan: dict[str, Any] | Plan, accuracies: Mapping[str, Sequence[float | None]]) -> dict[str, Record]:
    """The records of a plan whose arms reached accuracies[name], one a seed; None is missing."""
    records = {}
    for arm in Plan.model_validate(plan).arms:
        for trial, accuracy in zip(arm.trials, accuracies[arm.name], strict=True):
            config = SETTING | arm.values | {"seed": trial.seed}
            known = None if accuracy is None else finished(accuracy, config=config, seed=trial.seed)
            known = known and changed(known, params=arm.params, flops=arm.flops)
            records[trial.id] = known or hole("missing", "not started")
    return records


def position_records(plan: dict[str, Any] | Plan, **changes: Sequence[float | None]) -> dict[str, Record]:
    """The records of a plan of `position` with ACCURACIES, but `none=[...]` for position=none."""
    return from_accuracies(plan, ACCURACIES | {f"position={name}": values for name, values in changes.items()})
