"""Writing and repairing packs (vitcore/data/pack.py) on several cores, and the options of a pack.

If a writer is killed, a later call continues its pack: a note beside each shard keeps its records until the end.
"""

import contextlib
import fcntl
import hashlib
import io
import json
import os
import threading
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from PIL import Image
from pydantic import Field, model_validator

from commonfloor.files import open_no_follow, read_bytes, rename_durably, write_bytes
from commonfloor.messages import reason
from commonfloor.options import ConfigError, Options
from vitcore.data.builtin import BUILT_IN
from vitcore.data.dataset import Bytes, moments
from vitcore.data.decode import DECODING, middle_window
from vitcore.data.pack import (
    BEGUN,
    INDEX,
    MANIFEST,
    NAME,
    RECORD,
    VERSION,
    Channels,
    Format,
    Manifest,
    Records,
    Shard,
    Side,
    Sum,
    manifest,
)
from vitcore.data.pack_sources import Source

LARGEST_NOTE = 2**26  # bytes
SIZE = 256  # default side of the stored squares, in pixels
QUALITY = 95  # of JPEG
SHARDS = 64  # smallest number of shards, so that several cores have work and a kill loses little
SHARD_BYTES = 2**30  # largest size of a shard
FILES = 512  # largest number of shards, because all of them stay open
Counts = np.ndarray[Any, np.dtype[np.int64]]
Advance = Callable[[int], object]  # takes the number of images processed since the last call; any thread may call it


class PackOptions(Options):
    """The options with which a pack is written. size: side of the stored squares, in pixels.

    crop: side of the center crop for evaluation, in pixels, by default 7/8 of `size`, such as 224 for 256.
    """

    size: Side = SIZE
    crop: Side = Field(default_factory=lambda given: max(1, round(7 / 8 * given.get("size", SIZE))))
    format: Format = "bytes"

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.crop > self.size:
            raise ConfigError(f"--crop {self.crop}: from 1 to --size {self.size}")
        return self


class Begun(PackOptions):
    """The note in an unfinished pack: its options, and the digest of its source."""

    version: int = 1  # format 1 did not write its version
    name: str
    source: Sum
    decoding: int = 1  # earlier notes do not state it


def check_name(name: str) -> None:
    if name in BUILT_IN:
        raise ConfigError(f"a pack '{name}': is built in")
    if not NAME.fullmatch(name):
        raise ConfigError(f"a pack '{name}': small letters, digits and . _ -, 64 at most")


def complete_options(name: str, folder: Path, given: Mapping[str, Any], sides: Sequence[int]) -> PackOptions:
    """Return the `given` options, completed from the pack in `folder`, finished or not, or else from defaults.

    sides: result of `Source.shorter_sides`. The default size enlarges none of these images. Raises ConfigError if the
    name, an option or the pack is invalid, or if options contradict the pack.
    """
    check_name(name)
    if (folder / MANIFEST).is_file():
        begun: PackOptions | None = options_of(manifest(folder, name))
    else:
        begun = read_note_of_pack(folder)
    least = min(sides)
    if begun is None:
        shrunk = {"size": least, "crop": least} if "size" not in given and least < SIZE else {}
        return PackOptions(**{**shrunk, **given})
    for key, value in given.items():
        other = getattr(begun, key)
        if value != other:
            anew = "give the other one another NAME, or remove that folder first"
            raise ConfigError(f"--{key} {value}: {folder} is packed with --{key} {other}: {anew}")
    return begun


def enlargement_warning(sides: Sequence[int], size: int) -> str:
    """Return a warning if packing enlarges images, otherwise "". sides: result of `Source.shorter_sides`."""
    small = [side for side in sides if side < size]
    if not small:
        return ""
    return (
        f"{len(small)} of {len(sides)} images looked at are enlarged to --size {size}, the smallest from {min(small)} "
        "pixels: no detail is gained, and every epoch costs more"
    )


def options_of(manifest: Manifest) -> PackOptions:
    return PackOptions(size=manifest.size, crop=manifest.image_size, format=manifest.format)


def read_note_of_pack(folder: Path) -> Begun | None:
    """Return the note of an unfinished pack, or None if there is none; raise ConfigError if it is damaged."""
    try:
        return Begun(**json.loads(read_bytes(folder / BEGUN, LARGEST_NOTE)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{folder / BEGUN}: damaged ({reason(error)}): remove {folder}, and pack anew") from None


def pack(
    name: str,
    source: Source,
    home: Path,
    options: PackOptions = PackOptions(),
    jobs: int = 1,
    advance: Advance = lambda images: None,
) -> Path:
    """Pack `source` into the folder HOME/NAME with `jobs` threads, and return the folder.

    Each image's shorter side is resized to `options.size`, bilinearly with antialiasing, and its middle square stored.
    Raises ValueError if the name or an image is invalid, or if the folder holds a finished or another pack, or another
    process writes there. Raises OSError if writing fails.
    """
    check_name(name)
    folder = home / name
    folder.mkdir(parents=True, exist_ok=True)
    with pack_lock(folder):
        if (folder / MANIFEST).exists():
            raise ValueError(f"{folder / MANIFEST}: exists already")
        channels: Channels = 1 if source.all_gray() else 3
        begin_pack(folder, name, source, options)
        stopped = threading.Event()

        def count(images: int) -> None:
            advance(images)
            if stopped.is_set():
                raise InterruptedError("another shard cannot be written")

        writer = Writer(source, options, channels, count)
        parts = shard_ranges(source, options.size**2 * channels)
        paths = [folder / f"shard-{number:05}.{options.format}" for number in range(len(parts))]
        with ThreadPoolExecutor(jobs) as pool:
            try:
                shards = dict(zip(paths, pool.map(writer.write, paths, parts), strict=True))
            except BaseException:  # Ctrl-C too: the other threads stop after the current image, not the current shard
                stopped.set()
                pool.shutdown(cancel_futures=True)
                raise
        finish(folder, name, writer, shards)
    return folder


def repair(
    folder: Path, manifest: Manifest, source: Source, damaged: Collection[str], jobs: int, advance: Advance
) -> None:
    """Rewrite the `damaged` files, as named by `verify`, of a finished pack from its source. The manifest stays.

    Raises ValueError if another process is writing the pack, an image is unreadable or the source has changed, and
    OSError if writing fails. A new file that does not match the manifest never replaces the old file.
    """
    if (source.classes, source.train, len(source.labels)) != (tuple(manifest.classes), manifest.train, manifest.images):
        why = "other classes, or other numbers of training and test images"
        raise ValueError(f"{folder}: was packed from other images than these: {why}")
    writer = Writer(source, options_of(manifest), manifest.channels, advance)
    again = shards_to_rewrite(manifest, damaged)

    def records(shard: Shard, part: range) -> Records | None:
        if shard in again:
            return writer.rewrite(folder / shard.file, part, shard.sha256)
        return stored_records(folder / shard.file, source, part) if INDEX in damaged else None

    with pack_lock(folder), ThreadPoolExecutor(jobs) as pool:
        records_found = list(pool.map(records, manifest.shards, shard_ranges(source, manifest.image_bytes)))
        if INDEX in damaged:
            content = npy_bytes(np.concatenate([some for some in records_found if some is not None]))
            check_sha256(folder / INDEX, hashlib.sha256(content).hexdigest(), manifest.index)
            write_bytes(folder / INDEX, content)


def shards_to_rewrite(manifest: Manifest, damaged: Collection[str]) -> list[Shard]:
    """Return the shards that a repair must rewrite: the damaged shards, or all if a JPEG pack's index is damaged."""
    every = INDEX in damaged and manifest.format == "jpeg"  # only the index tells where each JPEG begins
    return [shard for shard in manifest.shards if every or shard.file in damaged]


@contextlib.contextmanager
def pack_lock(folder: Path) -> Iterator[None]:
    """Lock the pack in `folder` during the block; raise ValueError if another process holds the lock."""
    with open(folder / ".lock", "w", opener=open_no_follow) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{folder}: another process is packing there") from None
        yield


def begin_pack(folder: Path, name: str, source: Source, options: PackOptions) -> None:
    """Write the note of a pack in `folder` unless it exists; raise ValueError if another pack was begun there."""
    wanted = Begun(
        **options.model_dump() | {"version": VERSION, "name": name, "source": source.digest, "decoding": DECODING}
    )
    note = read_note_of_pack(folder)
    if note is None:
        write_bytes(folder / BEGUN, wanted.model_dump_json(indent=1).encode())
    elif note != wanted:
        begun = note.model_dump()
        requested = wanted.model_dump()
        key = next(key for key in requested if begun[key] != requested[key])
        why = {"source": "of other images", "version": "of another format", "decoding": "by an earlier version"}
        other = why.get(key, f"with {key}={begun[key]}")
        raise ValueError(f"{folder}: a pack {other} was begun here: finish that, or remove the folder")


def shard_ranges(source: Source, image_bytes: int) -> list[range]:
    """Return the image numbers in each shard. A shard holds only training images or only test images."""
    count = len(source.labels)
    most = max(1, min(-(-count // SHARDS), SHARD_BYTES // image_bytes), -(-count // FILES))
    ends = (range(source.train), range(source.train, count))
    return [part[first : first + most] for part in ends for first in range(0, len(part), most)]


class Written(NamedTuple):
    """The content of a shard's note. records (n,): part of the index. counts (C, 256): histograms of the channels."""

    sha256: str
    records: Records
    counts: Counts


@dataclass(frozen=True)
class Writer:
    """A writer of shards, which converts the images of `source` to `channels` channels."""

    source: Source
    options: PackOptions
    channels: Channels
    advance: Advance

    def write(self, path: Path, part: range) -> Written:
        """Write a shard of the images `part` and its note unless both files exist, and return the note."""
        note = path.with_suffix(".json")
        if path.exists() and note.exists():
            self.advance(len(part))
            return read_note(note, len(part), self.channels)
        written = self.write_images(path.with_suffix(".part"), part)
        content = {"sha256": written.sha256, "records": written.records.tolist(), "counts": written.counts.tolist()}
        write_bytes(note, json.dumps(content).encode())
        rename_durably(path.with_suffix(".part"), path)
        return written

    def rewrite(self, path: Path, part: range, sha256: str) -> Records:
        """Rewrite a shard and return its records (n,); keep the old shard and raise ValueError if hashes differ."""
        written = self.write_images(path.with_suffix(".part"), part)
        check_sha256(path, written.sha256, sha256)
        rename_durably(path.with_suffix(".part"), path)
        return written.records

    def write_images(self, path: Path, part: range) -> Written:
        records = np.zeros(len(part), RECORD)
        total = hashlib.sha256()
        counts = np.zeros((self.channels, 256), np.int64)
        with open(path, "wb", opener=open_no_follow) as file:
            for row, place in enumerate(part):
                with self.source.picture(place) as image:
                    pixels = middle_window(image, (self.options.size, self.options.size), self.channels)
                content = pixels.tobytes() if self.options.format == "bytes" else jpeg_bytes(pixels)
                records[row] = (self.source.labels[place], zlib.crc32(content), file.tell(), len(content))
                for channel, values in enumerate(pixels.reshape(-1, self.channels).T):
                    counts[channel] += np.bincount(values, minlength=256)
                total.update(content)
                file.write(content)
                self.advance(1)
            file.flush()
            os.fsync(file.fileno())
        return Written(total.hexdigest(), records, counts)


def read_note(path: Path, images: int, channels: int) -> Written:
    """Read the note beside a shard; raise ValueError if it is damaged or belongs to another pack."""
    try:
        note = json.loads(read_bytes(path, LARGEST_NOTE))
        records = np.array([tuple(record) for record in note["records"]], RECORD)
        counts = np.array(note["counts"], np.int64)
        if (records.shape, counts.shape) != ((images,), (channels, 256)):
            raise ValueError("of another pack")
        return Written(str(note["sha256"]), records, counts)
    except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
        why = f"{path}: damaged ({reason(error)})"
        raise ValueError(f"{why}: remove it, and the same `ablate data pack` goes on") from None


def stored_records(path: Path, source: Source, part: range) -> Records:
    """Return the index records (n,) of an intact shard of the format "bytes". part: its image numbers in `source`."""
    records = np.zeros(len(part), RECORD)
    size = path.stat().st_size // len(part)
    with open(path, "rb") as file:
        for row, place in enumerate(part):
            records[row] = (source.labels[place], zlib.crc32(file.read(size)), row * size, size)
    return records


def check_sha256(path: Path, found: str, known: str) -> None:
    """Raise ValueError if the sha256 `found` is not `known`, after removing the partial file of `path`."""
    if found != known:
        path.with_suffix(".part").unlink(missing_ok=True)
        why = "the images, or what decodes them, changed since they were packed"
        raise ValueError(f"{path}: cannot be made again: {why}")


def jpeg_bytes(pixels: Bytes) -> bytes:
    target = io.BytesIO()
    Image.fromarray(pixels).save(target, "JPEG", quality=QUALITY)
    return target.getvalue()


def finish(folder: Path, name: str, writer: Writer, shards: Mapping[Path, Written]) -> None:
    """Write the index and the manifest, then remove the files that serve only to continue an unfinished pack."""
    source = writer.source
    options = writer.options
    written = list(shards.values())
    index = npy_bytes(np.concatenate([shard.records for shard in written]))
    write_bytes(folder / INDEX, index)
    training = np.cumsum([len(shard.records) for shard in written]) <= (source.train or len(source.labels))
    mean, std = moments(np.stack([shard.counts for shard in written])[training].sum(axis=0))
    manifest = Manifest(
        name=name,
        classes=list(source.classes),
        train=source.train,
        test=len(source.labels) - source.train,
        size=options.size,
        image_size=options.crop,
        channels=writer.channels,
        format=options.format,
        mean=mean,
        std=std,
        index=hashlib.sha256(index).hexdigest(),
        shards=[
            Shard(file=path.name, images=len(shard.records), bytes=path.stat().st_size, sha256=shard.sha256)
            for path, shard in shards.items()
        ],
        label_sets=source.label_sets,
    )
    content = {**manifest.content, "fingerprint": manifest.fingerprint}
    write_bytes(folder / MANIFEST, json.dumps(content, indent=1).encode())
    for pattern in ("shard-*.json", "shard-*.npz", "shard-*.part", ".*.*", BEGUN):  # .npz: notes of earlier versions
        for left in folder.glob(pattern):
            left.unlink(missing_ok=True)


def npy_bytes(records: Records) -> bytes:
    written = io.BytesIO()
    np.save(written, records)
    return written.getvalue()
