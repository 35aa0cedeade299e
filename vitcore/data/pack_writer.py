"""Writing a pack (vitcore/data/pack.py) once, on several cores, resumable after a kill at any point.

A shard is written under another name, synchronized and renamed; its checksums are in a file beside it before that. The
manifest comes last. A shard's content depends on the source and the options alone: interruptions and the number of
cores do not change a pack.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import threading
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from vitcore.data.datasets import BUILT_IN, Bytes, moments
from vitcore.data.decode import is_grey, squared
from vitcore.data.files import read_regular, reason
from vitcore.data.pack import (
    BEGUN,
    INDEX,
    LARGEST_SIDE,
    MANIFEST,
    NAME,
    RECORD,
    VERSION,
    Begun,
    Channels,
    Format,
    Manifest,
    Records,
    Shard,
    channels_last,
    manifest,
)
from vitcore.data.pack_sources import Source
from vitcore.options import ConfigError

if TYPE_CHECKING:
    from PIL.Image import Image

LOOKED_AT = 64  # images for their size and color: a set of photographs has grey ones, a grey set has no colored one
ONE_PARSER = threading.Lock()  # numpy reads headers with ast, which Python 3.11 cannot in several threads at once
MIDDLE = 7 / 8  # of the side that evaluation sees, as 224 of 256
QUALITY = 95  # of JPEG
LARGEST_NOTE = 2**26  # bytes of what is written beside a shard while others are not there
SHARDS = 64  # at least, where there are as many images: several cores work, and little is lost when killed
SHARD_BYTES = 2**30  # at most
FILES = 512  # shards at most, all of which stay open

Counts = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Written:
    """A shard's entry in the manifest, the records (n,) of its images and the counts (C, 256) of their bytes."""

    entry: Shard
    records: Records
    counts: Counts
    train: bool


@dataclass(frozen=True)
class Options:
    """The options of a pack: squares of `size` pixels, of which evaluation sees the middle `crop`; see `pack`."""

    size: int = 256
    crop: int = 0
    format: Format = "bytes"

    @property
    def image_size(self) -> int:
        return self.crop or round(MIDDLE * self.size)


def pack(
    name: str,
    source: Source,
    home: Path,
    options: Options = Options(),
    jobs: int = 1,
    advance: Callable[[int], object] = lambda images: None,
) -> Path:
    """Pack `source` as HOME/NAME, or what is missing of it, and returns that folder; `advance` counts the images.

    Each image's shorter side is resized to `size`, bilinear with antialiasing, and the middle square cut out: random
    crops are then of that square, where those of whole photographs reach what is left and right of it too. At 256,
    evaluation is the usual one, the shorter side at 256 and the middle 224.

    bytes, the default: 196,608 B an image of 256 x 256, 262 GB for ImageNet; read in 0.2 ms of a core.
    jpeg: a tenth to a quarter of the disk (quality 95), but decoded again at every epoch, in 1.2 ms of a core, which is
    more than a GPU's share of cores has for a ViT-S/16: for disks too small for the bytes.

    Threads do it: Pillow decodes and resizes without the interpreter's lock. Raises ValueError for a name that cannot
    be, an image that cannot be read, and where the folder holds or begins another pack.
    """
    check(name, options)
    folder = home / name
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder):
        if (folder / MANIFEST).exists():
            raise ValueError(f"{folder / MANIFEST}: is there already")
        channels = channels_of(source)
        begin(folder, name, source, options)
        parts = cut(source, options.size**2 * channels)
        stopped = threading.Event()

        def count(images: int) -> None:
            advance(images)
            if stopped.is_set():
                raise InterruptedError("another shard cannot be written")

        def write_one(number: int) -> Written:
            path = folder / f"shard-{number:05}.{options.format}"
            return write_shard(path, source, parts[number], options, channels, count)

        with ThreadPoolExecutor(jobs) as pool:
            try:
                shards = list(pool.map(write_one, range(len(parts))))
            except BaseException:  # Ctrl-C too: the other threads end with their image, not with their shard
                stopped.set()
                pool.shutdown(cancel_futures=True)
                raise
        finish(folder, name, source, options, channels, shards)
    return folder


def repair(
    folder: Path,
    manifest: Manifest,
    source: Source,
    damaged: Collection[str],
    jobs: int = 1,
    advance: Callable[[int], object] = lambda images: None,
) -> None:
    """Write the `damaged` files of a finished pack again from its source.

    The manifest and all trial ids stay. Raises ValueError if a file would differ from the manifest's checksum because
    the source has changed; that file is not replaced.
    """
    if (source.classes, source.train, len(source.labels)) != (tuple(manifest.classes), manifest.train, manifest.images):
        raise ValueError(f"{folder}: was packed from other images than these: other classes, or another number of them")
    options = Options(manifest.size, manifest.image_size, manifest.format)
    again = rewritten(manifest, damaged)

    def records(shard: Shard, part: range) -> Records | None:
        if shard in again:
            return rewrite_shard(folder / shard.file, source, part, options, manifest, shard.sha256, advance)
        return reread(folder / shard.file, source, part) if INDEX in damaged else None

    with alone(folder), ThreadPoolExecutor(jobs) as pool:
        parts = cut(source, options.size**2 * manifest.channels)
        found = list(pool.map(records, manifest.shards, parts))
        if INDEX in damaged:
            content = saved(np.concatenate([some for some in found if some is not None]))
            refuse_others(folder / INDEX, hashlib.sha256(content).hexdigest(), manifest.index)
            write(folder / INDEX, content)


def rewritten(manifest: Manifest, damaged: Collection[str]) -> list[Shard]:
    """Return the shards that a repair writes again. Without an index, which places images, all JPEG shards are."""
    whole = INDEX in damaged and manifest.format == "jpeg"
    return [shard for shard in manifest.shards if whole or shard.file in damaged]


def check(name: str, options: Options) -> None:
    """Raise ConfigError naming an invalid option."""
    check_name(name)
    if not 1 <= options.size <= LARGEST_SIDE:
        raise ConfigError(f"--size {options.size}: from 1 to {LARGEST_SIDE:,}")
    if not 1 <= options.image_size <= options.size:
        raise ConfigError(f"--crop {options.crop}: from 1 to --size {options.size}")


def check_name(name: str) -> None:
    if not NAME.fullmatch(name) or name in BUILT_IN:
        why = "is built in" if name in BUILT_IN else "small letters, digits and . _ -, 64 at most"
        raise ConfigError(f"a pack '{name}': {why}")


def chosen(name: str, folder: Path, given: Mapping[str, Any], own: Mapping[str, Any] = MappingProxyType({})) -> Options:
    """Return the options of a pack: the given ones, completed from the existing or unfinished pack, else by default.

    Raises ConfigError for invalid options, and for options that contradict the existing pack.
    """
    check_name(name)
    there = stored(folder, name)
    for key, value in given.items():
        if there and value != (other := getattr(there, key)):
            raise ConfigError(
                f"--{key} {value}: {folder} is packed with --{key} {other}: give the other one another NAME, or "
                "remove that folder first"
            )
    options = there or Options(**{**({} if "size" in given else own), **given})
    check(name, options)
    return options


def own_size(source: Source) -> dict[str, int]:
    """Return options that enlarge no image: the smallest sampled shorter side, and no crop, below 256 pixels."""
    side = min(shorter_sides(source))
    return {"size": side, "crop": side} if side < Options.size else {}


def enlarged(source: Source, size: int) -> str:
    """Return a warning if sampled images are smaller than what is stored of them; else ""."""
    sides = shorter_sides(source)
    small = [side for side in sides if side < size]
    if not small:
        return ""
    return (
        f"{len(small)} of {len(sides)} images looked at are enlarged to --size {size}, the smallest from {min(small)} "
        "pixels: no detail is gained, and every epoch costs more"
    )


def shorter_sides(source: Source) -> list[int]:
    sides = []
    for place in looked_at(source):
        with picture(source, place) as one:
            sides.append(min(one.size))
    return sides


def looked_at(source: Source) -> Iterable[int]:
    """Yield some images, evenly spaced."""
    return dict.fromkeys(np.linspace(0, len(source.labels) - 1, LOOKED_AT).astype(int).tolist())


def stored(folder: Path, name: str) -> Options | None:
    """Return the options of an existing or unfinished pack; None if there is none. Raises ConfigError."""
    if (folder / MANIFEST).is_file():
        known = manifest(folder, name)
        return Options(known.size, known.image_size, known.format)
    try:
        begun = read_begun(folder)
    except FileNotFoundError:
        return None
    return Options(begun.size, begun.crop, begun.format)


def read_begun(folder: Path) -> Begun:
    """Read the note of a begun pack. Raises FileNotFoundError; ConfigError if it is damaged."""
    try:
        return Begun(**json.loads(read_regular(folder / BEGUN, LARGEST_NOTE)))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{folder / BEGUN}: damaged ({reason(error)}): remove {folder}, and pack anew") from None


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock: one writer per pack; the lock ends with its process. Raises ValueError if there is another writer."""
    with open(folder / ".lock", "w", opener=no_follow) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{folder}: another process is packing there") from None
        yield


def begin(folder: Path, name: str, source: Source, options: Options) -> None:
    """Begin a pack. Raises ValueError if another one was begun in the folder."""
    wanted = Begun(
        version=VERSION,
        name=name,
        size=options.size,
        crop=options.image_size,
        format=options.format,
        source=source.digest,
    )
    path = folder / BEGUN
    if not path.exists():
        write(path, wanted.model_dump_json(indent=1).encode())
    there = read_begun(folder)
    if there != wanted:
        begun, asked = there.model_dump(), wanted.model_dump()
        key = next(key for key in asked if begun[key] != asked[key])
        other = {"source": "of other images", "version": "of another format"}.get(key, f"with {key}={begun[key]}")
        raise ValueError(f"{folder}: a pack {other} was begun here: finish that, or remove the folder")


def cut(source: Source, image_bytes: int) -> list[range]:
    """Return the images of each shard; training and test images share none."""
    count = len(source.labels)
    most = max(1, min(-(-count // SHARDS), SHARD_BYTES // image_bytes), -(-count // FILES))
    ends = (range(source.train), range(source.train, count))
    return [part[first : first + most] for part in ends for first in range(0, len(part), most)]


# -- a shard -----------------------------------------------------------------------------------------------------------


def channels_of(source: Source) -> Channels:
    """1 if a sample of evenly spaced images is all gray, else 3."""
    for place in looked_at(source):
        with picture(source, place) as one:
            if not is_grey(one):
                return 3
    return 1


def write_shard(
    path: Path, source: Source, part: range, options: Options, channels: int, advance: Callable[[int], object]
) -> Written:
    """Write a shard unless it exists."""
    beside, train = path.with_suffix(".npz"), part[0] < source.train
    if not (path.exists() and beside.exists()):
        partial = path.with_suffix(".part")
        records, counts, total = write_images(partial, source, part, options, channels, advance)
        written = io.BytesIO()
        np.savez(written, records=records, counts=counts, sha256=np.array(total))
        write(beside, written.getvalue())
        rename(partial, path)
    else:
        advance(len(part))
    records, counts, total = read_note(beside, len(part), channels)
    entry = Shard(file=path.name, images=len(part), bytes=path.stat().st_size, sha256=total)
    return Written(entry, records, counts, train)


def read_note(path: Path, images: int, channels: int) -> tuple[Records, Counts, str]:
    """Return the records (n,), counts (C, 256) and sha256 beside a shard. Raises ValueError for other content."""
    try:
        content = io.BytesIO(read_regular(path, LARGEST_NOTE))
        with zipfile.ZipFile(content) as archive:
            whole = all(member.compress_type == zipfile.ZIP_STORED for member in archive.infolist())
        with ONE_PARSER, np.load(content, allow_pickle=False) as note:
            records, counts, total = note["records"], note["counts"], str(note["sha256"])
    except Exception as error:  # a damaged zip raises whatever its parts do
        why = f"{path}: damaged ({reason(error)})"
        raise ValueError(f"{why}: remove it, and the same `ablate data pack` goes on") from None
    whole &= (records.dtype, records.shape) == (RECORD, (images,)) and counts.shape == (channels, 256)
    if not (whole and counts.dtype == np.int64):
        raise ValueError(f"{path}: is not of this pack: remove it, and the same `ablate data pack` goes on")
    return records, counts, total


def write_images(
    path: Path, source: Source, part: range, options: Options, channels: int, advance: Callable[[int], object]
) -> tuple[Records, Counts, str]:
    """Write the images of a shard; return records (n,), byte counts (C, 256) and sha256."""
    records, counts, total = np.zeros(len(part), RECORD), np.zeros((channels, 256), np.int64), hashlib.sha256()
    with open(path, "wb", opener=no_follow) as file:
        for row, place in enumerate(part):
            pixels = image(source, place, options.size, channels)
            content = pixels.tobytes() if options.format == "bytes" else compressed(pixels)
            records[row] = (source.labels[place], zlib.crc32(content), file.tell(), len(content))
            for channel in range(channels):
                counts[channel] += np.bincount(pixels[:, :, channel].ravel(), minlength=256)
            total.update(content)
            file.write(content)
            advance(1)
        synchronise(file)
    return records, counts, total.hexdigest()


def rewrite_shard(
    path: Path,
    source: Source,
    part: range,
    options: Options,
    manifest: Manifest,
    sha256: str,
    advance: Callable[[int], object],
) -> Records:
    """Write a shard again and return its records; it replaces the old one if its checksum is the manifest's."""
    partial = path.with_suffix(".part")
    records, _, found = write_images(partial, source, part, options, manifest.channels, advance)
    refuse_others(path, found, sha256)
    rename(partial, path)
    return records


def reread(path: Path, source: Source, part: range) -> Records:
    """Return the records of an intact shard of bytes, whose images have one size."""
    records, size = np.zeros(len(part), RECORD), path.stat().st_size // len(part)
    with open(path, "rb") as file:
        for row, place in enumerate(part):
            records[row] = (source.labels[place], zlib.crc32(file.read(size)), row * size, size)
    return records


def refuse_others(path: Path, found: str, known: str) -> None:
    """Raise ValueError if a rewritten shard is not what was packed."""
    if found != known:
        path.with_suffix(".part").unlink(missing_ok=True)
        raise ValueError(
            f"{path}: cannot be made again: the images, or what decodes them, changed since they were packed"
        )


def image(source: Source, place: int, size: int, channels: int) -> Bytes:
    """Return an image as (size, size, C). Raises ValueError naming it."""
    with picture(source, place) as one:
        return channels_last(squared(one, size, channels))


@contextlib.contextmanager
def picture(source: Source, place: int) -> Iterator[Image]:
    """Open an image of the source. Raises ValueError naming it if anything is wrong."""
    try:
        with source.open(place) as one:
            yield one
    except (OSError, ValueError) as error:
        raise ValueError(f"{source.names[place]}: {reason(error)}") from None


def compressed(pixels: Bytes) -> bytes:
    from PIL import Image

    target = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(target, "JPEG", quality=QUALITY)
    return target.getvalue()


# -- the whole ---------------------------------------------------------------------------------------------------------


def finish(
    folder: Path, name: str, source: Source, options: Options, channels: Channels, shards: list[Written]
) -> None:
    """Write index and manifest, then remove what only resuming needs."""
    index = saved(np.concatenate([shard.records for shard in shards]))
    write(folder / INDEX, index)
    mean, std = moments(np.sum([shard.counts for shard in shards if shard.train], axis=0))
    manifest = Manifest(
        name=name,
        classes=list(source.classes),
        train=source.train,
        test=len(source.labels) - source.train,
        size=options.size,
        image_size=options.image_size,
        channels=channels,
        format=options.format,
        mean=mean,
        std=std,
        index=hashlib.sha256(index).hexdigest(),
        shards=[shard.entry for shard in shards],
    )
    content = {**manifest.model_dump(), "fingerprint": manifest.fingerprint}
    write(folder / MANIFEST, json.dumps(content, indent=1).encode())
    for left in (*folder.glob("shard-*.npz"), *folder.glob("shard-*.part"), folder / BEGUN):
        left.unlink(missing_ok=True)


def saved(records: Records) -> bytes:
    """Return an array as the bytes of an .npy file."""
    written = io.BytesIO()
    np.save(written, records)
    return written.getvalue()


# -- files -------------------------------------------------------------------------------------------------------------


def no_follow(path: str, flags: int) -> int:
    """Return an opener for `open` that refuses links, which could lead out of the pack. Raises OSError."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    partial = path.with_suffix(".new")
    with open(partial, "wb", opener=no_follow) as file:
        file.write(content)
        synchronise(file)
    rename(partial, path)


def synchronise(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def rename(old: Path, new: Path) -> None:
    """Rename a file and synchronize its folder."""
    old.rename(new)
    folder = os.open(new.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
