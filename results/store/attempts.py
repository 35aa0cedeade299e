"""Attempts at trials. Each attempt is the only writer to its folder, and one attempt publishes the trial's result."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commonfloor.files import Broken, Patience, append, forget_missing, read_bytes, sync_folder, write_bytes
from results.store import lease
from results.store.contents import SCHEMA, checksum, npz_bytes, write_json
from results.store.plan_files import make_run_directory
from results.store.schemas.base import Fact, Facts
from results.store.schemas.trials import MetricsLine
from results.store.trials import CONFIG, Trial, checkpoint_name, checkpoint_step, prune_checkpoints, read_metrics

if TYPE_CHECKING:
    import numpy as np

VOUCHED = ("env.json", "metrics.jsonl", "correct.npz")  # the attempt's files whose SHA-256 the result records


class Superseded(RuntimeError):
    """Raised if another attempt has taken over the trial, so that the writer stops and publishes nothing."""


class Attempt:
    """One process's hold on a trial, until its `with` block ends: the `run` that `vitcore.train` writes to.

    Checkpoints are saved and a result published only if no newer attempt exists. on_resume: called with a step.
    """

    def __init__(self, trial: Trial, path: Path) -> None:
        self.trial = trial
        self.path = path
        self.progress: Callable[..., None] = lambda *_, **__: None  # see vitcore's Run; several times a second
        self.compiling: Callable[[], None] = lambda: None  # called before the first step is compiled
        self.on_record: Callable[[Facts], None] = lambda facts: None
        self.on_resume: Callable[[int], None] = lambda step: None
        self.weights_sha256: str | None = None
        self.env: Facts = {}
        self.patience = Patience()
        self.keep_weights = True
        self._heartbeat = lease.Heartbeat(path)

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def release(self) -> None:
        self._heartbeat.release()

    def ensure_current(self) -> None:
        """Raise Superseded if a newer attempt exists."""
        newest = self.trial.attempts()[-1]
        if newest != self.path:
            raise Superseded(f"trial {self.trial.id}: attempt {self.path.name} was superseded by {newest.name}")

    def record(self, facts: Mapping[str, Fact]) -> None:
        """Add facts about how steps are computed to env.json, and pass them to `on_record`."""
        self.write_env({**self.env, **facts})
        self.on_record(facts)

    def write_env(self, env: Facts) -> None:
        self.env = env
        self.patience(lambda: write_json(self.path / "env.json", env))

    def checkpoint(self) -> bytes | None:
        """Return the bytes of the newest valid checkpoint of any attempt, or None if there is none.

        The metrics up to its step are copied here, and env.json names where this attempt starts.
        """
        newest = self.trial.newest_checkpoint()
        if newest:
            file, payload = newest
            earlier = self.trial.path / "attempts" / file.parent.parent.name
            step = checkpoint_step(file)
            self.write_metrics(line for line in read_metrics(earlier) if line.step <= step)
            if earlier != self.path:
                self.write_env({**self.env, "resumed_from": {"attempt": earlier.name, "step": step}})
                self.on_resume(step)
            return payload
        (self.path / "metrics.jsonl").unlink(missing_ok=True)
        if "resumed_from" not in self.env:
            self.write_env({**self.env, "resumed_from": {"attempt": self.path.name, "step": 0}})
        return None

    def save_checkpoint(self, step: int, payload: bytes) -> None:
        """Save a checkpoint and remove all but the newest. Raises Superseded if a newer attempt exists."""
        self.ensure_current()
        file = self.trial.checkpoint_folders(self.path)[0] / checkpoint_name(step, payload)
        self.patience(lambda: write_bytes(file, payload))
        self.ensure_current()
        prune_checkpoints(self.trial.checkpoints())

    def log(self, line: Mapping[str, float | None]) -> None:
        """Add a line, with the fields of MetricsLine, to metrics.jsonl, and sync it to disk."""
        self.patience(lambda: append(self.path / "metrics.jsonl", (json.dumps(line) + "\n").encode()))

    def write_metrics(self, lines: Iterable[MetricsLine]) -> None:
        content = "".join(json.dumps(line.content()) + "\n" for line in lines).encode()
        self.patience(lambda: write_bytes(self.path / "metrics.jsonl", content))

    def save_weights(self, payload: bytes) -> None:
        """Save the final weights if they are to be kept. The result always records their SHA-256."""
        if self.keep_weights:
            self.patience(lambda: write_bytes(self.path / "weights.safetensors", payload))
        self.weights_sha256 = hashlib.sha256(payload).hexdigest()

    def save_correct(self, index: "np.ndarray", correct: "np.ndarray") -> None:
        """Save which test images were classified correctly. index: image indices (n,). correct: 0 or 1 (n,)."""
        content = npz_bytes({"index": index.astype("int32"), "correct": correct.astype("uint8")})
        self.patience(lambda: write_bytes(self.path / "correct.npz", content))

    def publish(self, result: Mapping[str, object]) -> None:
        """Publish the result and remove the checkpoints. result: the fields of `Result` that training knows.

        Raises Superseded if a newer attempt or a result exists, and ValueError afterwards if a folder is a symbolic
        link.
        """
        self.ensure_current()
        files = {}
        for path in (self.trial.path / CONFIG, *(self.path / name for name in VOUCHED)):
            if path.exists():
                files[path.name] = hashlib.sha256(read_bytes(path)).hexdigest()
        content = {
            "schema": SCHEMA,
            "id": self.trial.id,
            "attempt": self.path.name,
            "weights_sha256": self.weights_sha256,
            **result,
            "files": files,
        }
        content["checksum"] = checksum(content)
        self.patience(lambda: write_json(self.path / "result.json", content))
        self.ensure_current()
        try:
            self.patience(lambda: os.link(self.path / "result.json", self.trial.path / "result.json"))
        except FileExistsError:
            raise Superseded(f"trial {self.trial.id}: a result was published before this one") from None
        sync_folder(self.trial.path)
        self.trial.remove_checkpoints()

    def fail(self, cause: str, traceback: str, code: str, **more: Any) -> None:
        """Write failure.json. code: digest of sources and plug-ins. more: other fields of Failure."""
        content = {"cause": cause, "traceback": traceback, "code": code, **more}
        self.patience(lambda: write_json(self.path / "failure.json", content))


def claim(trial: Trial, watch: lease.Watch) -> Attempt | None:
    """Return a new attempt that this process holds, or None if the trial is over or held.

    A broken result is moved into the new attempt. Raises ValueError for a linked folder, OSError and NewerSchema.
    """
    trial.ensure_no_links()
    attempts = trial.attempts()
    if attempts and not watch.is_dead(attempts[-1]):
        return None
    if attempts:  # of another node perhaps, whose result this node believes to be missing
        forget_missing(trial.path)
    if has_result(trial):  # checked after the lease: a holder publishes before releasing it
        return None
    make_run_directory(trial.path.parents[1])
    path = lease.take_next(trial.path / "attempts", watch)
    if path is None:
        return None
    attempt = Attempt(trial, path)
    try:
        forget_missing(trial.path)
        is_over = has_result(trial, aside=path / "broken-result.json")
    except BaseException:
        attempt.release()
        raise
    if is_over:
        attempt.release()
        return None
    return attempt


def has_result(trial: Trial, aside: Path | None = None) -> bool:
    """Return whether a valid result exists. A broken result is moved to `aside`, if given. Raises NewerSchema."""
    try:
        return trial.result() is not None
    except Broken:
        if aside is not None:
            os.rename(trial.path / "result.json", aside)
        return False
