"""The on-disk format of a run directory: what a trial is, what one attempt at it writes, and who may write.

    runs/trials/<id>/config.json              the resolved config
    runs/trials/<id>/attempts/000k/           all that one attempt writes; never two writers in one
    runs/trials/<id>/result.json              linked last, once: its existence means the trial is over
    runs/studies/<name>/plan.json             the arms and trials of a study

Plain JSON, JSON lines, safetensors and npz without pickles. A checkpoint's name holds its checksum, a result
carries its own: what was torn or edited is never taken for what was written.
"""

import hashlib
import io
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from results import lease

SCHEMA = 1
KEEP_CHECKPOINTS = 2

Json = dict[str, Any]


class Broken(ValueError):
    """A file is not what was written: truncated, edited, or of another trial."""


class NewerSchema(ValueError):
    """A file was written by a newer version of this suite."""


class Superseded(RuntimeError):
    """Another attempt has taken the trial over: this one must stop and publish nothing."""


# -- files -----------------------------------------------------------------------------------------------------------


def write_bytes(path: Path, payload: bytes) -> None:
    """All of `payload` or nothing: a temporary name, fsync, rename, fsync of the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(temporary, "xb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_json(path: Path, content: object) -> None:
    write_bytes(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def sync(folder: Path) -> None:
    """Makes renames and links in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> Json:
    """Raises FileNotFoundError, Broken (with the reason), NewerSchema."""
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:  # also digits or nesting without end
        raise Broken(f"{path.name} is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise Broken(f"{path.name} is not a JSON object")
    schema = content.get("schema", SCHEMA)
    if isinstance(schema, int) and schema > SCHEMA:
        raise NewerSchema(f"{path}: schema {schema} is newer than this version reads ({SCHEMA}): upgrade to read it")
    return content


def read_lines(path: Path) -> list[Json]:
    """The whole lines of a JSON-lines file; a torn last line is not one."""
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return []
    lines = []
    for line in text.splitlines():
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return lines


def checksum(content: Json) -> str:
    """sha256 of the canonical JSON of everything but the checksum itself."""
    rest = {key: value for key, value in content.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


# -- reading a trial -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrialState:
    """What the disk says about a trial.

    status: finished, diverged (a result), failed, running, interrupted, missing, or broken (reason says why).
    attempt: the folder that holds the winner's files, or the newest.
    """

    status: str
    reason: str = ""
    attempt: Path | None = None
    result: Json | None = None

    @property
    def over(self) -> bool:
        return self.status in ("finished", "diverged")


class Trial:
    """One trial's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name

    def attempts(self) -> list[Path]:
        """Oldest first."""
        return lease.numbered(self.path / "attempts")

    def result(self) -> Json | None:
        """The verified result; None where there is none. Raises Broken, NewerSchema."""
        try:
            content = read_json(self.path / "result.json")
        except FileNotFoundError:
            return None
        if content.get("checksum") != checksum(content):
            raise Broken("result.json: its checksum differs (edited or damaged)")
        if content.get("id") != self.id:
            raise Broken(f"result.json: belongs to trial {content.get('id')}")
        return content

    def state(self) -> TrialState:
        """Raises NewerSchema only."""
        attempts = self.attempts()
        newest = attempts[-1] if attempts else None
        try:
            result = self.result()
        except Broken as error:
            return TrialState("broken", str(error), newest)
        if result is not None:
            return TrialState(result["status"], "", self.path / "attempts" / result["attempt"], result)
        if newest is None:
            return TrialState("missing", "not started")
        if (failure := self.failure()) is not None:
            return TrialState("failed", str(failure.get("cause", "unknown cause")), newest)
        if lease.seems_alive(newest):
            return TrialState("running", "running", newest)
        return TrialState("interrupted", "interrupted", newest)

    def failure(self) -> Json | None:
        """Why the newest attempt failed; None where it did not (a torn report counts as one without details)."""
        attempts = self.attempts()
        try:
            return read_json(attempts[-1] / "failure.json") if attempts else None
        except FileNotFoundError:
            return None
        except Broken as error:
            return {"cause": f"unknown: {error}"}

    def config(self) -> Json:
        """The resolved config that `create` wrote. Raises FileNotFoundError, Broken, NewerSchema."""
        return read_json(self.path / "config.json")

    def create(self, config: Json) -> None:
        """Writes config.json, readable alone, where there is none."""
        if not (self.path / "config.json").exists():
            write_json(self.path / "config.json", {"schema": SCHEMA, "id": self.id, **config})

    def claim(self, watch: lease.Watch) -> "Attempt | None":
        """A new attempt, if the trial is not over and the newest attempt's holder is dead; else None.

        The folder appears under its number with the lease already in it: whoever loses the rename looks again and
        never takes the next number. A broken result is moved aside, into the new attempt's folder.
        """
        attempts = self.attempts()
        if attempts and not watch.dead(attempts[-1]):
            return None
        if self._over():  # after the lease: a holder publishes before it lets go
            return None
        path = lease.take_next(self.path / "attempts", watch)
        if path is None:
            return None
        attempt = Attempt(self, path)
        if self._over(aside=path / "broken-result.json"):
            attempt.release()
            return None
        return attempt

    def _over(self, aside: Path | None = None) -> bool:
        """Whether a valid result exists; a broken one is moved to `aside`, if given."""
        try:
            return self.result() is not None
        except Broken:
            if aside is not None:
                os.rename(self.path / "result.json", aside)
            return False

    def sweep(self) -> None:
        """A trial that is over keeps no checkpoints, also where its last worker was killed before removing them."""
        for attempt in self.attempts():
            shutil.rmtree(attempt / "checkpoints", ignore_errors=True)

    def checkpoints(self) -> list[Path]:
        """Newest first, over all attempts."""
        found = [file for attempt in self.attempts() for file in (attempt / "checkpoints").glob("*.safetensors")]
        return sorted(found, key=age, reverse=True)


def age(checkpoint: Path) -> tuple[int, str, int]:
    """By step, then attempt, then time: of one step there may be two, where a divergence is being verified."""
    try:
        written = checkpoint.stat().st_mtime_ns
    except FileNotFoundError:  # the trial has ended meanwhile, or another attempt has newer ones
        written = 0
    return int(checkpoint.name.partition("-")[0]), checkpoint.parent.parent.name, written


# -- one attempt -----------------------------------------------------------------------------------------------------


class Attempt:
    """The one writer of an attempt's folder, for as long as it holds the trial; a context manager.

    This is the run that `vitcore.train` is handed. Every write that counts first makes sure that no newer attempt
    exists, and raises Superseded where one does.
    """

    def __init__(self, trial: Trial, path: Path) -> None:
        self.trial = trial
        self.path = path
        self.on_progress: Callable[[int, float | None], None] = lambda step, accuracy: None
        self.weights_sha256: str | None = None
        self.env: Json = {}
        self._metrics: io.TextIOWrapper | None = None
        self._heartbeat = lease.Heartbeat(path)

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def release(self) -> None:
        """Lets the trial go: another attempt may follow at once."""
        self._close_metrics()
        self._heartbeat.release()

    def _close_metrics(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None

    def ensure_current(self) -> None:
        newest = self.trial.attempts()[-1]
        if newest != self.path:
            raise Superseded(f"trial {self.trial.id}: attempt {self.path.name} was superseded by {newest.name}")

    def progress(self, step: int, accuracy: float | None) -> None:
        """Several times a second: told to whoever watches, not written."""
        self.on_progress(step, accuracy)

    def write_env(self, env: Json) -> None:
        """Where this attempt runs, and which attempt's checkpoint it goes on from."""
        self.env = env
        write_json(self.path / "env.json", env)

    def checkpoint(self) -> bytes | None:
        """The newest checkpoint of any attempt whose checksum holds; this attempt's metrics then reach up to it.

        None where there is none: it then has no metrics. An attempt may come back to its own checkpoints.
        """
        self._close_metrics()
        for file in self.trial.checkpoints():
            step, _, digest = file.stem.partition("-")
            payload, earlier = file.read_bytes(), file.parent.parent
            if hashlib.sha256(payload).hexdigest().startswith(digest):
                self._carry_metrics(earlier, int(step))
                if earlier != self.path:
                    self.write_env({**self.env, "resumed_from": {"attempt": earlier.name, "step": int(step)}})
                return payload
        (self.path / "metrics.jsonl").unlink(missing_ok=True)
        return None

    def _carry_metrics(self, earlier: Path, step: int) -> None:
        lines = [line for line in read_lines(earlier / "metrics.jsonl") if line["step"] <= step]
        write_bytes(self.path / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())

    def save_checkpoint(self, step: int, payload: bytes) -> None:
        self.ensure_current()
        if self._metrics is not None:
            os.fsync(self._metrics.fileno())
        digest = hashlib.sha256(payload).hexdigest()[:16]
        write_bytes(self.path / "checkpoints" / f"{step:09d}-{digest}.safetensors", payload)
        for old in self.trial.checkpoints()[KEEP_CHECKPOINTS:]:
            old.unlink(missing_ok=True)

    def log(self, line: Json) -> None:
        """Appends a line to metrics.jsonl."""
        if self._metrics is None:
            self._metrics = open(self.path / "metrics.jsonl", "a")  # noqa: SIM115 - closed by release()
        self._metrics.write(json.dumps(line) + "\n")
        self._metrics.flush()

    def save_weights(self, payload: bytes) -> None:
        """The final weights, as safetensors; the result names their sha256."""
        write_bytes(self.path / "weights.safetensors", payload)
        self.weights_sha256 = hashlib.sha256(payload).hexdigest()

    def save_correct(self, index: np.ndarray, correct: np.ndarray) -> None:
        """Which test images were classified correctly: index (n,), correct (n,)."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, index=index.astype(np.int32), correct=correct.astype(np.uint8))
        write_bytes(self.path / "correct.npz", buffer.getvalue())

    def publish(self, result: Json) -> None:
        """Ends the trial, once. Raises Superseded where another attempt has taken over or published."""
        self.ensure_current()
        content = {
            "schema": SCHEMA,
            "id": self.trial.id,
            "attempt": self.path.name,
            "weights_sha256": self.weights_sha256,
            **result,
        }
        content["checksum"] = checksum(content)
        write_json(self.path / "result.json", content)
        try:
            os.link(self.path / "result.json", self.trial.path / "result.json")
        except FileExistsError:
            raise Superseded(f"trial {self.trial.id}: a result was published before this one") from None
        sync(self.trial.path)
        self.trial.sweep()

    def fail(self, cause: str, traceback: str, code: str) -> None:
        """Records why this attempt failed, and under which code."""
        write_json(self.path / "failure.json", {"cause": cause, "traceback": traceback, "code": code})


# -- a run directory -------------------------------------------------------------------------------------------------


def trial(runs: Path, trial_id: str) -> Trial:
    return Trial(runs / "trials" / trial_id)


def study_folder(runs: Path, name: str) -> Path:
    return runs / "studies" / name


def plans(runs: Path) -> Iterator[Json]:
    """Every plan in the run directory, by name. Raises Broken, NewerSchema."""
    for path in sorted((runs / "studies").glob("*/plan.json")):
        try:
            yield read_json(path)
        except Broken as error:
            raise Broken(f"{path}: {error}") from None


def now() -> str:
    """UTC, to the second, for provenance."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
