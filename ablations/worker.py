"""A worker: one process that imports torch once and serves many trials, one after the other.

It reads a job a line on standard input and writes an event a line on standard output; whatever a trial prints goes
to the log of its attempt. It stops at a step boundary, with a checkpoint, on SIGTERM and when its parent is gone.
"""

import contextlib
import errno
import json
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import torch

from ablations import evaluating, plugins, provenance
from results import evals, lease, store
from vitcore.config import Config
from vitcore.identity import identity, trial_id
from vitcore.train import Outcome, device_of, train

Json = dict[str, Any]
REPORT_SECONDS = 0.5
EVAL_SECONDS = 90.0  # one worker waits so long for another that computes evals of the same trial
INFRASTRUCTURE = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS}


class Worker:
    """What all trials of one process share."""

    def __init__(self, runs: Path, data_dir: Path | None, plugin_files: list[Path], channel: TextIO) -> None:
        self.runs = runs
        self.data_dir = data_dir
        self.channel = channel
        self.plugins = plugins.load(plugin_files)
        self.watch = lease.Watch()
        self.parent = os.getppid()
        self.told_to_stop = False
        self.last_report = 0.0

    def stop(self) -> bool:
        return self.told_to_stop or os.getppid() != self.parent

    def emit(self, event: str, **content: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.channel.write(json.dumps({"event": event, **content}) + "\n")
            self.channel.flush()

    def report(self, step: int, accuracy: float | None) -> None:
        if time.monotonic() - self.last_report >= REPORT_SECONDS:
            self.last_report = time.monotonic()
            self.emit("progress", step=step, accuracy=accuracy)

    def serve(self, job: Json) -> None:
        """One trial, and the event that says how it ended: finished, diverged, failed, stopped, held, interrupted."""
        trial = store.trial(self.runs, job["id"])
        try:
            attempt = trial.claim(self.watch)
            if attempt is None:
                return self.evaluate(job, trial)
            with attempt:
                self.emit("started", attempt=attempt.path.name)
                self.attempt(job, trial, attempt)
        except OSError as error:
            if error.errno not in INFRASTRUCTURE:
                raise
            self.emit("interrupted", cause=str(error))

    def attempt(self, job: Json, trial: store.Trial, attempt: store.Attempt) -> None:
        try:
            with logged(attempt.path / "log"):
                config = Config(**job["config"])
                if trial_id(config) != job["id"]:
                    raise ValueError(
                        f"planned with other code or data: it is trial {trial_id(config)} now, plan it anew"
                    )
                trial.create({"config": config.model_dump(), "identity": identity(config)})
                attempt.write_env(provenance.environment(hardware(config), config.threads, self.plugins))
                attempt.on_progress = self.report
                outcome = train(config, attempt, data_dir=self.data_dir, stop=self.stop)
                if outcome.status != "stopped":
                    attempt.publish(asdict(outcome))
            if outcome.status == "finished" and job["evals"]:
                return self.evaluate(job, trial)
            self.emit(outcome.status, **summary(outcome))
        except store.Superseded as error:
            self.emit("held", cause=str(error))
        except Exception as error:  # one bad trial never stops the others: its cause is recorded
            if isinstance(error, OSError) and error.errno in INFRASTRUCTURE:
                raise
            cause = f"{type(error).__name__}: {error}"
            attempt.fail(cause, traceback.format_exc(), provenance.code(self.plugins))
            self.emit("failed", cause=cause)

    def evaluate(self, job: Json, trial: store.Trial) -> None:
        """The evals that a trained trial owes, and the event that says how that ended."""
        result = trial.state().result
        if result is None:
            return self.emit("held")
        name, code = "", provenance.code(self.plugins)
        try:
            with lease.turn(evals.folder(trial) / "turns", EVAL_SECONDS), logged(evals.folder(trial) / "log"):
                for name in evals.left(trial, job["evals"], result):
                    evaluating.evaluate(trial, name, self.data_dir, code)
            self.emit(result["status"], accuracy=result["metrics"].get("test_accuracy"), seconds=0.0)
        except TimeoutError as error:
            self.emit("held", cause=str(error))
        except Exception as error:  # as of an attempt: the cause is recorded, the others go on
            if isinstance(error, OSError) and error.errno in INFRASTRUCTURE:
                raise
            cause = f"eval {name}: {error}" if isinstance(error, ValueError) else f"eval {name}: {error!r}"
            evals.fail(trial, name, cause, traceback.format_exc(), code)
            self.emit("failed", cause=cause)


def hardware(config: Config) -> str:
    """What the trial runs on, by its maker's name."""
    if device_of(config) == "cuda":
        return torch.cuda.get_device_name()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "cpu"


def require_gpu() -> None:
    """A trial that asks for a GPU never falls back to the CPU. Raises RuntimeError naming driver and CUDA."""
    if not torch.cuda.is_available():
        with contextlib.suppress(OSError):
            driver = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
            raise RuntimeError(f"no usable GPU: driver '{driver}', PyTorch built for CUDA {torch.version.cuda}")
        raise RuntimeError(
            f"no usable GPU: no NVIDIA driver on this node (PyTorch is built for CUDA {torch.version.cuda})"
        )


def summary(outcome: Outcome) -> Json:
    return {"accuracy": outcome.metrics.get("test_accuracy"), "seconds": outcome.train_seconds}


@contextlib.contextmanager
def logged(path: Path) -> Iterator[None]:
    """Standard output and error of the process go to the file."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    with open(path, "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for target, source in zip((1, 2), saved, strict=True):
                os.dup2(source, target)
                os.close(source)


def main() -> None:
    order = json.loads(sys.argv[1])
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker(
        Path(order["runs"]),
        Path(order["data_dir"]) if order["data_dir"] else None,
        [Path(file) for file in order["plugins"]],
        channel,
    )

    def stop(*_: object) -> None:
        worker.told_to_stop = True

    signal.signal(signal.SIGTERM, stop)
    if order["gpu"]:
        require_gpu()
    worker.emit("ready")
    for line in sys.stdin:
        worker.serve(json.loads(line))
        if worker.stop():
            break


if __name__ == "__main__":
    main()
