"""Made-up studies for tests: plans, outcomes with known truth, run directories that hold them, and their tables."""

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from results import store
from results.metrics import MEASURES, METRICS
from results.records import Row, Table
from results.store.correctness import Correct
from results.store.lease import Watch
from results.store.record import Record
from results.store.schemas import Arm, Plan, Split
from results.study_results import StudyResults, assemble
from results.tables.study_table import table

SETTING = {"position": "1d", "pool": "gap", "patch": 2, "stem": "patch", "data_fraction": 1.0, "lr": 0.002, "width": 32}
DIGITS = {"kind": "folds", "folds": 5, "images": 1797}
PROVENANCE = ("code", "revision", "host", "device", "python", "torch", "numpy")
EVALUATIONS = 10
STEPS = 1320


def digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def named(values: Mapping[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in values.items())


def make_plan(
    study: str,
    factors: Mapping[str, Sequence[Any]],
    baseline: Mapping[str, Any],
    *,
    curves: Mapping[str, Sequence[Any]] | None = None,
    seeds: int | Sequence[int] = 5,
    split: Mapping[str, Any] = DIGITS,
    published: Mapping[str, float] | None = None,
    notes: Mapping[str, list[str]] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """The plan of a one-factor-at-a-time study, at every point of its curves; `given` overrides fields."""
    curves, published, notes = curves or {}, published or {}, notes or {}
    seeds = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    arms = []
    for point in (dict(zip(curves, values, strict=True)) for values in itertools.product(*curves.values())):
        changes = [{}] + [{f: v} for f, values in factors.items() for v in values if v != baseline[f]]
        for change in sorted(changes, key=lambda c: [factors[f].index((dict(baseline) | c)[f]) for f in factors]):
            config = SETTING | given.get("overrides", {}) | dict(baseline) | change | point
            name = named((change or dict(baseline)) | point)
            arm = {"name": name, "baseline": named(dict(baseline) | point), "values": dict(baseline) | change | point}
            arm |= {"key": digest(config), "config": config, "published": published.get(name)}
            arm |= {"params": 51000 + 10 * len(arms), "flops": int(1.6e6 * (2 / config["patch"]) ** 2)}
            arm |= {"tokens": (8 // config["patch"]) ** 2, "class_token": config["pool"] == "cls"}
            arm |= {"trials": [{"seed": s, "id": digest(config | {"seed": s})} for s in seeds]}
            arms.append(arm | {"notes": notes.get(name, [])})
    plan = {"schema": 1, "name": f"{study}@digits", "study": study, "recipe": "digits", "overrides": {}}
    plan |= {"question": f"What does {' and '.join(factors)} do?", "source": "arXiv 2010.11929", "found": ""}
    plan |= {"description": "1,797 handwritten digits, 8x8 pixels; 1,320 steps of 32 images."}
    plan |= {"metric": "test_accuracy", "margin": 0.03, "claims": [], "figure": "intervals"}
    plan |= {"caveats": ["The 13 writers of digits are in train and test."]}
    plan |= {"factors": {name: list(values) for name, values in factors.items()}}
    plan |= {"curves": {name: list(values) for name, values in curves.items()}}
    plan |= {"baseline": arms[0]["baseline"], "split": dict(split), "seeds": seeds, "arms": arms}
    return plan | {"family": sum(arm["name"] != arm["baseline"] for arm in arms)} | given


def position(**given: Any) -> dict[str, Any]:
    published = {"none": 0.61382, "1d": 0.64206, "2d": 0.64001, "relative": 0.64032}
    texts = {"question": "Does a ViT need position embeddings, and which kind?", "source": "arXiv 2010.11929, Table 8"}
    texts |= {"claims": ["position=none < position=1d", "position=2d ~ position=1d"]}
    texts |= {"published": {f"position={kind}": accuracy for kind, accuracy in published.items()}}
    return make_plan("position-embedding", {"position": [*published]}, {"position": "1d"}, **(texts | given))


def pooling(**given: Any) -> dict[str, Any]:
    notes = {f"pool=gap,lr={lr}": ["one token fewer (no class token)"] for lr in (0.001, 0.002, 0.004)}
    curves = {"lr": [0.001, 0.002, 0.004]}
    given = {"figure": "learning-rate", "curves": curves, "notes": notes} | given
    return make_plan("pooling", {"pool": ["cls", "gap"]}, {"pool": "cls"}, **given)


def tuned_pooling(**given: Any) -> dict[str, Any]:
    """The same with the rate tuned: each pooling at its own, above all points of the grid."""
    return tuned(pooling(**given), "pool")


def tuned(plan: dict[str, Any], factor: str) -> dict[str, Any]:
    """A plan of one factor over learning rates, in which each arm is compared at its own rate."""
    for arm in plan["arms"]:
        arm["config"]["classes"] = 10
    rates = plan["curves"]["lr"]
    values = list(dict.fromkeys(arm["values"][factor] for arm in plan["arms"]))
    arms = [
        {"name": f"{factor}={value},lr=tuned", "baseline": f"{factor}={values[0]},lr=tuned", "published": None}
        | {"change": f"{factor}={value}", "values": {factor: value}}
        | {"points": [f"{factor}={value},lr={rate}" for rate in rates]}
        for value in values
    ]
    return plan | {"tune": {"lr": rates}, "tuned": arms, "family": 1, "points_family": len(rates)}


def patch_size(**given: Any) -> dict[str, Any]:
    return make_plan("patch-size", {"patch": [1, 2, 4]}, {"patch": 2}, **{"figure": "patch", **given})


def dataset_scale(**given: Any) -> dict[str, Any]:
    curves = {"data_fraction": [0.1, 0.3, 1.0]}
    stem = {"stem": ["patch", "conv"]}
    return make_plan("dataset-scale", stem, {"stem": "patch"}, curves=curves, **{"figure": "scale", **given})


def hybrid_stem(**given: Any) -> dict[str, Any]:
    stems = {"stem": ["patch", "conv", "resnet-small"]}
    return make_plan("hybrid-stem", stems, {"stem": "patch"}, **{"figure": "compute", **given})


def model_shape(**given: Any) -> dict[str, Any]:
    """Grown in one way at a time, and (an arm a size) in all."""
    factors = {"depth": [2, 4, 8, 16], "width": [16, 32, 64], "mlp_ratio": [1, 4, 8], "patch": [1, 2, 4]}
    baseline = {"depth": 4, "width": 32, "mlp_ratio": 4, "patch": 2}
    plan = make_plan("model-shape", factors, baseline, **{"figure": "shape", **given})
    for name, change in {"all-half": {"depth": 2, "width": 16}, "all-twice": {"depth": 8, "width": 64}}.items():
        config = plan["arms"][0]["config"] | baseline | change
        add_arm(plan, name, config)
    for arm in plan["arms"]:
        sizes = arm["config"]
        per_token = sizes["depth"] * sizes["width"] ** 2 * (4 + 2 * sizes["mlp_ratio"])
        arm["flops"] = arm["flops_of_its_own"] = 2 * per_token * (8 // sizes["patch"]) ** 2
    return plan


def compute(**given: Any) -> dict[str, Any]:
    """Three families; the last has too few sizes for a fit."""
    plan = make_plan("compute", {"stem": ["patch"]}, {"stem": "patch"}, **{"figure": "families", **given})
    plan["arms"][0] |= {"model_family": "ViT", "flops": 400_000, "flops_of_its_own": 400_000}
    stems = {"ViT": ("patch", 4), "hybrid": ("conv", 5), "ResNet": ("resnet-small", 3)}
    for family, (stem, sizes) in stems.items():
        for k in range(family == "ViT", sizes):
            config = plan["arms"][0]["config"] | {"stem": stem, "width": (32 if family == "ViT" else 16) * 2**k}
            flops = int(4e5 * 3.7**k * (1.2 if family == "hybrid" else 1))
            add_arm(plan, f"{family}-{k}", config, model_family=family, flops=flops, flops_of_its_own=flops)
    return plan


def with_arms(plan: Plan, change: Callable[[Arm], Mapping[str, Any]]) -> Plan:
    return plan.model_copy(update={"arms": [arm.model_copy(update=change(arm)) for arm in plan.arms]})


def without(plan: Plan, field: str) -> Plan:
    """The plan as versions wrote it whose arms had no such field."""
    arms = [{key: value for key, value in arm.content().items() if key != field} for arm in plan.arms]
    return Plan.model_validate(plan.content() | {"arms": arms})


def add_arm(plan: dict[str, Any], name: str, config: Mapping[str, Any], **given: Any) -> None:
    """An arm that changes several settings, under a name of its own."""
    first, seeds = plan["arms"][0], plan["seeds"]
    trials = [{"seed": s, "id": digest(dict(config) | {"seed": s})} for s in seeds]
    own = {"name": name, "change": name, "config": dict(config), "key": digest(config), "trials": trials}
    plan["arms"].append(first | own | given)
    plan["family"] += 1


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
    values |= {"params": 51000, "flops": 1600000, "train_seconds": 9.0 + 0.1 * seed, "images_per_second": 4700.0}
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


def simulate(plan: dict[str, Any] | Plan) -> dict[str, Record]:
    """A finished record for every planned trial, by id; the same for the same trial in every study."""
    records, planned = {}, Plan.model_validate(plan)
    difficulty = np.random.default_rng(0).normal(0, 1.0, planned.split.images)
    for arm in planned.arms:
        for trial in arm.trials:
            config = arm.config | {"seed": trial.seed}
            index = fold(trial.seed, planned.split)
            records[trial.id] = trained(config, truth(config), index, difficulty)
    return records


def from_accuracies(plan: dict[str, Any] | Plan, accuracies: Mapping[str, Sequence[float | None]]) -> dict[str, Record]:
    """The records of a plan whose arms reached accuracies[name], one a seed; None is missing."""
    records = {}
    for arm in Plan.model_validate(plan).arms:
        for trial, accuracy in zip(arm.trials, accuracies[arm.name], strict=True):
            config = SETTING | arm.values | {"seed": trial.seed}
            known = None if accuracy is None else finished(accuracy, config=config, seed=trial.seed)
            records[trial.id] = known or hole("missing", "not started")
    return records


def results(plan: dict[str, Any] | Plan, records: Mapping[str, Record] | None = None) -> StudyResults:
    """The study in memory; a simulated record for every trial that `records` does not give."""
    return assemble(Plan.model_validate(plan), simulate(plan) | dict(records or {}))


def assert_same(a: StudyResults, b: StudyResults) -> None:
    assert a.plan == b.plan
    pd.testing.assert_frame_equal(a.trials, b.trials)
    pd.testing.assert_frame_equal(a.history, b.history)
    assert a.correct.keys() == b.correct.keys()
    for key in a.correct:
        for mine, theirs in zip(a.correct[key], b.correct[key], strict=True):
            assert mine.dtype == theirs.dtype
            assert np.array_equal(mine, theirs)


def untrained(plan: dict[str, Any] | Plan) -> StudyResults:
    ids = [trial.id for arm in Plan.model_validate(plan).arms for trial in arm.trials]
    return results(plan, dict.fromkeys(ids, hole("missing", "not started")))


def weights(trial_id: str, accuracy: float) -> bytes:
    """What stands for a trial's final weights: the same where the same trial reached the same."""
    return f"{trial_id} {accuracy}".encode()


def with_weights(study: StudyResults) -> StudyResults:
    """The study in memory as it would be read from a run directory: with the sha256 of the final weights."""
    ended = zip(study.columns["id"], study.columns["test_accuracy"], strict=True)
    hashes = ["" if np.isnan(value) else hashlib.sha256(weights(key, value)).hexdigest() for key, value in ended]
    return replace(study, columns=study.columns | {"weights_sha256": hashes})


def trial_id(plan: Mapping[str, Any], arm: str, seed: int) -> str:
    planned = {(one["name"], trial["seed"]): trial["id"] for one in plan["arms"] for trial in one["trials"]}
    return str(planned[arm, seed])


def changed(record: Record, **values: Any) -> Record:
    return replace(record, values={**record.values, **values})


def write(runs: Path, plan: dict[str, Any], records: Mapping[str, Record] | None = None) -> Path:
    """The same study as a run directory, written by the store itself; returns `runs`."""
    store.write_json(store.study_folder(runs, plan["name"]) / "plan.json", plan)
    for trial_id, record in (simulate(plan) | dict(records or {})).items():
        if not (runs / "trials" / trial_id).exists():
            write_trial(store.trial(runs, trial_id), record)
    return runs


def claimed(trial: store.Trial) -> store.Attempt:
    attempt = store.claim(trial, Watch())
    assert attempt is not None
    return attempt


def write_trial(trial: store.Trial, record: Record) -> None:
    status, values = record.values["status"], dict(record.values)
    if status == "missing":
        return
    trial.create({"config": json.loads(values["config"] or "{}")})
    with claimed(trial) as attempt:
        provenance = {"code": "0", "host": "laptop", "device": "cpu"}
        provenance |= {name: values[name] for name in PROVENANCE if name in values}
        attempt.write_env({**provenance, "threads": int(values.get("threads", 1))})
        for line in record.history:
            attempt.log(dict(line))
        if record.correct is not None:
            attempt.save_correct(*record.correct)
        if status == "failed":
            attempt.fail(values["reason"], "Traceback ...", "0")
        elif status in ("finished", "diverged"):
            attempt.keep_weights = False
            attempt.save_weights(weights(trial.id, values["test_accuracy"]) if status == "finished" else b"")
            metrics, measures = (
                {name: values[name] for name in names if values.get(name) is not None} for names in (METRICS, MEASURES)
            )
            attempt.publish({"status": status, "metrics": metrics, **measures})


def with_holes() -> StudyResults:
    """position=2d was never started, one trial of position=none failed, position=relative diverged once."""
    plan = position()
    holes = {trial_id(plan, "position=2d", s): hole("missing", "not started") for s in range(5)}
    holes[trial_id(plan, "position=none", 3)] = hole("failed", "ValueError: boom")
    holes[trial_id(plan, "position=relative", 1)] = hole("diverged")
    return results(plan, holes)


def make_table(plan: dict[str, Any] | None = None, interim: bool = False, **changes: list[float | None]) -> Table:
    """Return the table of made-up accuracies. none: accuracies of position=none instead of the made-up ones."""
    plan = plan or position()
    accuracies = ACCURACIES | {f"position={name}": values for name, values in changes.items()}
    return table(results(plan, from_accuracies(plan, accuracies)), interim=interim)


def row_of_arm(made: Table, arm: str) -> Row:
    return next(row for row in made.rows if row.arm == arm)


def table_with_holes(
    holes: Mapping[tuple[str, int], Record], plan: dict[str, Any] | None = None, interim: bool = False
) -> Table:
    """Return the table of ACCURACIES with other records of these trials, each an arm and a seed."""
    plan = plan or position()
    records = {trial_id(plan, *trial): record for trial, record in holes.items()}
    return table(results(plan, from_accuracies(plan, ACCURACIES) | records), interim=interim)


def table_with_hole(status: str, reason: str = "", arm: str = "position=2d") -> Table:
    return table_with_holes({(arm, 3): hole(status, reason)})


def table_with_divergence(arm: int, baseline: int = 0) -> Table:
    """Return the table in which the first trials of position=2d and of its baseline diverged."""
    counts = {"position=2d": arm, "position=1d": baseline}
    lost = [(name, seed) for name, count in counts.items() for seed in range(count)]
    return table_with_holes(dict.fromkeys(lost, hole("diverged")), position(margin=None))
