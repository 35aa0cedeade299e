"""Made-up studies: in memory, as run directories that hold them, and their tables."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from results import store
from results.comparison.records import Comparison
from results.records import Table
from results.store import ledger
from results.store.lease import Watch
from results.store.record import Record
from results.store.schemas.metrics import MEASURES
from results.store.schemas.plans import Plan
from results.study_results import NO_METRICS, StudyResults, assemble
from results.tables.study_table import table
from synthetic.plans import position, trial_id
from synthetic.records import hole, position_records, simulate

PROVENANCE = ("code", "revision", "host", "device", "python", "torch", "numpy")


def results(plan: dict[str, Any] | Plan, records: Mapping[str, Record] | None = None) -> StudyResults:
    """The study in memory; a simulated record for every trial that `records` does not give.

    A plan with `looks` was declared with each of these numbers of seeds, and had a table with each.
    """
    planned = Plan.model_validate(plan)
    if planned.looks:
        planned = ledger.with_declarations(planned, ledger.declarations_of_plan(planned))
    return assemble(planned, simulate(plan) | dict(records or {}))


def with_holes() -> StudyResults:
    """position=2d was never started, one trial of position=none failed, position=relative diverged once."""
    plan = position()
    holes = {trial_id(plan, "position=2d", s): hole("missing", "not started") for s in range(5)}
    holes[trial_id(plan, "position=none", 3)] = hole("failed", "ValueError: boom")
    holes[trial_id(plan, "position=relative", 1)] = hole("diverged")
    return results(plan, holes)


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


def assert_same(a: StudyResults, b: StudyResults) -> None:
    assert a.plan.content() == b.plan.content()
    pd.testing.assert_frame_equal(a.trials, b.trials)
    pd.testing.assert_frame_equal(a.history, b.history)
    assert a.correct.keys() == b.correct.keys()
    for key in a.correct:
        for mine, theirs in zip(a.correct[key], b.correct[key], strict=True):
            assert mine.dtype == theirs.dtype
            assert np.array_equal(mine, theirs)


def write(runs: Path, plan: dict[str, Any], records: Mapping[str, Record] | None = None) -> Path:
    """The same study as a run directory, written by the store itself; returns `runs`."""
    store.write_json(store.study_folder(runs, plan["name"]) / "plan.json", plan)
    for key, record in (simulate(plan) | dict(records or {})).items():
        if not (runs / "trials" / key).exists():
            write_trial(store.trial(runs, key), record)
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
            known = {name: value for name, value in values.items() if value is not None}
            metrics = {name: known[name] for name in known if name not in NO_METRICS}
            measures = {name: known[name] for name in known if name in MEASURES}
            attempt.publish({"status": status, "metrics": metrics, **measures})


def make_table(plan: dict[str, Any] | None = None, interim: bool = False, **changes: list[float | None]) -> Table:
    """Return the table of made-up accuracies. none: accuracies of position=none instead of the made-up ones."""
    plan = plan or position()
    return table(results(plan, position_records(plan, **changes)), interim=interim)


def row_of_arm(made: Table | Comparison, arm: str) -> Any:
    return next(row for row in made.rows if row.arm == arm)


def table_with_holes(
    holes: Mapping[tuple[str, int], Record], plan: dict[str, Any] | None = None, interim: bool = False
) -> Table:
    """Return the table of ACCURACIES with other records of these trials, each an arm and a seed."""
    plan = plan or position()
    records = {trial_id(plan, *trial): record for trial, record in holes.items()}
    return table(results(plan, position_records(plan) | records), interim=interim)


def table_with_hole(status: str, reason: str = "", arm: str = "position=2d") -> Table:
    return table_with_holes({(arm, 3): hole(status, reason)})


def table_with_divergence(arm: int, baseline: int = 0) -> Table:
    """Return the table in which the first trials of position=2d and of its baseline diverged."""
    counts = {"position=2d": arm, "position=1d": baseline}
    lost = [(name, seed) for name, count in counts.items() for seed in range(count)]
    return table_with_holes(dict.fromkeys(lost, hole("diverged")), position(margin=None))
