"""Read what a run directory holds of a trial; many trials are read in parallel processes."""

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
from typing import Any, TypeVar

from results import store
from results.names import MEASURES, METRICS
from results.store import correctness, eval_files
from results.store.correctness import Correct
from results.store.schemas import Environment, EvalSummary, MetricsLine, Result

Part = TypeVar("Part")
FAULTS = ("suspect_hardware",)  # the step of a loss that was no number once and was one when computed again
PROVENANCE = (
    *("code", "revision", "host", "device", "threads", "ranks", "micro_batch", "fused"),
    *("compile", "attention", "matmul_precision", "tf32"),
    *("python", "torch", "numpy", "plugins"),
)
THEN = " then "  # between the values of attempts that one trial was resumed through
NAMED = tuple(name for name in PROVENANCE if name != "plugins")
FILES = {"config": store.CONFIG, "provenance": "env.json", "history": "metrics.jsonl", "correct": correctness.NAME}
PARTS = tuple(FILES)
FOR_TABLES = ("provenance", "correct")  # the rest is only verified: a third of the time, for many trials
SHARE = 500  # trials that are worth a process
ONE_TURN = 100  # that one reads before it takes others
MOST = 16  # processes: a file server is asked by others too


@dataclass(frozen=True)
class Record:
    """One trial as read.

    values: status, reason, config (JSON text), known metrics, measures and provenance, and evals (JSON text: name ->
    metrics and notes). history: the lines of metrics.jsonl. correct: index (images,) and correct (images,) of its test
    images.
    """

    values: Mapping[str, str | float | None]
    history: Sequence[Mapping[str, Any]] = ()
    correct: Correct | None = None


def of_many(runs: Path, ids: Sequence[str], parts: Collection[str] = PARTS) -> dict[str, Record]:
    """Read many trials, in parallel where that pays; return records by id. Raises NewerSchema."""
    one, processes = partial(of, runs, parts), at_once(len(ids))
    if processes > 1:
        with suppress(OSError, BrokenProcessPool):  # memory or processes are short: read them here
            return dict(zip(ids, in_parallel(one, ids, processes), strict=True))
    return dict(zip(ids, map(one, ids), strict=True))


def in_parallel(one: Callable[[str], Record], ids: Sequence[str], processes: int) -> list[Record]:
    """Apply `one` to each id in forked processes."""
    ignore_interrupts = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)  # this process reports them
    with (
        warnings.catch_warnings(),
        ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), ignore_interrupts) as pool,
    ):
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12's, of forking beside NumPy's threads
        return list(pool.map(one, ids, chunksize=ONE_TURN))


def of(runs: Path, parts: Collection[str], trial_id: str) -> Record:
    """Read one trial of a run directory."""
    return read(store.trial(runs, trial_id), parts)


def at_once(trials: int) -> int:
    """Return the number of processes for so many trials."""
    if sys.platform != "linux":
        return 1
    return max(1, min(len(os.sched_getaffinity(0)), MOST, trials // SHARE))


def read(trial: store.Trial, parts: Collection[str] = PARTS) -> Record:
    """Read one trial; an unreadable file becomes a reason, not an error. Raises NewerSchema."""
    state = trial.state()
    troubles = Troubles()
    values: dict[str, str | float | None] = {"status": state.status, "reason": state.reason}
    if "config" in parts:
        values["config"] = troubles.kept(lambda: read_config(trial, state.result)) or ""
    if state.folder is None:
        return Record(values)
    if "provenance" in parts:
        values |= troubles.kept(lambda: read_provenance(state)) or {}
    history = troubles.kept(lambda: read_history(state)) or [] if "history" in parts else []
    if state.result is None:
        return Record(values, history)
    values |= {name: state.result.metrics.get(name) for name in METRICS}
    values |= {name: getattr(state.result, name) for name in (*MEASURES, *FAULTS)}
    values["weights_sha256"] = state.result.weights_sha256 or ""
    if later := eval_files.summary(trial, state.result):
        values["evals"] = json.dumps(later, default=EvalSummary.content, sort_keys=True)
    correct = troubles.kept(lambda: read_correct(state)) if "correct" in parts else None
    for part, name in FILES.items() if parts else ():
        if part not in parts:  # then it is verified at least
            folder = trial.folder if part == "config" else state.folder
            troubles.kept(partial(store.read_vouched, state.result, f"{folder}/{name}"))
    return Record(values | {"reason": troubles.joined(state.reason)}, history, correct)


class Troubles:
    """The files of a trial that could not be read."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def kept(self, read: Callable[[], Part]) -> Part | None:
        """Return what `read` returns; None where its file is missing or, with a note, broken."""
        try:
            return read()
        except FileNotFoundError:
            return None
        except store.Broken as error:
            self.found.append(str(error))
            return None

    def joined(self, reason: str) -> str:
        """Append the notes to a reason."""
        return "; ".join(filter(None, [reason, *self.found]))


def read_config(trial: store.Trial, result: Result | None) -> str:
    """Read the resolved config as JSON text. Raises FileNotFoundError, Broken."""
    return json.dumps(trial.config(result), sort_keys=True)


def read_history(state: store.TrialState) -> list[Mapping[str, Any]]:
    """Read the lines of metrics.jsonl. Raises FileNotFoundError, Broken."""
    return [line.content() for line in store.parse_lines(state.read("metrics.jsonl"), MetricsLine)]


def read_correct(state: store.TrialState) -> Correct:
    """Read which test images were classified correctly. Raises FileNotFoundError, Broken."""
    return correctness.parse(state.read(correctness.NAME))


def read_provenance(state: store.TrialState) -> dict[str, str]:
    """Read code and machine as texts, "A then B" where attempts differ. Raises FileNotFoundError, Broken."""
    envs = [env.content() for env in read_envs(state)]
    found = in_turn([{name: env[name] for name in NAMED if name in env} for env in envs])
    if plugins := in_turn([env["plugins"] for env in envs if "plugins" in env]):
        found["plugins"] = json.dumps(plugins, sort_keys=True)
    return found


def read_envs(state: store.TrialState) -> list[Environment]:
    """Read env.json of all attempts the trial was resumed through, oldest first.

    Raises FileNotFoundError or Broken for the newest attempt; earlier unreadable ones end the list.
    """
    folder, _, number = str(state.folder).rpartition("/")
    envs = [store.parse(state.read("env.json"), f"{number}/env.json", Environment)]
    seen = {number}
    while (origin := envs[-1].resumed_from) and (number := origin.attempt) not in seen:
        seen.add(number)
        try:
            envs.append(store.read(f"{folder}/{number}/env.json", Environment))
        except (FileNotFoundError, store.Broken):
            break
    return envs[::-1]


def in_turn(attempts: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Join each name's known values over attempts: "A", or "A then B"."""
    told = [{name: text(value) for name, value in one.items() if value is not None} for one in attempts]
    if len(told) < 2:  # nearly every trial
        return {name: value for one in told for name, value in one.items() if value}
    names = dict.fromkeys(name for one in told for name in one)
    joined = {name: [one[name] for one in told if one.get(name)] for name in names}
    return {
        name: THEN.join(value for value, _ in itertools.groupby(values)) for name, values in joined.items() if values
    }


def text(value: Any) -> str:
    """Write a value as JSON, or a text as itself; equal texts share memory."""
    if isinstance(value, str):
        return sys.intern(value)
    return str(value) if type(value) is int else json.dumps(value, sort_keys=True)
