"""One attempt at a trial by a command: its folder, its process, and how it ended."""

import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING

from ablations import faults, machine, provenance
from ablations.trainables.command import supervisor
from ablations.trainables.command.output import CURVE, METRICS, Curve, LineSplitter, Log, Report, read_correct
from ablations.trainables.command.template import Template
from ablations.trainables.trainable import TrainingContext, TrainingOutcome
from ablations.trainables.user_code import FOLDER, Failed, without_seed
from commonfloor.files import refuse_links
from results import store
from results.store import lease
from results.store.schemas.base import Settings

if TYPE_CHECKING:
    import numpy as np

GRACE_SECONDS = float(os.environ.get("ABLATE_GRACE_SECONDS", "45"))  # SIGTERM to SIGKILL; below runner.STOP_SECONDS
LOOK_SECONDS = 0.2  # between looks at whether to stop
CURVE_SECONDS = 3.0  # between looks at the curve and at whether this attempt is still the newest
ORPHAN_SECONDS = 5.0  # for the command of an earlier attempt to end, and again after it was killed
STOP_SECONDS = 1.0  # by which SIGTERM may reach a command before its worker
LONGEST_CAUSE = 200  # characters
PROCESS, SETTINGS = "process.json", "settings.json"  # in an attempt
NO_MEMORY = re.compile(
    r"out of memory|OutOfMemory|\bMemoryError\b|std::bad_alloc|Cannot allocate memory|RESOURCE_EXHAUSTED", re.IGNORECASE
)
ERROR = re.compile(r"(\[\S+\]:? ?)?[\w.]*(Error|Exception|Interrupt)\b.*")  # ends a traceback; torchrun's rank first


@dataclass(frozen=True)
class CommandOrder:
    """What to run: a template, where, with which settings, and what it reports: metric -> `printed`, as in Report."""

    template: Template
    folder: Path
    settings: Settings
    metrics: Mapping[str, str]


class CommandRun:
    def __init__(self, order: CommandOrder, run: store.Attempt, context: TrainingContext) -> None:
        self.order = order
        self.run = run
        self.context = context
        self.folder, earlier = claimed_folder(run)
        saved = json.loads(run.checkpoint() or "{}")
        self.saved_step = saved.get("step", 0)
        self.began = time.monotonic() - saved.get("seconds", 0.0)
        self.report = Report(order.metrics)
        self.right: np.ndarray | None = None  # whether each test image was classified right
        self.log = Log(run.path / "log")
        self.curve = Curve(self.folder / CURVE)
        self.memory_kills = machine.oom_kills()
        if earlier and self.curve.has_changed() and self.curve.step > self.saved_step:  # killed before it was recorded
            run.write_env({**run.env, "resumed_from": {"attempt": earlier, "step": self.curve.step}})
            self.record_curve()

    @property
    def seconds(self) -> float:
        """The time of training, over all attempts that a checkpoint connects."""
        return time.monotonic() - self.began

    def train(self) -> TrainingOutcome:
        with started(self.order, self.folder, self.run) as process:
            self.follow(process)
        self.curve.has_changed()
        self.curve.end()
        if self.curve.lines:
            self.record_curve()
        status = process.returncode
        return self.outcome(status if status >= 0 else 128 - status)  # negative if the supervisor itself was killed

    def follow(self, process: "subprocess.Popen[bytes]") -> None:
        readers = {
            process.stdout: LineSplitter(self.report.read_line),
            process.stderr: LineSplitter(self.report.find_printed),
        }
        is_asked = False
        looked = time.monotonic()
        with selectors.DefaultSelector() as pipes:
            for pipe, lines in readers.items():
                assert pipe is not None
                pipes.register(pipe, selectors.EVENT_READ, lines)
            is_over = False
            while not is_over:
                ready = pipes.select(LOOK_SECONDS)
                is_over = not ready and process.poll() is not None  # where pipes outlive it
                for key, _ in ready:
                    output = os.read(key.fd, 1 << 16)
                    self.log.write(output)
                    key.data.read(output)
                    if not output:
                        pipes.unregister(key.fileobj)
                is_over |= not pipes.get_map()  # the supervisor, which holds both, has ended
                if not is_asked and self.context.should_stop():
                    is_asked = True
                    process.terminate()
                if time.monotonic() - looked > CURVE_SECONDS:
                    self.run.ensure_current()
                    self.save_curve()
                    looked = time.monotonic()

    def save_curve(self) -> None:
        if self.curve.has_changed():
            self.record_curve()

    def record_curve(self) -> None:
        self.run.write_metrics(self.curve.lines)
        self.run.progress(self.curve.step, self.curve.numbers)
        if self.curve.step > self.saved_step:
            self.save_progress()

    def save_progress(self) -> None:
        """Save a checkpoint of the attempt. It holds no more than how far the command, which has its own, has come."""
        self.saved_step = max(self.saved_step, self.curve.step)
        content = {"step": self.saved_step, "seconds": self.seconds}
        self.run.save_checkpoint(self.saved_step, json.dumps(content).encode())

    def outcome(self, status: int) -> TrainingOutcome:
        if self.curve.unclear:
            self.context.warn(f"{CURVE}: a line is no object with numbers and a step: {self.curve.unclear}")
        problem = ""
        if status == 0 and not self.report.diverged:
            try:
                return self.finished()
            except ValueError as error:
                problem = str(error)
        if self.is_stopping():
            self.save_progress()
            return TrainingOutcome("stopped", {}, self.seconds)
        failed = Failed(problem, faults.INPUT)
        if not problem:
            failed = failure(status, self.log.last_lines(), machine.oom_kills() > self.memory_kills)
        has_diverged = self.curve.diverged and failed.fault.kind not in (faults.MACHINE, faults.MEMORY)
        if self.report.diverged or has_diverged:
            return TrainingOutcome("diverged", {}, self.seconds, {"diverged_at_step": self.curve.step})
        raise failed

    def finished(self) -> TrainingOutcome:
        self.report.read_file(self.folder / METRICS)
        numbers = self.report.numbers()
        correct = read_correct(self.folder)
        if correct is not None:
            self.run.save_correct(*correct)
            self.right = correct[1]
        return TrainingOutcome(
            "finished", numbers, self.seconds, {"steps": self.curve.step} if self.curve.lines else {}
        )

    def is_stopping(self) -> bool:
        """Return whether the worker has to stop. SLURM's signal may reach the command a moment before the worker."""
        deadline = time.monotonic() + STOP_SECONDS
        while not self.context.should_stop():
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_SECONDS)
        return True


@contextmanager
def started(order: CommandOrder, folder: Path, run: store.Attempt) -> "Iterator[subprocess.Popen[bytes]]":
    """Yield the supervisor of a trial's command. At the end of the block, nothing that it has started is left."""
    settings = without_seed(order.settings)
    seed = str(order.settings["seed"])
    trial_values = {"seed": seed, "folder": str(folder), "settings_file": str(run.path / SETTINGS)}
    run.patience(lambda: store.write_json(run.path / SETTINGS, settings))
    words = [
        sys.executable,
        "-IS",
        supervisor.__file__,
        str(GRACE_SECONDS),
        *order.template.fill(settings, trial_values),
    ]
    with subprocess.Popen(
        words,
        cwd=order.folder,
        env=environment(trial_values),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
    ) as process:
        try:
            run.patience(lambda: store.write_json(run.path / PROCESS, lease.own_lease(process.pid).content()))
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()  # at which the supervisor kills what still runs
            process.wait()
            with suppress(ProcessLookupError):  # what is left if the supervisor itself was killed
                os.killpg(process.pid, signal.SIGKILL)


def environment(trial_values: Mapping[str, str]) -> dict[str, str]:
    """Return a command's environment, without this suite, which workers have on PYTHONPATH, and PYTHONSAFEPATH."""
    path = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder != str(provenance.HOME)]
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    if any(path):
        variables["PYTHONPATH"] = os.pathsep.join(path)
    return variables | {
        "PYTHONUNBUFFERED": "1",  # so that the log is up to date
        "ABLATE_SEED": trial_values["seed"],
        "ABLATE_FOLDER": trial_values["folder"],
        "ABLATE_SETTINGS": trial_values["settings_file"],
    }


def claimed_folder(run: store.Attempt) -> tuple[Path, str]:
    """Return (the folder with all that earlier attempts wrote, the attempt that had it or "").

    It moves from attempt to attempt, so that a command whose worker has lost the trial no longer finds it. On this
    machine, such a command is ended first. Raises Failed if it does not end.
    """
    folder = run.path.absolute() / FOLDER
    previous = ""
    earlier_attempts = [path for path in run.trial.attempts() if int(path.name) < int(run.path.name)]
    for earlier in reversed(earlier_attempts):
        end_command(earlier)
        run.ensure_current()
        with suppress(FileNotFoundError):
            os.rename(earlier / FOLDER, folder)
            previous = earlier.name
            break
    folder.mkdir(exist_ok=True)
    refuse_links(run.path, folder)
    return folder, previous


def end_command(attempt: Path) -> None:
    """Wait for the end of an attempt's command on this machine, and kill it after ORPHAN_SECONDS."""
    process = lease.read(attempt, PROCESS)
    deadline = time.monotonic() + ORPHAN_SECONDS
    while process is not None and lease.holder_state(process) in ("lives", "stopped"):
        late = time.monotonic() - deadline
        if late > ORPHAN_SECONDS:
            raise Failed(f"process {process.pid} of attempt {attempt.name} does not end", faults.MACHINE)
        if late > 0:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        time.sleep(0.05)


def failure(status: int, lines: Sequence[str], was_memory_kill: bool) -> Failed:
    """Return the error of a failed command. status: its exit status, or 128 + a signal. lines: its last output."""
    errors = [line for line in lines if ERROR.match(line)] or list(lines) or ["it printed nothing"]
    error_line = errors[-1][:LONGEST_CAUSE]
    memory = [line for line in lines if NO_MEMORY.search(line)]
    if memory:
        return Failed(f"out of memory: {memory[-1][:LONGEST_CAUSE]}", faults.MEMORY)
    ended_by = {128 + number: number.name for number in signal.Signals}.get(status, "")
    if ended_by == "SIGKILL" and was_memory_kill:
        return Failed("killed by the kernel: out of memory", faults.MEMORY)
    how = f"killed by {ended_by}" if ended_by else f"exit status {status}"
    kind = faults.MACHINE if ended_by in ("SIGKILL", "SIGTERM") else faults.classify(RuntimeError(error_line)).kind
    return Failed(f"{how}: {error_line}", kind)
