"""Packs copied to a node's own disk before they are read there: `stage` of a profile.

Once a node: a lock makes the others wait, and what was copied for an earlier job is found. Every shard is copied under
another name, held to its sum and renamed. Where there is no room, or nothing can be written, or less is left to read
than a copy would, it is said, and the packs are read where they are.
"""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ablations.planning.jobs import Job
from results import store
from results.store.paths import no_follow
from vitcore.data.datasets import own_packs
from vitcore.data.pack import BLOCK, INDEX, MANIFEST, Manifest, Shard, find, manifest

SPARE = 2**30  # bytes that stay free


def stage(jobs: Iterable[Job], runs: Path, folder: str, say: Callable[[str], None]) -> None:
    """Copies the packs of what is to do of these trials under `folder`; this process and those it starts find them."""
    left: Counter[str] = Counter()
    for job in jobs:
        left[job.config["data"]] += images_left(job, runs)
    staged = own_packs()
    for name in sorted(name for name in left if left[name]):
        if (source := find(name)) is None:
            continue
        target = Path(os.path.expanduser(os.path.expandvars(folder)))
        try:
            if not target.is_absolute():
                raise OSError(f"{folder} is no absolute folder here")
            staged[name] = str(copied(source, manifest(source, name), target, left[name], say))
        except (OSError, ValueError) as error:
            say(f"stage: {name} is read from {source}: {error}")
    if staged:
        os.environ["ABLATE_PACKS"] = json.dumps(staged)


@contextmanager
def staged(jobs: Iterable[Job], runs: Path, folder: str | None, say: Callable[[str], None]) -> Iterator[None]:
    """Inside, they are found there; what this process submits afterwards runs on other nodes, without the copies."""
    before = os.environ.get("ABLATE_PACKS", "")
    if folder:
        stage(jobs, runs, folder, say)
    try:
        yield
    finally:
        os.environ["ABLATE_PACKS"] = before


def images_left(job: Job, runs: Path) -> int:
    """How many images a trial still has to read to train."""
    trial = store.trial(runs, job.id)
    return 0 if trial.state().over else (job.config["steps"] - trial.step()) * int(job.config["batch"])


def copied(source: Path, known: Manifest, folder: Path, left: int, say: Callable[[str], None]) -> Path:
    """The pack's copy under `folder`, made unless it is there. Raises OSError where it cannot be or is not worth it."""
    target = folder / f"{known.name}-{known.fingerprint[:12]}"
    target.mkdir(parents=True, exist_ok=True)
    with open(target / ".lock", "w", opener=no_follow) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the first copies, the others find it
        missing = [shard for shard in known.shards if not is_there(target / shard.file, shard)]
        if not missing and all((target / name).exists() for name in (INDEX, MANIFEST)):
            return target
        if left < known.images:
            raise OSError(f"{left:,} images are left to train on, and a copy takes all {known.images:,}")
        began = time.monotonic()
        (target / MANIFEST).unlink(missing_ok=True)  # the machine's cleaner may have taken some of it
        wanted, free = sum(shard.bytes for shard in missing), shutil.disk_usage(target).free
        if wanted + SPARE > free:
            raise OSError(f"{folder} has {free / 1e9:,.1f} GB free, and {wanted / 1e9:,.1f} GB more are needed")
        for shard in missing:
            copy(source / shard.file, target / shard.file, shard.sha256)
        copy(source / INDEX, target / INDEX, known.index)
        copy(source / MANIFEST, target / MANIFEST, "")  # last: all is there where it is
    say(f"stage: {known.name}: {wanted / 1e9:,.1f} GB copied to {folder} in {time.monotonic() - began:.0f} s")
    return target


def is_there(path: Path, shard: Shard) -> bool:
    with suppress(OSError):
        return path.stat().st_size == shard.bytes
    return False


def copy(source: Path, target: Path, sha256: str) -> None:
    """Under its name only once all of it is written. Raises ValueError where it is not what its sum says."""
    total, partial = hashlib.sha256(), target.with_suffix(".part")
    with open(source, "rb") as old, open(partial, "wb", opener=no_follow) as new:
        while block := old.read(BLOCK):
            total.update(block)
            new.write(block)
        new.flush()
        os.fsync(new.fileno())
    if sha256 and total.hexdigest() != sha256:
        raise ValueError(f"{source}: damaged: its sum is not the manifest's")
    partial.rename(target)
