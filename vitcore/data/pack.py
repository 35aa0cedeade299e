"""A pack: a dataset decoded once, in shards from which any image is read at once.

    DIR/NAME/manifest.json             what there is; written last, so that all is there where it is
    DIR/NAME/index.npy                 a record an image: label, CRC-32, place in its shard
    DIR/NAME/shard-00000.bytes ...     images (S, S, C) end to end, or as JPEG; training images first

The manifest holds the sums of the others and its own fingerprint, which is the identity of the data. What is fast is
checked when a pack is opened: the fingerprint, the index, the size of each shard. An image is held to its CRC-32 the
first time that a process reads it, so that no byte of a shard that changed is ever trained on; `verify` reads all.

The channels come last, as they do in a decoded JPEG and where bytes are resized fastest.

Shards are read, not mapped: it is the same copy out of the same page cache, but a shard that is cut short meanwhile is
an error with its name, not a SIGBUS, and no page of it counts as the job's memory, for which SLURM may end it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import threading
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from vitcore.data.datasets import About, Bytes, Indices, above, data_homes, own_packs
from vitcore.data.decode import opened as opened_image
from vitcore.data.files import open_regular, read_regular, reason
from vitcore.options import ConfigError, Options

MANIFEST, INDEX, BEGUN = "manifest.json", "index.npy", "begun.json"
VERSION: Final = 2  # of the format; 1 had the channels first
RECORD = np.dtype([("label", "<u4"), ("crc", "<u4"), ("offset", "<u8"), ("size", "<u4")])
ANEW = "remove it, and the `ablate data pack` that wrote it writes it again"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
BLOCK = 2**22  # bytes that are hashed at once
LARGEST_MANIFEST = 2**26  # bytes
NPY_HEADER = 2**14  # bytes, at most

Format = Literal["bytes", "jpeg"]
Channels = Literal[1, 3]
LARGEST_SIDE = 2**16  # pixels, as config.image_size
Count = Annotated[int, Field(ge=1)]
Side = Annotated[int, Field(ge=1, le=LARGEST_SIDE)]
Sum = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Records = np.ndarray[Any, np.dtype[np.void]]


class Shard(Options):
    """One file of images, end to end."""

    file: Annotated[str, Field(pattern=r"^shard-\d{5}\.(bytes|jpeg)$")]
    images: Count
    bytes: Count
    sha256: Sum


class Begun(Options):
    """The options and the source's digest that a pack was begun with."""

    version: int = 1  # which did not say so
    name: str
    size: Side
    crop: Side
    format: Format
    source: Sum


class Manifest(Options):
    """The content of a pack: `train` training images, then `test` test images, (size, size, channels) each.

    image_size: side of the middle square that evaluation sees, and the default of config.image_size. mean, std: of
    the training images' bytes, per channel.
    """

    version: Literal[2] = VERSION
    name: Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
    classes: list[str]
    train: Count
    test: Count
    size: Side
    image_size: Side
    channels: Channels
    format: Format
    mean: list[float]
    std: list[float]
    index: Sum
    shards: list[Shard]

    @model_validator(mode="after")
    def check(self) -> Self:
        """Refuse fields that contradict each other."""
        if len({shard.file for shard in self.shards}) < len(self.shards):
            raise ConfigError("shards: two entries of one file")
        if (stated := sum(shard.images for shard in self.shards)) != self.images:
            raise ConfigError(f"shards: hold {stated:,} images, not train + test = {self.images:,}")
        for shard in self.shards:
            if self.format == "bytes" and shard.bytes != shard.images * self.image_bytes:
                raise ConfigError(f"shards: {shard.file}: {shard.images} images have not {shard.bytes:,} bytes")
        if not len(self.mean) == len(self.std) == self.channels:
            raise ConfigError(f"mean, std: {len(self.mean)} and {len(self.std)} values for {self.channels} channels")
        if not all(0 <= mean <= 255 for mean in self.mean) or not all(0 < std <= 255 for std in self.std):
            raise ConfigError(f"mean={self.mean}, std={self.std}: of bytes, and std above 0")
        return self

    @property
    def image_bytes(self) -> int:
        """Size of a decoded image."""
        return self.size**2 * self.channels

    @property
    def fingerprint(self) -> str:
        """sha256 of the whole manifest."""
        return hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()

    @property
    def images(self) -> int:
        return self.train + self.test

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return sum(shard.bytes for shard in self.shards)

    def about(self) -> About:
        return About(
            image_size=self.image_size,
            channels=self.channels,
            classes=len(self.classes),
            train_size=self.train,
            test_size=self.test,
            fingerprint={"pack": self.name, "sha256": self.fingerprint},
            mean=tuple(self.mean),
            std=tuple(self.std),
        )


def find(name: str, data_dir: Path | None = None) -> Path | None:
    """Return the folder of a pack, if there is a manifest; see `vitcore.data.datasets.data_homes`."""
    if not NAME.fullmatch(name):
        return None
    return next((home for home in data_homes(name, data_dir) if (home / MANIFEST).is_file()), None)


def names(data_dir: Path | None = None) -> list[str]:
    """Return the names of the packs that `find` can find."""
    own = (name for name, folder in own_packs().items() if Path(folder, MANIFEST).is_file())
    there = (path.parent.name for folder in above(data_dir) for path in folder.glob(f"*/{MANIFEST}"))
    return list(dict.fromkeys([*own, *there]))


def lacking(folder: Path) -> str:
    """Describe a folder in which a pack was not found."""
    if (folder / BEGUN).exists():
        return f"{folder}: packing was begun and has not ended: the same `ablate data pack` goes on"
    return f"{folder}: no {MANIFEST}" if folder.is_dir() else f"{folder}: no such folder"


def manifest(folder: Path, name: str) -> Manifest:
    """Read a manifest. Raises ConfigError naming the file if it is damaged or of another pack."""
    path = folder / MANIFEST
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    found = read_manifest(path, status.st_mtime_ns, status.st_size)
    if found.name != name:
        raise ConfigError(f"{path}: is the manifest of '{found.name}', not of '{name}'")
    return found


@cache  # every Config of a study asks for it
def read_manifest(path: Path, changed: int, size: int) -> Manifest:
    try:
        content = json.loads(read_regular(path, LARGEST_MANIFEST))
        fingerprint = content.pop("fingerprint")
        found = Manifest(**content) if content["version"] == VERSION else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, ValidationError) as error:
        raise ConfigError(f"{path}: damaged, or of another version of this program ({reason(error)}); {ANEW}") from None
    if found is None:
        raise ConfigError(
            f"{path}: of format {content['version']}, and this program reads {VERSION}: remove {path.parent} and pack "
            f"it again, `ablate data pack {content.get('name')} SOURCE`"
        )
    if found.fingerprint != fingerprint:
        raise ConfigError(f"{path}: damaged: its content is not what its fingerprint says; {ANEW}")
    return found


@cache  # what was checked in this process stays checked
def opened(folder: Path, fingerprint: str) -> Pack:
    """Open the pack in `folder` with this manifest. Raises ValueError naming a damaged file."""
    path = folder / MANIFEST
    found = json.loads(read_regular(path, LARGEST_MANIFEST))
    if found.pop("fingerprint") != fingerprint:
        raise ValueError(f"{path}: changed while it was read")
    return Pack(folder, Manifest(**found))


class Pack:
    """An open pack. Raises ValueError naming each file of a wrong size."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self.records = read_index(folder, manifest)
        self.labels: Indices = self.records["label"].astype(np.int64)
        check_sizes(folder, manifest)
        counts = [shard.images for shard in manifest.shards]
        self.shard_of = np.repeat(np.arange(len(counts)), counts)
        self.checked = np.zeros(manifest.images, bool)
        self.files: dict[int, int] = {}
        self.lock = threading.Lock()

    @property
    def shape(self) -> tuple[int, int, int]:
        """(S, S, C)"""
        return self.manifest.size, self.manifest.size, self.manifest.channels

    def read(self, places: Indices, into: Bytes) -> None:
        """Read the images at `places` (B,) into (B, S, S, C), from any thread. Raises ValueError if damaged."""
        for row in np.argsort(places, kind="stable"):  # in the order of the disk
            self.read_one(int(places[row]), into[row])

    def read_one(self, place: int, into: Bytes) -> None:
        record, shard = self.records[place], int(self.shard_of[place])
        plain = self.manifest.format == "bytes"
        content = into.reshape(-1).data if plain else memoryview(bytearray(int(record["size"])))
        got = os.preadv(self.file(shard), [content], int(record["offset"]))
        whole = got == len(content) and (self.checked[place] or zlib.crc32(content) == record["crc"])
        if not whole:
            raise ValueError(f"{self.path(shard)}: damaged, at byte {record['offset']} (image {place} of the pack)")
        self.checked[place] = True
        if not plain:
            try:
                into[:] = decode(content, self.shape)
            except ValueError as error:
                raise ValueError(f"{self.path(shard)}: image {place} of the pack: {error}") from None

    def path(self, shard: int) -> Path:
        return self.folder / self.manifest.shards[shard].file

    def file(self, shard: int) -> int:
        """Return the shard's file descriptor, open as long as the process lives."""
        with self.lock:
            if shard not in self.files:
                with open_regular(self.path(shard)) as file:
                    self.files[shard] = os.dup(file.fileno())
                if hasattr(os, "posix_fadvise"):  # what lies behind an image is not wanted next
                    os.posix_fadvise(self.files[shard], 0, 0, os.POSIX_FADV_RANDOM)
            return self.files[shard]


def decode(content: bytes | memoryview, shape: tuple[int, int, int]) -> Bytes:
    """Decode a JPEG to (S, S, C). Raises ValueError before decoding if it has another size."""
    size, _, channels = shape
    with opened_image(content, ("JPEG",)) as image:
        if image.size != (size, size):
            raise ValueError(f"a JPEG of {image.width} x {image.height} pixels, not {size} x {size}")
        try:
            return channels_last(np.asarray(image.convert("L" if channels == 1 else "RGB")))
        except (OSError, SyntaxError) as error:  # as Pillow says of a broken file
            raise ValueError(str(error)) from None


def channels_last(pixels: Bytes) -> Bytes:
    """Reshape (S, S) or (S, S, 3) to (S, S, C)."""
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def read_index(folder: Path, manifest: Manifest) -> Records:
    """Read the index. Raises ValueError if it is not the manifest's or contradicts it."""
    path = folder / INDEX
    try:
        content = read_regular(path, manifest.images * RECORD.itemsize + NPY_HEADER)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    if hashlib.sha256(content).hexdigest() != manifest.index:
        raise ValueError(f"{path}: damaged, or of another pack than {folder / MANIFEST}")
    try:
        records = parse_index(content)
        check_records(records, manifest)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; {ANEW}") from None
    return records


def parse_index(content: bytes) -> Records:
    """Return the records of an .npy file, without trusting its header. Raises ValueError."""
    file = io.BytesIO(content)
    try:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    except Exception as error:  # also of tokenize and ast, which parse the header
        raise ValueError(f"not an .npy file ({error})") from None
    if dtype != RECORD:
        raise ValueError(f"holds {dtype}, not {RECORD}")
    records = np.frombuffer(content, RECORD, offset=file.tell())
    if shape != records.shape:
        raise ValueError(f"holds {len(records)} records, and its header says {shape}")
    return records


def check_records(records: Records, manifest: Manifest) -> None:
    """Raise ValueError unless there is one record per image, end to end in its shard, with a valid label."""
    if len(records) != manifest.images:
        raise ValueError(f"{len(records):,} records for {manifest.images:,} images")
    if (label := int(records["label"].max())) >= len(manifest.classes):
        raise ValueError(f"label {label} of {len(manifest.classes)} classes")
    first = 0
    for shard in manifest.shards:
        part = records[first : first + shard.images]
        ends = np.cumsum(part["size"], dtype=np.uint64)
        if ends[-1] != shard.bytes or not np.array_equal(part["offset"][1:], ends[:-1]) or part["offset"][0]:
            raise ValueError(f"its images of {shard.file} do not lie end to end")
        if manifest.format == "bytes" and (part["size"] != manifest.image_bytes).any():
            raise ValueError(f"an image of {shard.file} has not {manifest.image_bytes} bytes")
        first += shard.images


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """Raise ValueError naming the first shard that is missing, truncated or of another pack."""
    for shard in manifest.shards:
        path = folder / shard.file
        try:
            size = path.stat().st_size
        except OSError as error:
            raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
        if size != shard.bytes:
            raise ValueError(f"{path}: damaged or half copied: {size:,} bytes, not {shard.bytes:,}")


def verify(folder: Path, manifest: Manifest, advance: Callable[[int], object] = lambda size: None) -> dict[str, str]:
    """Read a whole pack; return damaged file -> description. advance: called with the numbers of bytes read."""
    found = {}
    try:
        read_index(folder, manifest)
    except ValueError as error:
        found[INDEX] = str(error)
    for shard in manifest.shards:
        if line := damage(folder / shard.file, shard, advance):
            found[shard.file] = line
    return found


def damage(path: Path, shard: Shard, advance: Callable[[int], object]) -> str:
    """Describe what is wrong with a shard; "" if nothing. advance: called with its bytes, also for missing ones."""
    left = shard.bytes

    def count(size: int) -> None:
        nonlocal left
        advance(min(size, left))
        left -= min(size, left)

    try:
        total, size = digest(path, count), path.stat().st_size
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror})"
    finally:
        advance(left)
    if total != shard.sha256:
        return f"{path}: damaged: {size:,} of {shard.bytes:,} bytes, and their sum is another"
    return ""


def digest(path: Path, advance: Callable[[int], object] = lambda size: None) -> str:
    """Return the sha256 of a file, in hexadecimal."""
    total = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(BLOCK):
            total.update(block)
            advance(len(block))
    return total.hexdigest()
