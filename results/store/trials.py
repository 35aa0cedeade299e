"""The folder of a trial: its state, result and config, and its checkpoints."""

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from commonfloor.files import MEMORY, Broken, read_bytes, refuse_links, safe_name, sync_folder
from results.store import lease
from results.store.contents import SCHEMA, parse, parse_lines, read, read_sealed, timestamp, write_json
from results.store.schemas.base import Settings
from results.store.schemas.trials import Failure, MetricsLine, Result, TrialConfig

CONFIG = "config.json"
KEEP_CHECKPOINTS = 2
CHECKPOINT = re.compile(r"[0-9]{9,18}-[0-9a-f]{16}\.safetensors")
RETRY = "retry.json"  # marks an attempt that `retry` made: earlier failures no longer count
RETRIED = "retried-result.json"  # the result that such an attempt moved aside


@dataclass(frozen=True)
class TrialState:
    """The state of a trial on disk: finished, diverged, failed, running, interrupted, missing, or broken.

    reason: why there is no result. attempt: the folder of the attempt that published, or of the newest attempt.
    """

    status: str
    reason: str = ""
    attempt: Path | None = None
    result: Result | None = None

    @property
    def is_over(self) -> bool:
        return self.status in ("finished", "diverged")

    def is_reopened(self) -> bool:
        """Return whether `retry` has let the trial run again, and no attempt has begun since."""
        return self.attempt is not None and self.result is None and (self.attempt / RETRY).exists()

    def read(self, name: str) -> bytes:
        assert self.attempt is not None
        return read_vouched(self.result, self.attempt / name)

    @property
    def weights(self) -> Path:
        """The path of the final weights, which may not exist."""
        assert self.attempt is not None
        return self.attempt / "weights.safetensors"


def read_vouched(result: Result | None, path: Path) -> bytes:
    """Return the bytes of a file, verified if `result` has its SHA-256.

    Raises Broken if such a file is missing or has changed, and FileNotFoundError if another file is missing.
    """
    recorded = result.files.get(path.name) if result else None  # results of 0.11 and before recorded none
    try:
        payload = read_bytes(path)
    except FileNotFoundError:
        if recorded is not None:
            raise Broken(f"{path.name}: gone, though its result was published with it") from None
        raise
    if recorded is not None and hashlib.sha256(payload).hexdigest() != recorded:
        raise Broken(f"{path.name}: edited or damaged since its result was published")
    return payload


def state_of_attempt(attempt: Path) -> TrialState:
    """Return the state of a trial without a result. attempt: its newest attempt. Raises NewerSchema."""
    failure = read_failure(attempt / "failure.json")
    if failure is None and lease.seems_alive(attempt):
        return TrialState("running", "running", attempt)
    if failure is None:
        return TrialState("interrupted", "interrupted", attempt)
    if failure.again:
        return TrialState("interrupted", f"interrupted: {failure.cause}", attempt)
    return TrialState("failed", failure.cause, attempt)


class Trial:
    """The folder of a trial.

    scratch: a folder below which checkpoints are written instead, or None. They are read from both.
    """

    def __init__(self, path: Path, scratch: Path | None = None) -> None:
        self.path = path
        self.id = path.name
        self.scratch = scratch

    def attempts(self) -> list[Path]:
        return lease.numbered_folders(self.path / "attempts")

    def result(self) -> Result | None:
        """Return the verified result, or None if there is none. Raises Broken or NewerSchema."""
        try:
            result = read_sealed(self.path / "result.json", Result)
        except FileNotFoundError:
            return None
        if result.id != self.id:
            raise Broken(f"result.json: belongs to trial {result.id}")
        return result

    def newest_attempt(self) -> Path | None:
        return next(reversed(self.attempts()), None)

    def state(self) -> TrialState:
        """Return the trial's state. Raises NewerSchema if a newer version wrote one of its files."""
        try:
            result = self.result()
        except Broken as error:
            return TrialState("broken", str(error), self.newest_attempt())
        if result is not None:
            return TrialState(result.status, "", Path(self.path, "attempts", result.attempt), result)
        attempt = self.newest_attempt()
        if attempt is None:
            return TrialState("missing", "not started")
        return state_of_attempt(attempt)

    def failure(self) -> Failure | None:
        attempt = self.newest_attempt()
        return read_failure(attempt / "failure.json") if attempt else None

    def retried_divergences(self, state: TrialState) -> int:
        """Return how many diverged results `retry` set aside. Raises NewerSchema."""
        assert state.attempt is not None
        if int(state.attempt.name) == 1:  # nearly all trials: saves the listing of the attempts
            return 0
        diverged = 0
        for attempt in self.attempts():
            with contextlib.suppress(FileNotFoundError, Broken):
                diverged += read_sealed(attempt / RETRIED, Result).status == "diverged"
        return diverged

    def config(self, result: Result | None = None) -> Settings:
        """Return the resolved config, verified against the result. Raises FileNotFoundError, Broken or NewerSchema."""
        path = self.path / CONFIG
        return parse(read_vouched(result, path), path, TrialConfig).config

    def ensure_no_links(self) -> None:
        """Raise ValueError if the folder of trials, the trial, its attempts, checkpoints or evals is a link."""
        folders = [attempt / "checkpoints" for attempt in self.attempts()]
        refuse_links(self.path.parent.parent, self.path / "attempts", self.path / "evals", *folders)

    def create(self, content: Mapping[str, object]) -> None:
        """Write config.json unless the file exists. Raises ValueError if a folder is a symbolic link."""
        self.ensure_no_links()
        if not (self.path / CONFIG).exists():
            write_json(self.path / CONFIG, {"schema": SCHEMA, "id": self.id, **content})

    def reopen(self, watch: lease.Watch, result: Result | None) -> bool:
        """Make a new attempt with which earlier failures no longer count, and move any result into it.

        Returns False if the trial is held or its result is not `result`. Raises ValueError for links or damage, and
        OSError.
        """
        self.ensure_no_links()
        path = lease.take_next(self.path / "attempts", watch)
        if path is None:
            return False
        try:
            if self.result() != result:
                return False
            write_json(path / RETRY, {"schema": SCHEMA, "when": timestamp()})
            with contextlib.suppress(FileNotFoundError):
                os.rename(self.path / "result.json", path / RETRIED)
            sync_folder(self.path)
            return True
        finally:
            lease.release(path)

    def remove_checkpoints(self) -> None:
        self.ensure_no_links()
        for attempt in self.attempts():
            for folder in self.checkpoint_folders(attempt):
                shutil.rmtree(folder, ignore_errors=True)
        if self.scratch is not None:
            for folder in [*(self.scratch / self.id).glob("*"), self.scratch / self.id]:
                with contextlib.suppress(OSError):  # another run directory may have a trial with the same id there
                    folder.rmdir()

    def checkpoint_folders(self, attempt: Path) -> list[Path]:
        folders = [attempt / "checkpoints"]  # new checkpoints go to the first folder
        nonce = lease.nonce(attempt)
        if self.scratch is not None and nonce:
            folders.insert(0, self.scratch / self.id / attempt.name / nonce)
        return folders

    def checkpoints(self) -> list[Path]:
        """Return the checkpoints of all attempts, newest first."""
        folders = [folder for attempt in self.attempts() for folder in self.checkpoint_folders(attempt)]
        return newest_first(folders)

    def newest_checkpoint(self) -> tuple[Path, bytes] | None:
        """Return the newest checkpoint with a valid checksum, and its bytes, or None."""
        for file in self.checkpoints():
            with contextlib.suppress(OSError, Broken):  # scratch space may fail, or be cleared meanwhile
                payload = read_bytes(file, MEMORY)
                if file.name == checkpoint_name(checkpoint_step(file), payload):
                    return file, payload
        return None

    def newest_step(self) -> int:
        newest = self.newest_checkpoint()
        return checkpoint_step(newest[0]) if newest else 0

    def latest_step(self) -> int:
        logged = [line.step for attempt in self.attempts() for line in read_metrics(attempt)[-1:]]
        return max([0, *logged, *map(checkpoint_step, self.checkpoints()[:1])])


def read_failure(path: Path) -> Failure | None:
    """Return the failure in a file (of unknown cause if damaged), or None if it is missing. Raises NewerSchema."""
    try:
        return read(path, Failure)
    except FileNotFoundError:
        return None
    except Broken as error:
        return Failure(cause=f"unknown: {error}")


def read_metrics(attempt: Path) -> list[MetricsLine]:
    """Return an attempt's metrics before the first invalid line, or [] if there is no readable file."""
    try:
        return parse_lines(read_bytes(attempt / "metrics.jsonl"), MetricsLine)
    except (FileNotFoundError, Broken):
        return []


def trial(runs: Path, trial_id: str, scratch: Path | None = None) -> Trial:
    """Return the trial with this id, which need not exist. Raises ValueError if the id is not a valid file name."""
    return Trial(Path(runs, "trials", safe_name(trial_id)), scratch)


def checkpoint_name(step: int, payload: bytes) -> str:
    return f"{step:09d}-{hashlib.sha256(payload).hexdigest()[:16]}.safetensors"


def checkpoint_step(checkpoint: Path) -> int:
    return int(checkpoint.name.partition("-")[0])


def newest_first(folders: Iterable[Path]) -> list[Path]:
    files = [file for folder in folders for file in folder.glob("*.safetensors") if CHECKPOINT.fullmatch(file.name)]
    return sorted(files, key=checkpoint_order, reverse=True)


def checkpoint_order(checkpoint: Path) -> tuple[int, int, int]:
    try:
        written = checkpoint.stat().st_mtime_ns  # to verify a divergence, an attempt saves the same step twice
    except OSError:  # removed meanwhile: the trial has ended, or another attempt has newer checkpoints
        written = 0
    return checkpoint_step(checkpoint), int(checkpoint.parent.parent.name), written


def prune_checkpoints(checkpoints: Sequence[Path]) -> None:
    for old in checkpoints[KEEP_CHECKPOINTS:]:
        old.unlink(missing_ok=True)
