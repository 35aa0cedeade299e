"""Copy packs to a node's local disk before training reads them, for the key `stage` of a profile.

A pack is copied once per node. A lock makes other jobs wait, and later jobs find the copy. Each shard is copied under
another name, checked against its checksum and renamed. A pack is not copied if the disk lacks space, or if training
reads fewer images than the pack holds. A message then gives the reason.
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

from ablations.jobs import Job
from results import store
from results.store.files import open_no_follow
from vitcore.data.files import reason_with_file
from vitcore.data.homes import own_packs
from vitcore.data.pack import BLOCK, INDEX, MANIFEST, Manifest, Shard, find, manifest

SPARE = 2**30  # bytes that must stay free


def stage(jobs: Iterable[Job], runs: Path, folder: str, say: Callable[[str], None]) -> None:
    """Copy to `folder` the packs that unfinished trials read, and use the copies in this process and its children.

    A pack that cannot be copied is read where it is. Environment variables in `folder` are expanded. say: called with a
    line about each pack that is copied or cannot be copied.
    """
    left: Counter[str] = Counter()
    for job in jobs:  # count the images that unfinished trials still have to read
        trial = store.trial(runs, job.id)
        if not trial.state().is_over:
            left[job.config["data"]] += (job.config["steps"] - trial.latest_step()) * int(job.config["batch"])
    staged = own_packs()
    for name in sorted(name for name in left if left[name]):
        source = find(name)
        if source is None:
            continue
        target = Path(os.path.expanduser(os.path.expandvars(folder)))
        try:
            if not target.is_absolute():
                raise OSError(f"{folder} is no absolute folder here")
            staged[name] = str(staged_copy(source, manifest(source, name), target, left[name], say))
        except (OSError, ValueError) as error:
            say(f"stage: {name} is read from {source}: {reason_with_file(error)}")
    if staged:
        os.environ["ABLATE_PACKS"] = json.dumps(staged)


@contextmanager
def staged(jobs: Iterable[Job], runs: Path, folder: str | None, say: Callable[[str], None]) -> Iterator[None]:
    """Copy packs to `folder`, if given, and read the copies within the block. After it, the original packs are read."""
    before = os.environ.get("ABLATE_PACKS", "")
    if folder:
        stage(jobs, runs, folder, say)
    try:
        yield
    finally:
        os.environ["ABLATE_PACKS"] = before


def staged_copy(source: Path, pack: Manifest, folder: Path, left: int, say: Callable[[str], None]) -> Path:
    """Return the folder of a pack's copy under `folder`, after copying what is missing. left: images still to read.

    Raises OSError if the copy cannot be made or is not worth making, or ValueError if the pack is damaged.
    """
    target = folder / f"{pack.name}-{pack.fingerprint[:12]}"
    target.mkdir(parents=True, exist_ok=True)
    with open(target / ".lock", "w", opener=open_no_follow) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the first job copies, the others wait
        missing = [shard for shard in pack.shards if not is_complete(target / shard.file, shard)]
        if not missing and all((target / name).exists() for name in (INDEX, MANIFEST)):
            return target
        if left < pack.images:
            raise OSError(f"only {left:,} images are left to train on, but a copy takes all {pack.images:,}")
        began = time.monotonic()
        (target / MANIFEST).unlink(missing_ok=True)  # a cleaner of old files may have removed parts
        wanted = sum(shard.bytes for shard in missing)
        free = shutil.disk_usage(target).free
        if wanted + SPARE > free:
            raise OSError(f"{folder} has {free / 1e9:,.1f} GB free, but {wanted / 1e9:,.1f} GB more are needed")
        for shard in missing:
            copy(source / shard.file, target / shard.file, shard.sha256)
        copy(source / INDEX, target / INDEX, pack.index)
        copy(source / MANIFEST, target / MANIFEST, "")  # last, because its presence marks a complete copy
    say(f"stage: {pack.name}: {wanted / 1e9:,.1f} GB copied to {folder} in {time.monotonic() - began:.0f} s")
    return target


def is_complete(path: Path, shard: Shard) -> bool:
    with suppress(OSError):
        return path.stat().st_size == shard.bytes
    return False


def copy(source: Path, target: Path, sha256: str) -> None:
    """Copy a file under a temporary name, then rename it. Raises ValueError if `sha256` is given and does not match."""
    partial = target.with_suffix(".part")
    with open(source, "rb") as original, open(partial, "wb", opener=open_no_follow) as copied:
        shutil.copyfileobj(original, copied, BLOCK)
        copied.flush()
        os.fsync(copied.fileno())
    with open(partial, "rb") as written:
        if sha256 and hashlib.file_digest(written, "sha256").hexdigest() != sha256:
            raise ValueError(f"{source}: damaged: its checksum does not match the manifest")
    partial.rename(target)
