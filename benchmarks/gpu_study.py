"""A whole study beside one process of timm's script per trial, over several calls; gpu.py runs it.

`ablate run` trains one seed at a time. Before each seed, one process of the script trains a trial of the baseline. At
the deadline the command is interrupted, and resumes at the next call.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks import loop
from benchmarks.process import Source, environment, python_command
from benchmarks.timing import spread
from results import store
from vitcore import Config
from vitcore.config import merge

Json = dict[str, Any]
POSITIONS = ("1d", "none", "2d", "sincos2d", "relative", "relative-bias", "rope2d", "alibi2d")  # the baseline first
SEEDS = 5
OURS, SCRIPT = "ours, a trial", "one timm process a trial"
SAMPLED = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-l", "1")
GRACE = 90  # seconds that an interrupted command has for its last checkpoints


def bench(settings: Mapping[str, Any], folder: Path, deadline: float, arms: int, seeds: int) -> Json | None:
    """Continue the study in `folder` until the deadline (monotonic clock); return its figure, None if unfinished.

    Raises ValueError if the script cannot do the same training, or a process fails.
    """
    file, baseline = folder / "state.json", Config(**merge(settings, {"position": POSITIONS[0]}))
    if not file.exists():
        loop.check_alike(baseline, Source())
        folder.mkdir(parents=True, exist_ok=True)
        loop.write_study(folder, settings, POSITIONS[:arms], seeds=1)
        store.write_json(file, asdict(State()))
    state = State(**store.read_json(file))
    for number in range(1, seeds + 1):
        if len(state.script) < number:
            settings_file = loop.script(Config(**merge(dict(baseline), {"seed": number - 1})), folder / f"{number}")
            seconds, done = timed(loop.trial(settings_file), deadline)
            if not done:
                return None
            state.script.append(seconds)
            store.write_json(file, asdict(state))
        if state.seeds < number:
            command = python_command("ablations.cli", *loop.RUN, "runs", "--seeds", str(number))
            with busy() as samples:
                seconds, done = timed(command, deadline, folder)
            state.ours += [0.0] * (number - len(state.ours))
            state.ours[-1] += seconds
            state.busy += samples
            state.seeds = number if done else state.seeds
            store.write_json(file, asdict(state))
            if not done:
                return None
    ours, script = np.array(state.ours[:seeds]) / arms, np.array(state.script)
    return {
        "config": baseline.model_dump(),
        "trials": arms * seeds,
        "seconds": {OURS: asdict(spread(ours)), SCRIPT: asdict(spread(script))},
        "ratio": {SCRIPT: asdict(spread(script / ours.mean()))},
        "busy": fmean(state.busy) / 100 if state.busy else None,
    }


@dataclass
class State:
    """The measurements so far."""

    ours: list[float] = field(default_factory=list)  # seconds of `ablate run` for each seed
    script: list[float] = field(default_factory=list)  # seconds of each script
    busy: list[int] = field(default_factory=list)  # the GPU's use in percent
    seeds: int = 0  # that are trained


def timed(command: list[str], deadline: float, folder: Path | None = None) -> tuple[float, bool]:
    """Run a command until it ends, or interrupt it at the deadline; return its seconds, and whether it ended.

    Raises ValueError with its last line if it fails.
    """
    began, out, err = time.monotonic(), subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(command, env=environment(), cwd=folder, stdout=out, stderr=err, text=True) as process:
        try:
            _, errors = process.communicate(timeout=max(0.0, deadline - began))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=GRACE)
            process.kill()  # does nothing once it has ended
            return time.monotonic() - began, False
    if process.returncode:
        raise ValueError(f"{command[-1]}: {(errors.strip().splitlines() or ['killed'])[-1]}")
    return time.monotonic() - began, True


@contextmanager
def busy() -> Iterator[list[int]]:
    """Yield a list that afterwards holds the GPU's use in percent, once a second; empty without nvidia-smi."""
    samples: list[int] = []
    if not shutil.which(SAMPLED[0]):
        yield samples
        return
    with subprocess.Popen(SAMPLED, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield samples
        finally:
            process.terminate()
            printed, _ = process.communicate()
            samples += [int(line) for line in printed.split() if line.isdigit()]
