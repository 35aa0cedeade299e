"""The on-disk format of a run directory: trials, attempts, results, plans, and the rules for writing them.

    runs/trials/<id>/config.json              the resolved config
    runs/trials/<id>/attempts/000k/           the files of one attempt; an attempt never has two writers
    runs/trials/<id>/result.json              a hard link, made once and last: if it exists, the trial is over
    runs/studies/<name>/plan.json             the arms and trials of a study

Files are plain JSON, JSON lines, safetensors and npz without pickles. A checksum in the name of
each checkpoint and in the content of each result reveals torn or edited files.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.store import lease
from results.store.disk_full import Patience
from results.store.files import MEMORY, npz_bytes, read_bytes, sha256
from results.store.files import Broken as Broken
from results.store.paths import no_follow, refuse_links, safe_name
from results.store.schemas import (
    Fact,
    Facts,
    Failure,
    Kind,
    MetricsLine,
    Plan,
    Result,
    Settings,
    TrialConfig,
    stray,
    validated,
)

if TYPE_CHECKING:
    import numpy as np

SCHEMA = 1
KEEP_CHECKPOINTS = 2
CHECKPOINT = re.compile(r"[0-9]{9,18}-[0-9a-f]{16}\.safetensors")
CONFIG = "config.json"
VOUCHED = ("env.json", "metrics.jsonl", "correct.npz")  # files of an attempt whose sha256 the result records
CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
RETRY = "retry.json"  # marks an attempt that `retry` made: earlier failures no longer count
RETRIED = "retried-result.json"  # the result that such an attempt moved aside


class NewerSchema(ValueError):
    """An error: a file was written by a newer version of this suite."""


class Superseded(RuntimeError):
    """An error: another attempt has taken over the trial, so the writer must stop and publish nothing."""


# -- files -----------------------------------------------------------------------------------------------------------


def write_bytes(path: Path, payload: bytes, mode: int = 0o666) -> None:
    """Write a file completely or not at all.

    The content goes to a temporary file, which is synced and renamed. Then the folder is synced. mode: permission bits.
    Raises OSError naming `path` if the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(temporary, "xb", opener=partial(os.open, mode=mode)) as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename:
            error.filename = str(path)  # not the temporary name
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def append(file: io.FileIO, content: bytes) -> None:
    """Append all of `content` to an unbuffered file. Raises OSError, with the file unchanged, if writing fails."""
    end, left = os.fstat(file.fileno()).st_size, memoryview(content)
    try:
        while left:
            left = left[file.write(left) or 0 :]
    except OSError:
        file.truncate(end)
        raise


def write_json(path: Path, content: object, mode: int = 0o666) -> None:
    write_bytes(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode(), mode)


def sync(folder: Path) -> None:
    """Sync a folder to disk, so that its renames and links survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: Path | str, schema: type[Kind]) -> Kind:
    """Return the validated content of a JSON file.

    Raises FileNotFoundError if the file is missing. Raises Broken if its content does not match the schema. Raises
    NewerSchema if a newer version wrote it.
    """
    return parse(read_bytes(path), path, schema)


def parse(payload: bytes, path: Path | str, schema: type[Kind]) -> Kind:
    """Return the validated content of a JSON file from its bytes; `path` only names the file in errors.

    Raises Broken if the bytes do not match the schema. Raises NewerSchema if a newer version wrote them.
    """
    return typed(parse_json(payload, path), path, schema)


def typed(content: object, path: Path | str, schema: type[Kind]) -> Kind:
    """Return parsed content as an instance of its schema; `path` only names the file in errors.

    Raises Broken naming the file and field if the content does not match.
    """
    try:
        return validated(schema, content)
    except Broken as error:
        raise Broken(f"{os.path.basename(path)}: {error}") from None


def read_sealed(path: Path | str, schema: type[Kind], name: str) -> Kind:
    """Return the validated content of a JSON file whose field `checksum` covers the other fields.

    name: the file's name in errors. Raises FileNotFoundError if the file is missing. Raises Broken if the content does
    not match the schema or the checksum. Raises NewerSchema if a newer version wrote it.
    """
    content = read_json(path)
    found = typed(content, path, schema)
    if content.get("checksum") != checksum(content):
        raise Broken(f"{name}: its checksum differs (edited or damaged)")
    return found


def read_json(path: Path | str) -> dict[str, Any]:
    """Return the object in a JSON file, without validating its fields.

    Raises FileNotFoundError if the file is missing. Raises Broken if it holds no JSON object. Raises NewerSchema if a
    newer version wrote it.
    """
    return parse_json(read_bytes(path), path)


def parse_json(payload: bytes, path: Path | str) -> dict[str, Any]:
    """Return the JSON object in the bytes of a file; `path` only names the file in errors.

    Raises Broken if the bytes are no JSON object. Raises NewerSchema if a newer version wrote them.
    """
    name = os.path.basename(path)
    try:
        content = json.loads(payload.decode())
    except (ValueError, RecursionError) as error:  # too many digits or levels too
        raise Broken(f"{name} is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise Broken(f"{name} is not a JSON object")
    version = content.get("schema", SCHEMA)
    if type(version) is not int:
        raise Broken(f"{name}: schema: a number, not {version!a:.60}")
    if version > SCHEMA:
        raise NewerSchema(f"{path}: schema {version} is newer than this version reads ({SCHEMA}): upgrade to read it")
    return content


def read_lines(path: Path, schema: type[Kind]) -> list[Kind]:
    """Return the lines of a JSON-lines file up to the first that is torn or breaks the schema.

    Returns an empty list if the file is missing. Raises Broken if it is not a regular file or is too large.
    """
    try:
        return parse_lines(read_bytes(path), schema)
    except FileNotFoundError:
        return []


def parse_lines(payload: bytes, schema: type[Kind]) -> list[Kind]:
    """Return the validated lines in JSON-lines bytes up to the first that is torn or breaks the schema."""
    lines: list[Kind] = []
    for line in payload.decode(errors="replace").splitlines():
        try:
            lines.append(validated(schema, json.loads(line)))
        except (ValueError, RecursionError):  # Broken is a ValueError too
            break
    return lines


def checksum(content: Mapping[str, object]) -> str:
    """Return the SHA-256 (hex) of a record's canonical JSON, which leaves out the field `checksum`."""
    rest = {key: value for key, value in content.items() if key != "checksum"}
    return hashlib.sha256(CANONICAL.encode(rest).encode()).hexdigest()


# -- reading a trial -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrialState:
    """The state of a trial on disk.

    status: finished or diverged (with a result), failed, running, interrupted, missing, or broken. reason: the cause of
    the status, if any. folder: the folder of the attempt that published the result, otherwise of the newest attempt. It
    may be a string, because making a Path takes as long as reading a small file. result: None without a valid result.
    """

    status: str
    reason: str = ""
    folder: Path | str | None = None
    result: Result | None = None

    @cached_property
    def attempt(self) -> Path | None:
        """The attempt's folder as a Path; None if no attempt exists."""
        return None if self.folder is None else Path(self.folder)

    @property
    def over(self) -> bool:
        return self.status in ("finished", "diverged")

    def read(self, name: str) -> bytes:
        """Return the bytes of a file in the attempt's folder, verified against the result.

        Raises FileNotFoundError if the file never existed. Raises Broken if it changed or vanished after publication.
        """
        return read_vouched(self.result, f"{self.folder}/{name}")

    @property
    def weights(self) -> Path:
        """The path of a finished trial's weights; the file may be missing."""
        assert self.attempt is not None
        return self.attempt / "weights.safetensors"


def read_vouched(result: Result | None, path: str) -> bytes:
    """Return the bytes of a file, verified against the SHA-256 that the result recorded for its name.

    A file without a recorded SHA-256 is not verified. Raises FileNotFoundError if it is missing. Raises Broken if a
    recorded file is missing or has changed.
    """
    name = os.path.basename(path)
    recorded = result.files.get(name) if result else None  # results of 0.11 and before recorded none
    try:
        payload = read_bytes(path)
    except FileNotFoundError:
        if recorded is not None:
            raise Broken(f"{name}: gone, though its result was published with it") from None
        raise
    if recorded is not None and hashlib.sha256(payload).hexdigest() != recorded:
        raise Broken(f"{name}: edited or damaged since its result was published")
    return payload


class Trial:
    """The folder of a trial.

    scratch: a folder for checkpoints, if any. Checkpoints are then written below it, and read from it and from the
    trial's folder.
    """

    def __init__(self, folder: Path | str, scratch: Path | None = None) -> None:
        self.folder = str(folder)
        self.id = os.path.basename(self.folder)
        self.scratch = scratch

    @cached_property
    def path(self) -> Path:
        return Path(self.folder)

    def attempts(self) -> list[Path]:
        """Return the folders of all attempts, oldest first."""
        return lease.numbered(self.path / "attempts")

    def result(self) -> Result | None:
        """Return the verified result, or None if the trial has no result.

        Raises Broken if the result is damaged or belongs to another trial. Raises NewerSchema if a newer version wrote
        it.
        """
        try:
            result = read_sealed(f"{self.folder}/result.json", Result, "result.json")
        except FileNotFoundError:
            return None
        if result.id != self.id:
            raise Broken(f"result.json: belongs to trial {result.id}")
        return result

    def state(self) -> TrialState:
        """Return the trial's state, `broken` for a damaged result. Raises NewerSchema for files of a newer version."""
        try:
            result, broken = self.result(), ""
        except Broken as error:
            result, broken = None, str(error)
        if result is not None:
            return TrialState(result.status, "", f"{self.folder}/attempts/{result.attempt}", result)
        newest = next(iter(self.attempts()[::-1]), None)
        if broken:
            return TrialState("broken", broken, newest)
        if newest is None:
            return TrialState("missing", "not started")
        failure = self.failure()
        if failure is not None and not failure.again:
            return TrialState("failed", failure.cause, newest)
        if failure is None and lease.seems_alive(newest):
            return TrialState("running", "running", newest)
        return TrialState("interrupted", "interrupted" + (f": {failure.cause}" if failure else ""), newest)

    def failure(self) -> Failure | None:
        """Return the failure of the newest attempt, without details if its file is torn. None if it did not fail."""
        attempts = self.attempts()
        try:
            return read(attempts[-1] / "failure.json", Failure) if attempts else None
        except FileNotFoundError:
            return None
        except Broken as error:
            return Failure(cause=f"unknown: {error}")

    def config(self, result: Result | None = None) -> Settings:
        """Return the resolved config as setting -> value, verified against `result` if given.

        Raises FileNotFoundError if config.json is missing. Raises Broken if it is damaged. Raises NewerSchema if a
        newer version wrote it.
        """
        path = f"{self.folder}/{CONFIG}"
        return parse(read_vouched(result, path), path, TrialConfig).config

    def ensure_no_links(self) -> None:
        """Raise ValueError if a folder for attempts, checkpoints or evals is a symbolic link."""
        checkpoints = [attempt / "checkpoints" for attempt in self.attempts()]
        refuse_links(self.path.parent.parent, self.path / "attempts", self.path / "evals", *checkpoints)

    def create(self, content: Mapping[str, object]) -> None:
        """Write config.json (`config` and `identity`) unless it exists. Raises ValueError if a folder is a link."""
        self.ensure_no_links()
        if not (self.path / CONFIG).exists():
            write_json(self.path / CONFIG, {"schema": SCHEMA, "id": self.id, **content})

    def claim(self, watch: lease.Watch) -> "Attempt | None":
        """Return a new attempt that this process holds, or None if the trial is over or held.

        The attempt's folder appears with the lease inside, by one rename. Returns None too if another process renames
        first. A broken result is moved into the new folder. Raises ValueError if a folder is a symbolic link.
        """
        self.ensure_no_links()
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

    def reopen(self, watch: lease.Watch, result: Result | None) -> bool:
        """Move aside the result of a trial that ended, so that it runs again; return whether this succeeded.

        The result moves into a new attempt, which also makes earlier failures no longer count. Returns False if the
        trial is held or its result is not `result`. Raises ValueError if a folder is a symbolic link.
        """
        self.ensure_no_links()
        path = lease.take_next(self.path / "attempts", watch)
        if path is None:
            return False
        if self.result() != result:
            lease.release(path)
            return False
        write_json(path / RETRY, {"schema": SCHEMA, "when": now()})
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.path / "result.json", path / RETRIED)
        sync(self.path)
        lease.release(path)
        return True

    def _over(self, aside: Path | None = None) -> bool:
        """Return whether a valid result exists. A broken result is moved to `aside`, if given."""
        try:
            return self.result() is not None
        except Broken:
            if aside is not None:
                os.rename(self.path / "result.json", aside)
            return False

    def sweep(self) -> None:
        """Remove the checkpoints of a trial that is over. Raises ValueError if a folder is a symbolic link."""
        self.ensure_no_links()
        for attempt in self.attempts():
            for folder in self.checkpoint_folders(attempt):
                shutil.rmtree(folder, ignore_errors=True)
        if self.scratch is not None:
            for folder in [*(self.scratch / self.id).glob("*"), self.scratch / self.id]:
                with contextlib.suppress(OSError):  # another run directory may have a trial of this id there
                    folder.rmdir()

    def checkpoint_folders(self, attempt: Path) -> list[Path]:
        """Return the folders that may hold an attempt's checkpoints. New checkpoints go to the first folder."""
        inside = [attempt / "checkpoints"]
        nonce = lease.nonce(attempt)
        return inside if self.scratch is None or not nonce else [self.scratch / self.id / attempt.name / nonce, *inside]

    def checkpoints(self) -> list[Path]:
        """Return the checkpoints of all attempts, newest first."""
        folders = [folder for attempt in self.attempts() for folder in self.checkpoint_folders(attempt)]
        found = [file for folder in folders for file in folder.glob("*.safetensors")]
        return sorted((file for file in found if CHECKPOINT.fullmatch(file.name)), key=age, reverse=True)

    def newest_step(self) -> int:
        """Return the step of the newest checkpoint with a valid checksum, or 0 without a valid checkpoint."""
        for file in self.checkpoints():
            with contextlib.suppress(OSError, Broken):  # scratch space may fail, or be cleared meanwhile
                if holds(file, sha256(file)):
                    return step_of(file)
        return 0

    def step(self) -> int:
        """Return the last step recorded in the metrics or checkpoints of any attempt, or 0 if none is recorded."""
        logged = [line.step for attempt in self.attempts() for line in read_metrics(attempt)[-1:]]
        return max([0, *logged, *map(step_of, self.checkpoints()[:1])])


def read_metrics(attempt: Path) -> list[MetricsLine]:
    """Return the lines of an attempt's metrics.jsonl, or an empty list if the file is missing or broken."""
    try:
        return read_lines(attempt / "metrics.jsonl", MetricsLine)
    except Broken:
        return []


def age(checkpoint: Path) -> tuple[int, int, int]:
    """Return the sort key of a checkpoint: its step, attempt number and modification time (ns).

    The time decides between two checkpoints of one step, which an attempt writes if it verifies a divergence.
    """
    try:
        written = checkpoint.stat().st_mtime_ns
    except OSError:  # removed meanwhile: the trial has ended, or another attempt has newer checkpoints
        written = 0
    return step_of(checkpoint), int(checkpoint.parent.parent.name), written


def holds(checkpoint: Path, digest: str) -> bool:
    """Return whether the checksum in a checkpoint's name matches its content. digest: the content's SHA-256 (hex)."""
    return digest.startswith(checkpoint.stem.partition("-")[2])


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.partition("-")[0])


# -- one attempt -----------------------------------------------------------------------------------------------------


class Attempt:
    """A context manager that holds a trial and is the only writer to one attempt's folder.

    It is the `run` to which `vitcore.train` writes. It saves checkpoints and publishes a result only if no newer
    attempt exists.
    """

    def __init__(self, trial: Trial, path: Path) -> None:
        self.trial = trial
        self.path = path
        self.on_progress: Callable[[int, float | None], None] = lambda step, accuracy: None
        self.on_compiling: Callable[[], None] = lambda: None
        self.on_record: Callable[[Facts], None] = lambda facts: None
        self.weights_sha256: str | None = None
        self.env: Facts = {}
        self.patience = Patience()
        self.keep_weights = True
        self._metrics: io.FileIO | None = None
        self._heartbeat = lease.Heartbeat(path)

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the trial, so that another attempt may start at once."""
        self._close_metrics()
        self._heartbeat.release()

    def _close_metrics(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None

    def ensure_current(self) -> None:
        """Raise Superseded if a newer attempt exists."""
        newest = self.trial.attempts()[-1]
        if newest != self.path:
            raise Superseded(f"trial {self.trial.id}: attempt {self.path.name} was superseded by {newest.name}")

    def progress(self, step: int, accuracy: float | None) -> None:
        """Pass a step and its accuracy to `on_progress`. Writes nothing: it runs several times a second."""
        self.on_progress(step, accuracy)

    def compiling(self) -> None:
        """Report through `on_compiling` that the first step is being compiled."""
        self.on_compiling()

    def record(self, facts: Mapping[str, Fact]) -> None:
        """Add facts about how steps are computed, such as kernels, to env.json."""
        self.write_env({**self.env, **facts})
        self.on_record(facts)

    def write_env(self, env: Facts) -> None:
        """Write env.json. env: the machine, the code, and the checkpoint from which this attempt resumes."""
        self.env = env
        self.patience(lambda: write_json(self.path / "env.json", env))

    def checkpoint(self) -> bytes | None:
        """Return the bytes of the newest valid checkpoint of any attempt, this attempt included.

        The metrics up to its step are copied into this attempt. Returns None without a valid checkpoint, and then
        removes this attempt's metrics.
        """
        self._close_metrics()
        for file in self.trial.checkpoints():
            earlier = self.trial.path / "attempts" / file.parent.parent.name
            try:
                payload = read_bytes(file, MEMORY)
            except (OSError, Broken):  # scratch space may fail, or be cleared meanwhile
                continue
            if holds(file, hashlib.sha256(payload).hexdigest()):
                step = step_of(file)
                lines = [line.content() for line in read_metrics(earlier) if line.step <= step]
                content = "".join(json.dumps(line) + "\n" for line in lines).encode()
                self.patience(partial(write_bytes, self.path / "metrics.jsonl", content))
                if earlier != self.path:
                    self.write_env({**self.env, "resumed_from": {"attempt": earlier.name, "step": step}})
                return payload
        (self.path / "metrics.jsonl").unlink(missing_ok=True)
        if "resumed_from" not in self.env:
            self.write_env({**self.env, "resumed_from": {"attempt": self.path.name, "step": 0}})
        return None

    def save_checkpoint(self, step: int, payload: bytes) -> None:
        """Save a checkpoint and remove all but the newest two. Raises Superseded if a newer attempt exists."""
        self.ensure_current()
        if self._metrics is not None:
            os.fsync(self._metrics.fileno())
        digest = hashlib.sha256(payload).hexdigest()[:16]
        file = self.trial.checkpoint_folders(self.path)[0] / f"{step:09d}-{digest}.safetensors"
        self.patience(lambda: write_bytes(file, payload))
        self.ensure_current()
        for old in self.trial.checkpoints()[KEEP_CHECKPOINTS:]:
            old.unlink(missing_ok=True)

    def log(self, line: Mapping[str, float]) -> None:
        """Append a line of numbers to metrics.jsonl."""
        if self._metrics is None:
            self._metrics = io.FileIO(self.path / "metrics.jsonl", "a", opener=no_follow)  # closed by release()
        file, content = self._metrics, (json.dumps(line) + "\n").encode()
        self.patience(lambda: append(file, content))

    def save_weights(self, payload: bytes) -> None:
        """Save the final weights (safetensors) if `keep_weights`; the result always records their SHA-256."""
        if self.keep_weights:
            self.patience(lambda: write_bytes(self.path / "weights.safetensors", payload))
        self.weights_sha256 = hashlib.sha256(payload).hexdigest()

    def save_correct(self, index: "np.ndarray", correct: "np.ndarray") -> None:
        """Save which test images were classified correctly. index: image indices (n,). correct: 0 or 1 (n,)."""
        content = npz_bytes({"index": index.astype("int32"), "correct": correct.astype("uint8")})
        self.patience(lambda: write_bytes(self.path / "correct.npz", content))

    def publish(self, result: Mapping[str, object]) -> None:
        """Publish the trial's result and remove its checkpoints.

        Raises Superseded if a newer attempt exists or a result was published before.
        """
        self.ensure_current()
        content = {
            "schema": SCHEMA,
            "id": self.trial.id,
            "attempt": self.path.name,
            "weights_sha256": self.weights_sha256,
            **result,
            "files": self._digests(),
        }
        content["checksum"] = checksum(content)
        self.patience(lambda: write_json(self.path / "result.json", content))
        self.ensure_current()
        try:
            self.patience(lambda: os.link(self.path / "result.json", self.trial.path / "result.json"))
        except FileExistsError:
            raise Superseded(f"trial {self.trial.id}: a result was published before this one") from None
        sync(self.trial.path)
        self.trial.sweep()

    def _digests(self) -> dict[str, str]:
        """Return file name -> SHA-256 (hex) for the files that tables, figures and exports read besides the result."""
        if self._metrics is not None:
            os.fsync(self._metrics.fileno())
        paths = {CONFIG: self.trial.path / CONFIG} | {name: self.path / name for name in VOUCHED}
        return {name: hashlib.sha256(read_bytes(path)).hexdigest() for name, path in paths.items() if path.exists()}

    def fail(self, cause: str, traceback: str, code: str, **more: Any) -> None:
        """Write failure.json. code: digest of the sources. more: further fields of schemas.Failure."""
        content = {"cause": cause, "traceback": traceback, "code": code, **more}
        self.patience(lambda: write_json(self.path / "failure.json", content))


# -- a run directory -------------------------------------------------------------------------------------------------


def trial(runs: Path, trial_id: str, scratch: Path | None = None) -> Trial:
    """Return the trial with an id. Raises ValueError if the id is not a valid file name."""
    return Trial(f"{runs}/trials/{safe_name(trial_id)}", scratch)


def study_folder(runs: Path, name: str) -> Path:
    """Return the folder of a plan. Raises ValueError if the plan's name is not a valid file name."""
    return runs / "studies" / safe_name(name)


def plan_content(plan: Plan) -> dict[str, object]:
    """Return the content of plan.json as field -> JSON value, without the checksum."""
    return {"schema": SCHEMA, **plan.content()}


def write_plan(path: Path, plan: Plan) -> None:
    """Write a plan with a checksum that reveals later edits."""
    content = plan_content(plan)
    write_json(path, content | {"checksum": checksum(content)})


def read_plan(path: Path) -> Plan:
    """Return a plan, verified against its checksum, which is left out.

    Raises FileNotFoundError if the file is missing. Raises Broken if it is damaged or edited. Raises NewerSchema if a
    newer version wrote it.
    """
    content = read_json(path)
    recorded = content.pop("checksum", None)  # plans of 0.11 and before have none
    plan = typed(content, path, Plan)
    if recorded is not None and recorded != checksum(content):
        what = f"unknown key {unknown!a:.60}" if (unknown := stray(plan)) else "its checksum differs"
        raise Broken(
            f"plan.json: {what} (edited or damaged): remove it, and `ablate run` or `submit` plans anew (results stay)"
        )
    return plan


def listed(folder: Path) -> list[Path]:
    """Return the sorted paths in a folder, empty if it is missing. Raises ValueError if it cannot be read."""
    try:
        return sorted(folder / name for name in os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ValueError(f"{folder}: cannot be read ({error.strerror})") from None


def plans(runs: Path) -> Iterator[Plan]:
    """Yield all plans of a run directory, sorted by name.

    Raises Broken if a plan is damaged or in a wrong folder. Raises NewerSchema if a newer version wrote it.
    """
    for folder in listed(runs / "studies"):
        path = folder / "plan.json"
        try:
            plan = read_plan(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except Broken as error:  # whose text begins with the file's name
            raise Broken(f"{path.parent}/{error}") from None
        if plan.name != path.parent.name:
            raise Broken(f"{path}: is the plan of {plan.name!a:.60}, not of its folder")
        yield plan


def now() -> str:
    """Return the current time in UTC, as in 2026-01-31T12:00:00Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
