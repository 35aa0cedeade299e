"""Records of the trials in a run directory, read by threads, as most of the time is spent waiting for files."""

import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from results import store
from results.store import contents, eval_files
from results.store.contents import parse_npz
from results.store.schemas.metrics import MEASURES
from results.store.schemas.trials import (
    Environment,
    Eval,
    EvalSummary,
    Failure,
    Lease,
    MetricsLine,
    Result,
    TrialConfig,
)
from results.store.trials import CONFIG, read_vouched

Part = TypeVar("Part")
Correct = tuple[np.ndarray, np.ndarray]
CORRECT = "correct.npz"  # records the test images that a trial classified correctly
# The step at which a loss was NaN, but finite when recomputed; the number of diverged results that `retry` set aside.
FAULTS = ("suspect_hardware", "retried_diverged")
PROVENANCE = (
    *("started", "code", "revision", "host", "device", "threads", "ranks", "micro_batch", "fused"),
    *("compile", "attention", "matmul_precision", "tf32"),
    *("python", "torch", "numpy", "imported", "plugins"),
)
THEN = " then "  # joins the values of a resumed trial whose attempts differ
NAMED = tuple(name for name in PROVENANCE if name != "plugins")
FILES = {"config": CONFIG, "provenance": "env.json", "history": "metrics.jsonl", "correct": CORRECT}
PARTS = tuple(FILES)
THREADS = 16
FOR_TABLES = ("provenance", "correct")  # other files are only verified, which takes a third of the time


@dataclass(frozen=True)
class Record:
    """The data of one trial in a run directory or an export.

    values: name -> value: status, reason and, if known, metrics, MEASURES, FAULTS, provenance, weights_sha256 and
    config. history: lines of metrics.jsonl. correct: see `parse_correct`. evals: eval -> metrics and notes.
    """

    values: dict[str, str | float | None]
    history: Sequence[Mapping[str, Any]] = ()
    correct: Correct | None = None
    evals: Mapping[str, EvalSummary] = field(default_factory=dict)

    @property
    def eval_metrics(self) -> dict[str, Any]:
        metrics: dict[str, Any] = {}
        for summary in self.evals.values():
            metrics |= summary.metrics
        return metrics


def read_many(runs: Path, ids: Sequence[str], parts: Collection[str]) -> dict[str, Record]:
    for schema in (Environment, Eval, Failure, Lease, MetricsLine, Result, TrialConfig):
        schema.model_rebuild()  # older versions of pydantic cannot do it in several threads
    with ThreadPoolExecutor(THREADS) as pool:
        return dict(zip(ids, pool.map(lambda trial_id: read(runs, trial_id, parts), ids), strict=True))


def read(runs: Path, trial_id: str, parts: Collection[str]) -> Record:
    """Return the record of a trial. parts: which of PARTS to read besides the result; others are only verified.

    A broken file leaves its part empty, and `reason` names it. Raises ValueError for an id, and NewerSchema.
    """
    trial = store.trial(runs, trial_id)
    state = trial.state()
    broken: list[str] = []

    def read_or_none(read_part: Callable[[], Part]) -> Part | None:
        try:
            return read_part()
        except FileNotFoundError:
            return None
        except store.Broken as error:
            broken.append(str(error))
            return None

    values: dict[str, str | float | None] = {"status": state.status, "reason": state.reason}
    if "config" in parts:
        config = read_or_none(lambda: json.dumps(trial.config(state.result), sort_keys=True))
        values["config"] = config or ""
    if state.attempt is None:
        return Record(values)
    values["retried_diverged"] = trial.retried_divergences(state) or None
    if "provenance" in parts:
        values |= read_or_none(lambda: read_provenance(state)) or {}
    history: list[Mapping[str, Any]] = []
    if "history" in parts:
        lines = read_or_none(lambda: contents.parse_lines(state.read("metrics.jsonl"), MetricsLine))
        history = [line.content() for line in lines or []]
    if state.result is None:
        return Record(values, history)
    values = state.result.metrics | values | result_values(state.result)  # no metric replaces another value
    correct = None
    if "correct" in parts:
        correct = read_or_none(lambda: parse_correct(state.read(CORRECT)))
    for part, name in FILES.items():
        if parts and part not in parts:  # verified even if it is not read
            folder = trial.path if part == "config" else state.attempt
            read_or_none(partial(read_vouched, state.result, folder / name))
    values["reason"] = "; ".join(filter(None, [state.reason, *broken]))
    return Record(values, history, correct, eval_files.summaries(trial, state.result))


def result_values(result: Result) -> dict[str, Any]:
    """Return the values of a result besides metrics. A measure that it lacks is the metric of that name."""
    values = {name: getattr(result, name) for name in (*MEASURES, "suspect_hardware")}
    values |= {name: value for name, value in result.metrics.items() if name in MEASURES and values[name] is None}
    return values | {"weights_sha256": result.weights_sha256 or ""}


def read_provenance(state: store.TrialState) -> dict[str, str]:
    envs = [env.content() for env in read_envs(state)]
    texts = joined_values([{name: env[name] for name in NAMED if name in env} for env in envs])
    plugins = joined_values([env["plugins"] for env in envs if "plugins" in env])
    if plugins:
        texts["plugins"] = json.dumps(plugins, sort_keys=True)
    return texts


def read_envs(state: store.TrialState) -> list[Environment]:
    """Return env.json of the state's attempt and of those it resumed from, oldest first, as far as they can be read.

    Raises FileNotFoundError, Broken or NewerSchema for the state's attempt.
    """
    assert state.attempt is not None
    env = contents.parse(state.read("env.json"), state.attempt / "env.json", Environment)
    envs = {state.attempt.name: env}
    while env.resumed_from and env.resumed_from.attempt not in envs:
        attempt = state.attempt.with_name(env.resumed_from.attempt)
        try:
            env = store.read(attempt / "env.json", Environment)
        except (FileNotFoundError, store.Broken):
            break
        envs[attempt.name] = env
    return [*envs.values()][::-1]


def joined_values(attempts: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return name -> the attempts' values as one text: "A", or "A then B" if they differ."""
    texts: dict[str, list[str]] = {}
    for attempt in attempts:
        for name, value in attempt.items():
            text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
            if value not in (None, "") and texts.get(name, [""])[-1] != text:
                texts.setdefault(name, []).append(text)
    return {name: sys.intern(THEN.join(values)) for name, values in texts.items()}  # interned to save memory


def parse_correct(content: bytes) -> Correct:
    """Return (image indices (images,), 0 or 1 for each (images,)) from correct.npz. Raises Broken if damaged."""
    arrays = parse_npz(content, CORRECT)
    missing = {"index", "correct"} - arrays.keys()
    if missing:
        raise store.Broken(f"{CORRECT}: no array {min(missing)}")
    index = arrays["index"]
    correct = arrays["correct"]
    if not is_correctness(index, correct):
        raise store.Broken(f"{CORRECT}: index and correct are not a list of images and a 0 or 1 for each")
    return shared_array(index.tobytes(), index.dtype.str), correct


def is_correctness(index: np.ndarray, correct: np.ndarray) -> bool:
    kinds = index.dtype.kind in "iu" and correct.dtype.kind in "iub"
    return kinds and index.ndim == 1 and index.shape == correct.shape and bool(((correct == 0) | (correct == 1)).all())


@lru_cache(maxsize=128)
def shared_array(content: bytes, dtype: str) -> np.ndarray:
    """Return the array in `content`, the same one for equal seeds, which have equal test images."""
    return np.frombuffer(content, dtype)
