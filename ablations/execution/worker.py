"""A worker: a process that loads its trainable once and trains many trials, one after the other.

It reads jobs from standard input and writes events to standard output, one per line. The output of a trial goes to the
log of its attempt. On SIGTERM, or when its parent has ended, it saves a checkpoint at the next step and ends.
"""

import contextlib
import json
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import TextIO

from ablations import faults, provenance
from ablations.execution import messages, retry_rules
from ablations.execution.compute_eval import compute_eval, winner_weights
from ablations.execution.launch import PLACE, Place
from ablations.faults import RankLost
from ablations.jobs import Job, kept_weights
from ablations.output import output_to_file
from ablations.trainables.trainable import LINKS, Parent, TrainingContext, TrainingOutcome, find, hashed, is_trial_id
from commonfloor.files import FULL, Patience
from commonfloor.messages import reason_with_file
from results import store
from results.store import eval_files, lease
from results.store.schemas.base import Settings, validated
from results.store.schemas.trials import Environment

BEAT_SECONDS = 5.0  # between heartbeats
REPORT_SECONDS = 0.5
ORPHAN_SECONDS = 60.0  # to save the last checkpoint; equal to runner.STOP_SECONDS
ORPHANED = 3  # exit status
FULL_SECONDS = float(os.environ.get("ABLATE_FULL_DISK_SECONDS", "120"))  # how long to wait for space on a full disk

Past = list[retry_rules.EndedAttempt]


class Worker:
    def __init__(self, place: Place, channel: TextIO) -> None:
        self.place = place
        self.channel = channel
        self.channel_lock = threading.Lock()  # the heartbeat writes to the channel too
        self.trainable = find(place.trainable)
        self.code = place.code
        self.broken = False  # whether this process can no longer train
        self.watch = lease.Watch()
        self.parent = os.getppid()
        self.stop_requested = False
        self.last_report = 0.0

    def stop(self) -> bool:
        return self.stop_requested or os.getppid() != self.parent

    def emit(self, event: messages.Event) -> None:
        with self.channel_lock, contextlib.suppress(BrokenPipeError):
            self.channel.write(messages.event_line(event))
            self.channel.flush()

    def report(self, metric: str, step: int, metrics: Mapping[str, float], evaluating: bool = False) -> None:
        if evaluating or time.monotonic() - self.last_report >= REPORT_SECONDS:
            self.last_report = time.monotonic()
            if evaluating:
                self.last_report = -math.inf  # the end of the evaluation is reported too
            self.emit(messages.Progress(step, metrics.get(metric), evaluating))

    def warn(self, text: str) -> None:
        self.emit(messages.Note(text))

    def serve(self, job: Job) -> None:
        trial = store.trial(self.place.runs, job.id, self.place.checkpoints)
        self.patience = Patience(FULL_SECONDS, self.stop, lambda why: self.warn(f"{job.name} waits: {why.lower()}"))
        try:
            claimed = self.patience(lambda: store.claim(trial, self.watch))
            if claimed is None:  # the trial is over, or another process holds it
                return self.evaluate(job, trial)
            with claimed as attempt:
                self.attempt(job, trial, attempt)
        except (OSError, ValueError) as error:  # the attempt could not be claimed or written
            self.emit(messages.Ended("interrupted", reason_with_file(error)))

    def attempt(self, job: Job, trial: store.Trial, attempt: store.Attempt) -> None:
        """Train a trial and publish its result, or record its failure. Raises OSError if the disk is full."""
        attempt.patience = self.patience
        attempt.keep_weights = self.keeps_weights(job)
        self.emit(messages.Started())
        past = retry_rules.earlier_failures(trial, attempt.path, self.code)
        cause = retry_rules.no_progress_reason(trial, past, self.trainable.progress)
        if cause:
            attempt.fail(cause, "", self.code, kind=faults.MACHINE)
            return self.emit(messages.Ended("failed", cause))
        try:
            with output_to_file(attempt.path / "log"):
                settings = self.prepare_attempt(job, trial, attempt)
                outcome = self.train(job, settings, trial, attempt, past)
            if outcome.status != "stopped":
                attempt.publish(outcome.content())
                self.remove_leftovers(attempt)
            if outcome.status == "finished" and job.evals:
                return self.evaluate(job, trial, outcome.train_seconds)
            is_stopped = outcome.status == "stopped"
            self.emit(messages.Ended(outcome.status, "", outcome.metrics, outcome.train_seconds, leaving=is_stopped))
        except store.Superseded as error:
            self.emit(messages.Ended("held", reason_with_file(error)))
        except Exception as error:  # record it, so that the worker can train other trials
            if isinstance(error, OSError) and error.errno in FULL:
                raise
            self.fail(error, trial, attempt, past)

    def keeps_weights(self, job: Job) -> bool:
        """Evals, and plans that cannot be read, may need a trial's weights."""
        if job.evals or self.place.keep_weights == "all":
            return True
        plans, damaged = store.read_plans(self.place.runs)
        return bool(damaged) or kept_weights(self.place.keep_weights, plans)(job.id)

    def remove_leftovers(self, attempt: store.Attempt) -> None:
        """Remove the large files of an attempt that is over, unless its weights are kept. `ablate clean` does too."""
        if not attempt.keep_weights:
            with contextlib.suppress(OSError):
                for path in self.trainable.leftovers(attempt.path):
                    path.unlink()

    def prepare_attempt(self, job: Job, trial: store.Trial, attempt: store.Attempt) -> Settings:
        """Write the settings and the environment of the attempt. Raises ValueError if the id is not the planned one."""
        settings = self.trainable.resolve(job.config)
        identity = self.trainable.identity(settings)
        if hashed(identity) != job.id:
            raise ValueError(f"planned with other code or data: it is trial {hashed(identity)} now, plan it anew")
        environment = self.trainable.environment(settings, self.place.gpu)
        self.patience(lambda: trial.create({"config": settings, "identity": identity}))
        attempt.write_env(provenance.environment_record(environment, self.place.plugins))
        attempt.progress = partial(self.report, job.selection_metric)
        attempt.on_resume = partial(self.announce_resume, job.name)
        attempt.compiling = lambda: self.emit(messages.Compiling())
        return settings

    def train(
        self, job: Job, settings: Settings, trial: store.Trial, attempt: store.Attempt, past: Past
    ) -> TrainingOutcome:
        links = [link for link in LINKS if is_trial_id(settings.get(link))]
        parents = {link: self.verified_parent(link, settings[link]) for link in links}
        context = TrainingContext(
            data_dir=self.place.data_dir,
            plugins=list(self.place.plugins),
            description=job.description,
            should_stop=self.stop,
            warn=self.warn,
            on_hang=partial(self.give_up, trial=trial, attempt=attempt, past=past),
        )
        return self.trainable.train(settings, attempt, parents, context)

    def announce_resume(self, name: str, step: int) -> None:
        """Tell the user that a trial resumes. A command without a curve has step 0, however far it is."""
        self.warn(f"resuming {name} at step {step:,}" if step else f"resuming {name}")

    def verified_parent(self, link: str, name: str) -> Parent:
        trial = store.trial(self.place.runs, name)
        if trial.state().status != "finished":
            raise ValueError(f"{link}={name}: no trial of that id has finished in {self.place.runs}")
        try:
            return Parent(trial.config(), winner_weights(trial))
        except ValueError as error:
            raise ValueError(f"{link}={name}: {error}") from None

    def give_up(self, error: Exception, trial: store.Trial, attempt: store.Attempt, past: Past) -> None:
        """Record a failure, and release the trial: this process is about to be killed, which others may not see."""
        self.fail(error, trial, attempt, past)
        attempt.release()

    def fail(self, error: Exception, trial: store.Trial, attempt: store.Attempt, past: Past) -> None:
        fault = faults.classify(error, self.trainable.fault)
        place = faults.fault_location(error)
        cause = str(error) if fault.says_all else f"{type(error).__name__}: {error}"
        is_retried = False
        if fault.kind == faults.BUG and self.place.retries_exceptions:
            is_retried = retry_rules.may_retry_exception(past, place)
        pause = 0.0
        bad_node = ""
        trace = traceback.format_exc()
        rank_node: dict[str, str] = {}
        if isinstance(error, RankLost):
            trace = error.trace or trace
            if error.node is not None:
                rank_node["node"] = error.node
        if fault.kind == faults.MACHINE:
            env = validated(Environment, {**attempt.env, **rank_node})
            step = env.resumed_from.step if env.resumed_from else None
            past = [*past, retry_rules.EndedAttempt(True, cause, step, node=env.node)]
            reason = retry_rules.no_progress_reason(trial, past, self.trainable.progress)
            cause = reason or cause
            is_retried = not reason
            pause = retry_rules.retry_delay(past)
            bad_node = retry_rules.faulty_node(past)
        self.broken |= fault.fatal
        attempt.fail(cause, trace, self.code, kind=fault.kind, where=place, again=is_retried, **rank_node)
        if not is_retried:
            self.emit(messages.Ended("failed", cause, leaving=self.broken))
        elif bad_node:
            cause = f"{cause}, twice on {bad_node}: it goes on elsewhere"
            self.emit(messages.Ended("interrupted", cause, leaving=self.broken))
        else:
            self.emit(messages.Ended("again", cause, leaving=self.broken, pause=pause))

    def evaluate(self, job: Job, trial: store.Trial, seconds: float = 0.0) -> None:
        """Compute the missing evals of a trial, and report how its job ended. seconds: the trial's training time."""
        result = trial.state().result
        if result is None:  # another process trains it
            return self.emit(messages.Ended("held"))
        name = ""
        try:
            folder = trial.path / "evals"
            with lease.lock(folder / "turns"), output_to_file(folder / "log"):
                for name in eval_files.missing_evals(trial, job.evals, result):
                    if self.stop():
                        return self.emit(messages.Ended("stopped", leaving=True))
                    killed = eval_files.count_start(trial, name)
                    if killed >= retry_rules.WITHOUT_PROGRESS:
                        raise ValueError(f"its worker was killed {killed} times")
                    compute_eval(self.trainable, trial, name, self.place.data_dir, self.code)
            self.emit(messages.Ended(result.status, "", result.metrics, seconds))
        except TimeoutError as error:  # another worker computes its evals
            self.emit(messages.Ended("held", reason_with_file(error)))
        except Exception as error:  # record the cause, so that other trials go on
            if not name or (isinstance(error, OSError) and error.errno in FULL):
                raise
            why = str(error) if isinstance(error, ValueError) else repr(error)
            cause = f"eval {name}: {why}"
            eval_files.write_failure(trial, name, cause, traceback.format_exc(), self.code)
            self.emit(messages.Ended("failed", cause))


def start_heartbeat(parent: int, beat: Callable[[], None]) -> None:
    """Call `beat` every BEAT_SECONDS in a thread, which ends this process ORPHAN_SECONDS after its parent."""

    def run() -> None:
        while os.getppid() == parent:
            beat()
            time.sleep(BEAT_SECONDS)
        time.sleep(ORPHAN_SECONDS)
        os._exit(ORPHANED)

    threading.Thread(target=run, daemon=True).start()


def main() -> None:
    parent = os.getppid()
    place = PLACE.validate_python(json.loads(sys.argv[1]))
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        worker = Worker(place, channel)
        worker.trainable.start_worker(list(place.plugins), place.gpu)
    except ValueError as error:
        sys.exit(str(error))

    def stop(*_: object) -> None:
        worker.stop_requested = True

    signal.signal(signal.SIGTERM, stop)
    start_heartbeat(parent, lambda: worker.emit(messages.Alive()))
    worker.emit(messages.Ready())
    for line in sys.stdin:
        worker.serve(messages.read_job(line))
        worker.trainable.release_memory()
        if worker.stop() or worker.broken:
            break


if __name__ == "__main__":
    main()
