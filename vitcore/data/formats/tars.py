"""Images in tar files, which are read without unpacking: in class folders, or beside their labels as in WebDataset."""

import json
import math
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

from commonfloor.files import open_regular
from commonfloor.messages import reason
from vitcore.data.decode import LARGEST, SUFFIXES
from vitcore.data.formats.layout import File, Selection, SplitImages, is_label_name
from vitcore.data.imagefolder import StoredImage, is_hidden

LARGEST_LABEL = 2**20  # bytes
NUMBER = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True)
class Member:
    """An image in a tar. path: path with inner tars as folders. offset, size: its bytes in the outer tar `file`."""

    path: PurePosixPath
    file: Path
    offset: int
    size: int

    def read(self) -> bytes:
        """Return the encoded image. Raises OSError if the tar cannot be read, ValueError if the image exceeds 1 GiB."""
        if self.size > LARGEST:
            raise ValueError(f"larger than {LARGEST:,} bytes")
        with open_regular(self.file) as file:
            file.seek(self.offset)
            return file.read(self.size)


@contextmanager
def reading_tar(path: Path) -> Iterator[None]:
    """Turn what reading a file that is no tar raises into a ValueError that names it."""
    try:
        yield
    except tarfile.TarError as error:
        why = f"cannot be read as a tar ({error}); a compressed one has to be unpacked first"
        raise ValueError(f"{path}: {why}") from None


def entries(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a tar; raise tarfile.ReadError at a damaged header, which tarfile takes for the end."""
    yield from tar
    assert tar.fileobj is not None  # it is open
    tar.fileobj.seek(tar.offset)
    if any(tar.fileobj.read(tarfile.BLOCKSIZE)):
        raise tarfile.ReadError(f"damaged header at byte {tar.offset:,}")


def visible_files(tar: tarfile.TarFile, path: Path, end: float = math.inf) -> Iterator[tarfile.TarInfo]:
    """Yield the files in a tar that begin before byte `end`, without hidden ones; raise ValueError for a link."""
    for member in entries(tar):
        if member.offset >= end:  # an inner tar without an end mark
            return
        name = PurePosixPath(member.name)
        if any(map(is_hidden, name.parts)):
            continue
        if (member.issym() or member.islnk()) and name.suffix.lower() in {*SUFFIXES, ""}:
            raise ValueError(f"{path}: {name} is a link: make the tar with --dereference --hard-dereference")
        if member.isfile():
            yield member


def members(path: Path) -> Iterator[Member]:
    """Yield the images in a tar and in the tars that it contains; raise ValueError if the file is not a tar."""
    with reading_tar(path), open_regular(path) as file:
        yield from members_between(path, file, 0, path.stat().st_size, PurePosixPath())


def members_between(path: Path, file: Any, start: int, end: int, folder: PurePosixPath) -> Iterator[Member]:
    """Yield the images in a tar at bytes `start` to `end` of `file` at `path`. folder: prefix of the images' paths."""
    file.seek(start)
    with tarfile.open(fileobj=file, mode="r:") as tar:
        for member in visible_files(tar, path, end):
            name = PurePosixPath(member.name)
            first = member.offset_data
            if name.suffix == ".tar":
                yield from members_between(path, file, first, first + member.size, folder / name.with_suffix(""))
            elif name.suffix.lower() in SUFFIXES:
                yield Member(folder / name, path, first, member.size)


def read_samples(files: Sequence[File], choice: Selection) -> SplitImages:
    """Return the images and labels of a split of WebDataset's tars; raise ValueError if one is damaged or ambiguous."""
    images: list[StoredImage] = []
    labels: list[int | str] = []
    for path, name in files:
        with reading_tar(path), open_regular(path) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for key, sample in groupby(filter(is_of_sample, visible_files(tar, path)), key=sample_key):
                fields = {ending(member): member for member in sample}
                try:
                    member = fields[choice.column("image", list(filter(is_image, fields)), fields)]
                    labels.append(read_label(tar, fields, choice))
                except (ValueError, RecursionError) as error:
                    raise ValueError(f"{name}: {key}: {reason(error)}") from None
                where = PurePosixPath(name, member.name)
                stored = Member(where, path, member.offset_data, member.size)
                images.append(StoredImage(str(where), member.size, stored.read))
    return SplitImages(images, labels)


def is_of_sample(member: tarfile.TarInfo) -> bool:
    """Return whether a file is none of WebDataset's own, which begin with __."""
    return not PurePosixPath(member.name).name.startswith("__")


def sample_key(member: tarfile.TarInfo) -> str:
    """Return the path up to the first point of the name, which the members of a sample share."""
    folder, slash, name = member.name.rpartition("/")
    return folder + slash + name.partition(".")[0]


def ending(member: tarfile.TarInfo) -> str:
    return member.name.rpartition("/")[2].partition(".")[2].lower()


def is_image(ending: str) -> bool:
    return f".{ending.rpartition('.')[2]}" in SUFFIXES


def read_label(tar: tarfile.TarFile, fields: Mapping[str, tarfile.TarInfo], choice: Selection) -> int | str:
    """Return a sample's label: of the chosen member or .cls, or else of a key of .json. fields: ending -> member."""

    def text(ending: str) -> str:
        if fields[ending].size > LARGEST_LABEL:
            raise ValueError(f".{ending} is larger than {LARGEST_LABEL:,} bytes")
        content = tar.extractfile(fields[ending])
        assert content is not None  # it is a file
        return content.read().decode().strip()

    alone = choice.label or "cls"
    if alone in fields:
        content = text(alone)
        return int(content) if NUMBER.fullmatch(content) else content
    if "json" not in fields:
        return choice.column("label", [], fields)
    values = json.loads(text("json"))
    if not isinstance(values, dict):
        raise ValueError(".json is no object")
    plain = {key: value for key, value in values.items() if type(value) in (int, str)}
    return plain[choice.column("label", list(filter(is_label_name, plain)), plain)]
