"""Packs: datasets decoded once and stored in shards, files of many images that can be read in random order.

    DIR/NAME/manifest.json             the description of the pack, written last
    DIR/NAME/index.npy                 a record per image: label, CRC-32, byte range in its shard
    DIR/NAME/shard-00000.bytes ...     images (S, S, C) end to end, or as JPEG; training images first

The manifest holds the checksums of the other files and a fingerprint of its content, which identifies the data.

The channels come last because uint8 images are resized fastest in this layout. Shards are read, not mapped into memory,
so that a truncated one causes an error that names it, not a SIGBUS.
"""

import hashlib
import io
import json
import os
import re
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from commonfloor.files import open_regular, read_bytes
from commonfloor.messages import reason
from commonfloor.options import ConfigError, Options
from vitcore.data.builtin import BUILT_IN
from vitcore.data.dataset import About, Bytes
from vitcore.data.decode import open_content
from vitcore.data.homes import data_homes, own_packs, parent_folders
from vitcore.data.shuffle import Indices
from vitcore.settings import LARGEST_SIDE

MANIFEST = "manifest.json"
INDEX = "index.npy"
BEGUN = "begun.json"
VERSION: Final = 2  # of the format; version 1 had the channels first
RECORD = np.dtype([("label", "<u4"), ("crc", "<u4"), ("offset", "<u8"), ("size", "<u4")])
REPAIR = "the `ablate data pack` that wrote it writes it again"
ANEW = f"remove it, and {REPAIR}"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
LARGEST_MANIFEST = 2**26  # bytes
NPY_HEADER = 2**14  # largest size in bytes

Format = Literal["bytes", "jpeg"]
Channels = Literal[1, 3]
Count = Annotated[int, Field(ge=1)]
Side = Annotated[int, Field(ge=1, le=LARGEST_SIDE)]
Sum = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Records = np.ndarray[Any, np.dtype[np.void]]


class Shard(Options):
    """The manifest's entry for a shard, a file that holds images end to end."""

    file: Annotated[str, Field(pattern=r"^shard-\d{5}\.(bytes|jpeg)$")]
    images: Count
    bytes: Count
    sha256: Sum


class Manifest(Options):
    """The description of a pack with `train` training images, then `test` test images (size, size, channels).

    image_size: side in pixels of the center crop for evaluation. mean, std: of each channel's values, 0 to 255. index:
    sha256 of the index. label_sets: the right labels of each test image, if they are not one each.
    """

    version: Literal[2] = VERSION
    name: Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
    classes: list[str]
    train: Annotated[int, Field(ge=0)]
    test: Count
    size: Side
    image_size: Side
    channels: Channels
    format: Format
    mean: list[float]
    std: list[float]
    index: Sum
    shards: list[Shard]
    label_sets: list[list[int]] | None = None

    @model_validator(mode="after")
    def check(self) -> Self:
        if self.image_size > self.size:
            raise ConfigError(f"image_size={self.image_size}: at most size={self.size}")
        if len({shard.file for shard in self.shards}) < len(self.shards):
            raise ConfigError("shards: two entries of one file")
        stated = sum(shard.images for shard in self.shards)
        if stated != self.images:
            raise ConfigError(f"shards: hold {stated:,} images, not train + test = {self.images:,}")
        for shard in self.shards:
            if self.format == "bytes" and shard.bytes != shard.images * self.image_bytes:
                raise ConfigError(f"shards: {shard.file}: {shard.images} images have not {shard.bytes:,} bytes")
        if not len(self.mean) == len(self.std) == self.channels:
            raise ConfigError(f"mean, std: {len(self.mean)} and {len(self.std)} values for {self.channels} channels")
        if not all(0 <= mean <= 255 for mean in self.mean) or not all(0 < std <= 255 for std in self.std):
            raise ConfigError(f"mean={self.mean}, std={self.std}: of bytes, and std above 0")
        if self.label_sets is not None:
            check_label_sets(self.label_sets, self.test, len(self.classes))
        return self

    def __hash__(self) -> int:  # lists cannot be hashed
        return hash(self.index)

    @property
    def image_bytes(self) -> int:
        return self.size**2 * self.channels

    @property
    def fingerprint(self) -> str:
        """The sha256 of all fields that are set."""
        return hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()

    @property
    def content(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)

    @property
    def images(self) -> int:
        return self.train + self.test

    @property
    def bytes(self) -> int:
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
            class_names=tuple(self.classes),
        )


def check_label_sets(label_sets: list[list[int]], images: int, classes: int) -> None:
    """Raise ConfigError unless there is a set of labels for each of the images, of so many classes."""
    if len(label_sets) != images:
        raise ConfigError(f"labels: of {len(label_sets):,} images, not of the {images:,} test images")
    wrong = [label for labels in label_sets for label in labels if not 0 <= label < classes]
    if wrong:
        raise ConfigError(f"labels: {wrong[0]}: 0 to {classes - 1}, the places of the {classes:,} sorted classes")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn an OSError in the block into a ConfigError that names the file."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({reason(error)})") from None


def find_pack(name: str, data_dir: Path | None = None) -> Path | None:
    """Return the folder of the pack `name`, the first in `data_homes` with a manifest, or None if there is none."""
    if name in BUILT_IN or not NAME.fullmatch(name):
        return None
    return next((home for home in data_homes(name, data_dir) if (home / MANIFEST).is_file()), None)


def pack_names(data_dir: Path | None = None) -> list[str]:
    """Return the name of each pack in ABLATE_PACKS and `parent_folders`."""
    names = [name for name, folder in own_packs().items() if Path(folder, MANIFEST).is_file()]
    for folder in parent_folders(data_dir):
        names += [path.parent.name for path in folder.glob(f"*/{MANIFEST}")]
    return list(dict.fromkeys(names))


def missing_pack(folder: Path) -> str:
    """Return a sentence that says why a folder holds no finished pack."""
    if (folder / BEGUN).exists():
        return f"{folder}: packing was begun and has not ended: the same `ablate data pack` goes on"
    return f"{folder}: no {MANIFEST if folder.is_dir() else 'such folder'}"


def manifest(folder: Path, name: str) -> Manifest:
    """Read the manifest of the pack `name`; raise ConfigError if it is unreadable or of another pack or format."""
    path = folder / MANIFEST
    with readable(path):
        status = path.stat()
    content = read_manifest(path, status.st_mtime_ns, status.st_size)
    if content.name != name:
        raise ConfigError(f"{path}: is the manifest of '{content.name}', not of '{name}'")
    return content


@cache  # every Config of a study reads it
def read_manifest(path: Path, changed: int, size: int) -> Manifest:
    """Read a manifest; raise ConfigError if it is invalid. changed, size: the file's mtime and size, for the cache."""
    try:
        content = json.loads(read_bytes(path, LARGEST_MANIFEST))
        fingerprint = content.pop("fingerprint")
        version = content["version"]
        manifest = Manifest(**content) if version == VERSION else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path}: damaged, or of another version of this program ({reason(error)}); {ANEW}") from None
    if manifest is None:
        anew = f"remove {path.parent}, and {REPAIR}"
        raise ConfigError(f"{path}: of format {version}, and this program reads {VERSION}: {anew}")
    if manifest.fingerprint != fingerprint:
        raise ConfigError(f"{path}: damaged: its content is not what its fingerprint says; {ANEW}")
    return manifest


class Pack:
    """An open pack. records (M,): the index. Raises ValueError if the index or the size of a shard is wrong."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self.records = read_index(folder, manifest)
        self.labels: Indices = self.records["label"].astype(np.int64)
        self.shape = manifest.size, manifest.size, manifest.channels  # (S, S, C), of an image
        for shard in manifest.shards:
            check_size(folder / shard.file, shard)
        self.shard_of = np.repeat(np.arange(len(manifest.shards)), [shard.images for shard in manifest.shards])
        self.checked = np.zeros(manifest.images, bool)
        self.files: dict[int, int] = {}
        self.lock = threading.Lock()

    def read(self, places: Indices, into: Bytes) -> None:
        """Read the images with the indices `places` (B,) into a contiguous array (B, S, S, C), from any thread.

        Raises a ValueError that names the shard if it is damaged, or OSError if it cannot be read.
        """
        plain = self.manifest.format == "bytes"
        for row in np.argsort(places, kind="stable"):  # in the order on disk
            place = int(places[row])
            image = into[row]
            record = self.records[place]
            shard = int(self.shard_of[place])
            path = self.folder / self.manifest.shards[shard].file
            content = image.reshape(-1).data if plain else memoryview(bytearray(int(record["size"])))
            got = os.preadv(self.descriptor(shard, path), [content], int(record["offset"]))
            if got != len(content) or not (self.checked[place] or zlib.crc32(content) == record["crc"]):
                raise ValueError(f"{path}: damaged, at byte {record['offset']} (image {place} of the pack); {REPAIR}")
            self.checked[place] = True
            if not plain:
                try:
                    image[:] = decode(content, self.shape)
                except (OSError, SyntaxError, ValueError) as error:
                    raise ValueError(f"{path}: image {place} of the pack: {error}") from None

    def descriptor(self, shard: int, path: Path) -> int:
        """Return a shard's file descriptor, which stays open."""
        with self.lock:
            if shard not in self.files:
                with open_regular(path) as file:
                    self.files[shard] = os.dup(file.fileno())
                if hasattr(os, "posix_fadvise"):  # the next image read lies elsewhere
                    os.posix_fadvise(self.files[shard], 0, 0, os.POSIX_FADV_RANDOM)
            return self.files[shard]


open_pack = cache(Pack)  # a process checks a pack only once


def decode(content: bytes | memoryview, shape: tuple[int, int, int]) -> Bytes:
    """Decode a JPEG to uint8 (S, S, C). Raises ValueError for other content, OSError or SyntaxError if damaged."""
    size, _, channels = shape
    with open_content(content, ("JPEG",)) as image:
        if image.size != (size, size):
            raise ValueError(f"a JPEG of {image.width} x {image.height} pixels, not {size} x {size}")
        return np.asarray(image.convert("L" if channels == 1 else "RGB")).reshape(shape)


def read_index(folder: Path, manifest: Manifest) -> Records:
    """Read a pack's index (M,), a record for each image; raise ValueError if it is unreadable or not the manifest's."""
    path = folder / INDEX
    with readable(path):
        content = read_bytes(path, manifest.images * RECORD.itemsize + NPY_HEADER)
    if hashlib.sha256(content).hexdigest() != manifest.index:
        raise ValueError(f"{path}: damaged, or of another pack than {folder / MANIFEST}")
    try:
        records = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
        if (records.dtype, records.shape) != (RECORD, (manifest.images,)):
            raise ValueError(f"holds {records.dtype} {records.shape}, not {RECORD} {(manifest.images,)}")
        label = int(records["label"].max())
        if label >= len(manifest.classes):
            raise ValueError(f"label {label} of {len(manifest.classes)} classes")
        parts = np.split(records, np.cumsum([shard.images for shard in manifest.shards])[:-1])
        for shard, part in zip(manifest.shards, parts, strict=True):
            ends = np.cumsum(part["size"], dtype=np.uint64)
            if ends[-1] != shard.bytes or not np.array_equal(part["offset"][1:], ends[:-1]) or part["offset"][0]:
                raise ValueError(f"its images of {shard.file} do not lie end to end")
            if manifest.format == "bytes" and (part["size"] != manifest.image_bytes).any():
                raise ValueError(f"an image of {shard.file} has not {manifest.image_bytes} bytes")
    except Exception as error:  # NumPy raises many types, also from tokenize and ast
        raise ValueError(f"{path}: {reason(error)}; {ANEW}") from None
    return records


def check_size(path: Path, shard: Shard) -> None:
    """Raise a ValueError that names the shard if it is missing or its size is not the manifest's."""
    with readable(path):
        size = path.stat().st_size
    if size != shard.bytes:
        raise ValueError(f"{path}: damaged or half copied: {size:,} bytes, not {shard.bytes:,}")


def verify(folder: Path, manifest: Manifest, advance: Callable[[int], object] = lambda size: None) -> dict[str, str]:
    """Read a whole pack and return the damage found: file name -> description. advance: takes the bytes of a shard."""
    damaged = {}
    try:
        read_index(folder, manifest)
    except ValueError as error:
        damaged[INDEX] = str(error)
    for shard in manifest.shards:
        path = folder / shard.file
        try:
            check_size(path, shard)
            with readable(path), open_regular(path) as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            if sha256 != shard.sha256:
                raise ValueError(f"{path}: damaged: its sha256 is not the manifest's")
        except ValueError as error:
            damaged[shard.file] = str(error)
        advance(shard.bytes)
    return damaged
