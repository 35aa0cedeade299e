"""Evals: results that workers compute later from the weights of a finished trial. Readers never compute one.

    trials/<id>/evals/<name>.json           metrics, notes and details, with a checksum and the weights' sha256
    trials/<id>/evals/<name>.npz            arrays, if any; the JSON contains their sha256
    trials/<id>/evals/<name>.failure.json   why it could not be computed, and under which code
    trials/<id>/evals/<name>.begun          how often a worker began to compute it without ending

An eval of other weights than the result's does not count. A trial is done when its result and the evals in its plans
exist; a diverged trial has no weights and owes none.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from results import store
from results.names import METRICS
from results.store import Broken, Trial
from results.store.files import npz_bytes, parse_npz, read_bytes
from results.store.paths import safe_name
from results.store.schemas import Eval, EvalSummary, Failure, Result, Settings

if TYPE_CHECKING:
    import numpy as np

Arrays = Mapping[str, "np.ndarray"]

MOST_BEGUN = 1000  # bytes of a counter of workers; an eval fails after a few


# -- files -------------------------------------------------------------------------------------------------------------


def folder(trial: Trial) -> Path:
    return trial.path / "evals"


def file(trial: Trial, name: str, suffix: str) -> Path:
    """Return the path of an eval's file. Raises ValueError for an invalid name."""
    return folder(trial) / f"{safe_name(name)}{suffix}"


def read(trial: Trial, name: str, weights_sha256: str | None) -> Eval:
    """Read an eval. Raises FileNotFoundError; Broken if it is damaged or of other weights; NewerSchema."""
    found = store.read_sealed(file(trial, name, ".json"), Eval, f"evals/{name}.json")
    if (found.id, found.name) != (trial.id, name):
        raise Broken(f"evals/{name}.json: belongs to {found.name} of trial {found.id}")
    if found.weights_sha256 != weights_sha256:
        raise Broken(f"evals/{name}.json: is of other weights")
    return found


def read_arrays(trial: Trial, found: Eval) -> "dict[str, np.ndarray]":
    """Read the arrays of an eval. Raises Broken if they are missing or damaged."""
    path = file(trial, found.name, ".npz")
    try:
        payload = read_bytes(path)
    except FileNotFoundError:
        raise Broken(f"evals/{path.name}: is not there") from None
    if hashlib.sha256(payload).hexdigest() != found.arrays_sha256:
        raise Broken(f"evals/{path.name}: its checksum differs (edited or damaged)")
    return parse_npz(payload, f"evals/{path.name}")


def write(trial: Trial, name: str, weights_sha256: str, content: Settings, arrays: Arrays | None = None) -> None:
    """Write an eval, arrays first, so that an existing JSON file means a complete eval.

    content: the fields of schemas.Eval, at least metrics and notes.
    """
    plain = {"schema": store.SCHEMA, "id": trial.id, "name": name, "weights_sha256": weights_sha256, **content}
    if arrays is not None:
        archive = npz_bytes(arrays)
        plain["arrays_sha256"] = hashlib.sha256(archive).hexdigest()
        store.write_bytes(file(trial, name, ".npz"), archive)
    store.write_json(file(trial, name, ".json"), plain | {"checksum": store.checksum(plain)})
    forgive(trial, [name])


def fail(trial: Trial, name: str, cause: str, traceback: str, code: str) -> None:
    """Record why an eval could not be computed, and under which code."""
    content = {"cause": cause, "traceback": traceback, "code": code}
    store.write_json(file(trial, name, ".failure.json"), content)


def begin(trial: Trial, name: str) -> int:
    """Count a worker that begins to compute the eval; return how many began before without ending.

    Raises ValueError for a link, and for a counter that is not a small regular file.
    """
    trial.ensure_no_links()
    path = file(trial, name, ".begun")
    try:
        before = len(read_bytes(path, MOST_BEGUN))
    except FileNotFoundError:
        before = 0
    store.write_bytes(path, b"." * (before + 1))
    return before


def forgive(trial: Trial, names: Sequence[str] | None = None) -> bool:
    """Forget failures (of the named evals, or all); return whether there were any. Raises ValueError for a link."""
    trial.ensure_no_links()
    any_failed = False
    for name in names or all_names(trial):
        file(trial, name, ".begun").unlink(missing_ok=True)
        failed = file(trial, name, ".failure.json")
        any_failed |= failed.exists()
        failed.unlink(missing_ok=True)
    return any_failed


def all_names(trial: Trial) -> list[str]:
    """Return the names of all evals, computed or failed."""
    try:
        files = os.listdir(f"{trial.folder}/evals")
    except FileNotFoundError:
        return []
    return sorted({name.removesuffix(".json").removesuffix(".failure") for name in files if name.endswith(".json")})


# -- what is left ------------------------------------------------------------------------------------------------------


def left(trial: Trial, names: Sequence[str], result: Result | None) -> list[str]:
    """Return the evals among `names` that a finished trial lacks; empty for other trials. Raises NewerSchema."""
    if result is None or result.status != "finished":
        return []
    missing = []
    for name in names:
        try:
            read(trial, name, result.weights_sha256)
        except (FileNotFoundError, Broken):
            missing.append(name)
    return missing


def failure(trial: Trial, names: Sequence[str] | None = None) -> Failure | None:
    """Return the first failure of the named evals, or of all; None if none failed."""
    for name in all_names(trial) if names is None else names:
        try:
            return store.read(file(trial, name, ".failure.json"), Failure)
        except FileNotFoundError:
            continue
        except Broken as error:
            return Failure(cause=f"unknown: {error}")
    return None


# -- for tables --------------------------------------------------------------------------------------------------------


def summary(trial: Trial, result: Result) -> dict[str, EvalSummary]:
    """Map eval name to metrics and notes; an unreadable eval has no metrics, and the reason as a note."""
    found: dict[str, EvalSummary] = {}
    for name in all_names(trial):
        try:
            known = read(trial, name, result.weights_sha256)
            found[name] = EvalSummary(metrics=known.metrics, notes=known.notes)
        except (FileNotFoundError, Broken) as error:
            failed = failure(trial, [name])
            found[name] = EvalSummary(metrics={}, notes=[failed.cause if failed else str(error)])
    return found


def measures(name: str, metric: str) -> bool:
    """Return whether a metric is of this eval: eval NAME[@VALUE] measures NAME...[@VALUE], beside the result's own."""
    kind, at, value = name.partition("@")
    measured, *varied = metric.partition("@")
    return metric not in METRICS and measured.startswith(kind) and varied == [at, value]


def absent(metric: str, summaries: Mapping[str, EvalSummary]) -> str:
    """State why a finished trial has no number for `metric`."""
    if metric in METRICS:
        return f"its result has no {metric}"
    found = {name: one for name, one in summaries.items() if measures(name, metric)}
    notes = "; ".join(note for one in found.values() for note in one.notes)
    return notes or (f"its eval {min(found)} has no {metric}" if found else f"{metric} is not computed yet")
