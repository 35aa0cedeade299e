"""The files of evals, which are results that workers compute later from the weights of a finished trial.

    trials/<id>/evals/<name>.json           metrics, notes and details, with a checksum and the weights' sha256
    trials/<id>/evals/<name>.npz            arrays, if any (the JSON contains their sha256)
    trials/<id>/evals/<name>.failure.json   why the eval failed, and the digest of the code
    trials/<id>/evals/<name>.begun          a byte for each start of its computation, removed once it succeeds

An eval counts only if it was computed from the weights that the result names. A trial is done once its result and all
evals of its plans exist. A diverged trial has no weights and needs no evals.
"""

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commonfloor.files import read_bytes, safe_name
from results import store
from results.store import Broken, Trial
from results.store.contents import npz_bytes, parse_json, parse_npz, read_sealed
from results.store.schemas.base import Settings
from results.store.schemas.plans import Plan
from results.store.schemas.trials import Eval, EvalSummary, Failure, Result
from results.store.trials import read_failure

if TYPE_CHECKING:
    import numpy as np

Arrays = Mapping[str, "np.ndarray"]

MOST_BEGUN = 1000  # maximum bytes of a .begun file; an eval fails after far fewer starts


def eval_path(trial: Trial, name: str, suffix: str) -> Path:
    return trial.path / "evals" / f"{safe_name(name)}{suffix}"


def read(trial: Trial, name: str, weights_sha256: str | None) -> Eval:
    """Return an eval verified to be of this trial and weights. Raises FileNotFoundError, Broken or NewerSchema."""
    result = read_sealed(eval_path(trial, name, ".json"), Eval)
    if (result.id, result.name) != (trial.id, name):
        raise Broken(f"evals/{name}.json: belongs to {result.name} of trial {result.id}")
    if result.weights_sha256 != weights_sha256:
        raise Broken(f"evals/{name}.json: is of other weights")
    return result


def read_arrays(trial: Trial, result: Eval) -> "dict[str, np.ndarray]":
    """Return name -> array for the arrays of an eval. Raises Broken if they are missing or damaged."""
    path = eval_path(trial, result.name, ".npz")
    try:
        payload = read_bytes(path)
    except FileNotFoundError:
        raise Broken(f"evals/{path.name}: is not there") from None
    if hashlib.sha256(payload).hexdigest() != result.arrays_sha256:
        raise Broken(f"evals/{path.name}: its checksum differs (edited or damaged)")
    return parse_npz(payload, f"evals/{path.name}")


def write(trial: Trial, name: str, weights_sha256: str, content: Settings, arrays: Arrays | None = None) -> None:
    """Write an eval, arrays first, and remove its earlier failure and its count of starts.

    content: fields of `Eval`, at least metrics and notes. Raises ValueError if a folder is a symbolic link.
    """
    trial.ensure_no_links()
    plain = {"schema": store.SCHEMA, "id": trial.id, "name": name, "weights_sha256": weights_sha256, **content}
    if arrays is not None:
        archive = npz_bytes(arrays)
        plain["arrays_sha256"] = hashlib.sha256(archive).hexdigest()
        store.write_bytes(eval_path(trial, name, ".npz"), archive)
    store.write_json(eval_path(trial, name, ".json"), plain | {"checksum": store.checksum(plain)})
    clear_failures(trial, [name])


def write_failure(trial: Trial, name: str, cause: str, traceback: str, code: str) -> None:
    store.write_json(eval_path(trial, name, ".failure.json"), {"cause": cause, "traceback": traceback, "code": code})


def count_start(trial: Trial, name: str) -> int:
    """Record the start of an eval, and return the number of earlier starts without success."""
    trial.ensure_no_links()
    path = eval_path(trial, name, ".begun")
    try:
        before = len(read_bytes(path, MOST_BEGUN))
    except FileNotFoundError:
        before = 0
    store.write_bytes(path, b"." * (before + 1))
    return before


def clear_failures(trial: Trial, names: Sequence[str] | None = None) -> bool:
    """Remove the failures and start counts of evals (by default all), and return whether any had failed."""
    trial.ensure_no_links()
    any_failed = False
    for name in names or eval_names(trial):
        eval_path(trial, name, ".begun").unlink(missing_ok=True)
        failed = eval_path(trial, name, ".failure.json")
        any_failed |= failed.exists()
        failed.unlink(missing_ok=True)
    return any_failed


def eval_names(trial: Trial) -> list[str]:
    try:
        files = os.listdir(trial.path / "evals")
    except FileNotFoundError:
        return []
    return sorted({name.removesuffix(".json").removesuffix(".failure") for name in files if name.endswith(".json")})


def missing_evals(trial: Trial, names: Sequence[str], result: Result | None) -> list[str]:
    """Return the named evals that a finished trial lacks, or [] for any other trial. Raises NewerSchema."""
    if result is None or result.status != "finished":
        return []
    missing = []
    for name in names:
        try:
            read(trial, name, result.weights_sha256)
        except (FileNotFoundError, Broken):
            missing.append(name)
    return missing


def first_failure(trial: Trial, names: Sequence[str] | None = None) -> Failure | None:
    """Return the first failure among evals (by default all), or None if none failed. Raises NewerSchema."""
    for name in names or eval_names(trial):
        failure = read_failure(eval_path(trial, name, ".failure.json"))
        if failure is not None:
            return failure
    return None


def summaries(trial: Trial, result: Result) -> dict[str, EvalSummary]:
    """Return eval name -> metrics and notes, or why a failed or unreadable eval has none. Raises NewerSchema."""
    summaries = {}
    for name in eval_names(trial):
        try:
            eval_result = read(trial, name, result.weights_sha256)
            data = {"data_sha256": eval_result.data_sha256} if eval_result.data_sha256 else {}
            summaries[name] = EvalSummary(metrics=eval_result.metrics, notes=eval_result.notes, **data)
        except (FileNotFoundError, Broken) as error:
            failure = first_failure(trial, [name])
            summaries[name] = EvalSummary(metrics={}, notes=[failure.cause if failure else str(error)])
    return summaries


def computes_metric(name: str, metric: str) -> bool:
    """Return whether an eval computes a metric, as test@64 computes test_accuracy@64."""
    kind, at, value = name.partition("@")
    measured, *varied = metric.partition("@")
    return measured.startswith(kind) and varied == [at, value]


def absence_reason(plan: Plan, summaries: Mapping[str, EvalSummary]) -> str:
    """Return why a finished trial has no value for the plan's metric. summaries: eval name -> summary."""
    metric = plan.metric
    if metric in plan.trial_metrics:
        return f"its result has no {metric}"
    evals = [name for name in summaries if computes_metric(name, metric)]
    if not evals:
        return f"{metric} is not computed yet"
    notes = "; ".join(note for name in evals for note in summaries[name].notes)
    return notes or f"its eval {min(evals)} has no {metric}"


FACTS = "facts.json"  # the name of the facts among the arrays


@dataclass(frozen=True)
class Inspection:
    """The result of `ablate inspect` for a trial: the JSON file's facts, and arrays of vitcore.analysis.interpret.

    planned_as: the trial's arm and seed for titles, or "".
    """

    trial: str
    facts: Mapping[str, Any]
    arrays: Arrays
    planned_as: str = ""

    @property
    def title(self) -> str:
        return f"trial {self.trial} ({self.planned_as})" if self.planned_as else f"trial {self.trial}"


def read_inspection(trial: Trial) -> Inspection:
    result = trial.result()
    inspected = read(trial, "inspect", result.weights_sha256 if result else None)
    return Inspection(trial.id, inspected.content(), read_arrays(trial, inspected))


def pack_inspection(inside: Inspection) -> str:
    """Return an inspection as base64 text. Equal inspections give equal texts."""
    facts = json.dumps(dict(inside.facts), sort_keys=True).encode()
    return base64.b64encode(npz_bytes({**inside.arrays, FACTS: memoryview(facts)})).decode()


def unpack_inspection(trial: str, text: str) -> Inspection:
    """Return the inspection of a trial from the text of `pack_inspection`. Raises Broken if it is damaged."""
    name = f"the inspection of trial {trial}"
    try:
        arrays = parse_npz(base64.b64decode(text), name)
        facts = parse_json(arrays.pop(FACTS).tobytes(), Path(FACTS))
    except (KeyError, ValueError) as error:
        raise Broken(f"{name}: cannot be read ({error})") from None
    return Inspection(trial, facts, arrays)
