"""Worker processes, which the pool starts, listens to and ends."""

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue

from pydantic import TypeAdapter

from ablations import provenance
from ablations.execution import messages
from ablations.execution.messages import Heard
from ablations.jobs import Job, Keep


@dataclass(frozen=True)
class Place:
    runs: Path
    data_dir: Path | None
    plugins: dict[str, str] = field(default_factory=dict)  # file -> digest
    gpu: bool = False  # whether workers refuse to run without a GPU
    checkpoints: Path | None = None  # scratch space for checkpoints; None for the run directory
    keep_weights: Keep = "all"
    trials_per_gpu: int = 1
    trainable: str = ""  # of the trials, as module:attribute; "" for a ViT
    retries_exceptions: bool = True  # whether a trial that ends with an exception may be tried again

    @property
    def code(self) -> str:
        return provenance.code_digest(self.plugins)


PLACE = TypeAdapter(Place)  # a worker reads its place from the command line
PIPE_SECONDS = 2.0  # to read the last lines of a worker, which has ended: a child process may keep its pipes open


def worker_environment(place: Place, own: dict[str, str]) -> dict[str, str]:
    path = [str(provenance.HOME), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, **own, "PYTHONPATH": os.pathsep.join(path)}
    if place.data_dir:
        environment["ABLATE_DATA"] = str(place.data_dir.absolute())
    return environment


class WorkerProcess:
    """A process that trains the jobs that the pool sends. own: its environment variables.

    events: receives (this worker, event) for each message, each line on standard error and the exit.
    """

    def __init__(self, place: Place, own: dict[str, str], events: "SimpleQueue[tuple[WorkerProcess, Heard]]") -> None:
        if place.data_dir:
            place = replace(place, data_dir=place.data_dir.absolute())
        settings = json.dumps(PLACE.dump_python(place, mode="json"))  # ASCII even if folder names are not
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ablations.execution.worker", settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=worker_environment(place, own),
            start_new_session=True,  # Ctrl-C reaches only this process, which then stops the workers
        )
        self.events = events
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        """Put all that the worker writes, and finally its exit, into the queue of events. Runs in a thread."""
        readers = [threading.Thread(target=read, daemon=True) for read in (self.read_events, self.read_errors)]
        for reader in readers:
            reader.start()
        code = self.process.wait()
        for reader in readers:
            reader.join(PIPE_SECONDS)
        self.events.put((self, messages.Exited(code)))

    def read_events(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.endswith("\n"):  # a killed worker's last line may be incomplete
                    self.events.put((self, messages.read_event(line)))

    def read_errors(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                if line.strip():
                    self.events.put((self, messages.Said(line.rstrip())))

    def send(self, job: Job) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):  # the process died: its exit follows as an event
            self.process.stdin.write(messages.job_line(job))
            self.process.stdin.flush()

    def close(self) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):  # the process has ended
            self.process.stdin.close()

    def stop(self) -> None:
        """Ask the worker to save a checkpoint at its next step and then end."""
        self.process.terminate()
        self.close()

    def end(self, deadline: float) -> None:
        try:
            self.process.wait(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
