"""Record: what was found of one trial in a run directory; of many, by as many processes as there are cores."""

import itertools
import json
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from results import correctness, evals, store
from results.correctness import Correct
from results.names import MEASURES, METRICS

FAULTS = ("suspect_hardware",)  # the step of a loss that was no number once and was one when computed again
PROVENANCE = (
    *("code", "revision", "host", "device", "threads", "ranks", "micro_batch", "fused"),
    *("compile", "attention", "matmul_precision", "tf32"),
    *("python", "torch", "numpy", "plugins"),
)
THEN = " then "  # between the values of attempts that one trial was resumed through
NAMED = tuple(name for name in PROVENANCE if name != "plugins")
PARTS = ("config", "provenance", "history", "correct")
FOR_TABLES = ("provenance", "correct")  # a third of the time, for many trials
SHARE = 500  # trials that are worth a process
ONE_TURN = 100  # that one reads before it takes others
MOST = 16  # processes: a file server is asked by others too


@dataclass(frozen=True)
class Record:
    """One trial as it was found.

    values: status, reason, config (JSON text), the metrics, measures and provenance that are known; evals (JSON text):
    name -> metrics and notes of what was computed from the weights.
    history: the lines of metrics.jsonl. correct: index (images,) and correct (images,) of its test images.
    """

    values: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]] = ()
    correct: Correct | None = None


def of_many(runs: Path, ids: Sequence[str], parts: Collection[str] = PARTS) -> dict[str, Record]:
    """Read many trials, in several processes where that pays; id -> its record. Raises NewerSchema."""
    one, processes = partial(of, runs, parts), at_once(len(ids))
    if processes > 1:
        with suppress(OSError, BrokenProcessPool):  # memory or processes are short: read them here
            return dict(zip(ids, in_parallel(one, ids, processes), strict=True))
    return dict(zip(ids, map(one, ids), strict=True))


def in_parallel(one: Callable[[str], Record], ids: Sequence[str], processes: int) -> list[Record]:
    """Apply `one` to each id, in forked processes."""
    ignore_interrupts = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)  # this process reports them
    with (
        warnings.catch_warnings(),
        ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), ignore_interrupts) as pool,
    ):
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12's, of forking beside NumPy's threads
        return list(pool.map(one, ids, chunksize=ONE_TURN))


def of(runs: Path, parts: Collection[str], trial_id: str) -> Record:
    return read(store.trial(runs, trial_id), parts)


def at_once(trials: int) -> int:
    """How many processes read so many trials, this one among them."""
    if sys.platform != "linux":
        return 1
    return max(1, min(len(os.sched_getaffinity(0)), MOST, trials // SHARE))


def read(trial: store.Trial, parts: Collection[str] = PARTS) -> Record:
    """What there is of one trial. A file that cannot be read is a reason, no error. Raises NewerSchema."""
    state = trial.state()
    values: dict[str, Any] = {"status": state.status, "reason": state.reason}
    if "config" in parts:
        values["config"] = read_config(trial)
    if state.folder is None:
        return Record(values)
    if "provenance" in parts:
        values |= read_provenance(str(state.folder))
    lines = store.read_lines(Path(state.folder, "metrics.jsonl")) if "history" in parts else []
    history = [line for line in lines if isinstance(line, dict)]
    if state.result is None:
        return Record(values, history)
    values |= {name: state.result.get("metrics", {}).get(name) for name in METRICS}
    values |= {name: state.result.get(name) for name in (*MEASURES, *FAULTS)}
    if later := evals.summary(trial, state.result):
        values["evals"] = json.dumps(later, sort_keys=True)
    try:
        return Record(values, history, correctness.read(state.folder) if "correct" in parts else None)
    except FileNotFoundError:
        return Record(values, history)
    except store.Broken as error:
        return Record(values | {"reason": str(error)}, history)


def read_config(trial: store.Trial) -> str:
    """The resolved config as JSON text, empty where there is none."""
    try:
        return json.dumps(trial.config().get("config", {}), sort_keys=True)
    except (FileNotFoundError, store.Broken):
        return ""


def read_provenance(attempt: str) -> dict[str, Any]:
    """The machine and the code, each as text: "A then B" where the attempts that led to this folder's differ."""
    envs = read_envs(attempt)
    found = in_turn([{name: env[name] for name in NAMED if name in env} for env in envs])
    if plugins := in_turn([env["plugins"] for env in envs if isinstance(env.get("plugins"), dict)]):
        found["plugins"] = json.dumps(plugins, sort_keys=True)
    return found


def read_envs(attempt: str) -> list[dict[str, Any]]:
    """env.json of every attempt that this one was resumed through, oldest first, as far back as they can be read."""
    envs: list[dict[str, Any]] = []
    seen: set[str] = set()
    folder, _, number = attempt.rpartition("/")
    while number not in seen:
        seen.add(number)
        try:
            envs.append(store.read_json(f"{folder}/{number}/env.json"))
        except (FileNotFoundError, store.Broken):
            break
        resumed = envs[-1].get("resumed_from")
        earlier = resumed.get("attempt") if isinstance(resumed, dict) else None
        if not isinstance(earlier, str) or not earlier.isdigit():
            break
        number = earlier
    return envs[::-1]


def in_turn(attempts: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Of each name the known values as text, each once as long as it lasts: "A", "A then B"."""
    told = [{name: text(value) for name, value in one.items() if value is not None} for one in attempts]
    if len(told) < 2:  # nearly every trial
        return {name: value for one in told for name, value in one.items() if value}
    names = dict.fromkeys(name for one in told for name in one)
    joined = {name: [one[name] for one in told if one.get(name)] for name in names}
    return {
        name: THEN.join(value for value, _ in itertools.groupby(values)) for name, values in joined.items() if values
    }


def text(value: Any) -> str:
    """As it is written in JSON, but for a text, which is itself. One in memory for all trials that have the same."""
    if isinstance(value, str):
        return sys.intern(value)
    return str(value) if type(value) is int else json.dumps(value, sort_keys=True)
