"""Reading a folder of images as a dataset, with the fingerprint by which trials know it."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np

from vitcore.data.dataset import About, Bytes, Raw
from vitcore.data.decode import DECODING, LARGEST, Facts, facts, is_translucent, middle_square, open_image
from vitcore.data.files import read_regular, reason
from vitcore.data.listing import list_folder, name_bytes, refuse
from vitcore.options import ConfigError

PART = 32  # files that a thread takes at once, because handing over one takes as long as reading a small one
Result = TypeVar("Result")


@cache
def describe_folder(root: Path) -> About:
    """Return the facts about a folder of images. The first image gives the size, by its shorter side.

    The images are gray if all of them are. Files are read, and decoded only where `facts` needs it or pixels may be
    transparent. Raises ConfigError if the folder is invalid or `facts` finds a file broken.
    """
    listing = list_folder(root)
    total = hashlib.sha256()
    images: list[Facts] = []
    broken: list[str] = []
    for file, (sha256, image_facts) in zip(listing.files, in_threads(read_facts, listing.files), strict=True):
        total.update(name_bytes(file.relative_to(root).as_posix()) + b"\0" + sha256)
        if isinstance(image_facts, Facts):
            images.append(image_facts)
        else:
            broken.append(f"{file}: {image_facts}")
    refuse_broken(broken)
    fingerprint: dict[str, str | int] = {"images": len(listing.files), "sha256": total.hexdigest()}
    if any(image.orientation != 1 for image in images) or has_translucent(listing.files, images):
        fingerprint["decoding"] = DECODING
    return About(
        image_size=min(images[0].size),
        channels=1 if all(image.gray for image in images) else 3,
        classes=len(listing.classes),
        train_size=len(listing.train),
        test_size=len(listing.test),
        fingerprint=fingerprint,
    )


def read_facts(file: Path) -> tuple[bytes, Facts | str]:
    """Return the sha256 of a file, and the facts about its image or, if it is broken, the reason."""
    try:
        content = read_regular(file, LARGEST)
    except OSError as error:
        return b"", f"cannot be read as an image ({reason(error)})"
    digest = hashlib.sha256(content).digest()
    try:
        return digest, facts(content)
    except ValueError as error:
        return digest, str(error)


def has_translucent(files: Sequence[Path], images: Sequence[Facts]) -> bool:
    """Return whether an image has a pixel that is not opaque. Decodes images with an alpha channel, up to the first."""

    def translucent(file: Path) -> bool:
        try:
            with open_image(file) as image:
                return is_translucent(image)
        except ValueError as error:
            refuse(file, str(error))

    with_alpha = [file for file, facts_of_file in zip(files, images, strict=True) if facts_of_file.alpha]
    return any(in_threads(translucent, with_alpha))


def in_threads(work: Callable[[Path], Result], files: Sequence[Path]) -> Iterator[Result]:
    """Yield the result of `work` for each file, in order."""
    parts = [files[first : first + PART] for first in range(0, len(files), PART)]
    with ThreadPoolExecutor() as pool:
        for results in pool.map(lambda part: [work(file) for file in part], parts):
            yield from results


def read_folder(root: Path, size: int, channels: int) -> Raw:
    """Read each image's middle square, resized to `size`; raise ConfigError if the folder or an image is invalid."""
    listing = list_folder(root)
    images = np.empty((len(listing.files), channels, size, size), np.uint8)
    for place, file in enumerate(listing.files):
        images[place] = read_image(file, size, channels)
    return Raw(images, listing.labels, listing.train, listing.test)


def check_images(root: Path, channels: int) -> None:
    """Check that all images can be decoded; raise a ConfigError that names one broken image and counts the others."""

    def failure(file: Path) -> str:
        try:
            read_image(file, 1, channels)
        except ConfigError as error:
            return str(error).removeprefix("data=imagefolder:")
        return ""

    refuse_broken(list(filter(None, in_threads(failure, list_folder(root).files))))


def refuse_broken(broken: Sequence[str]) -> None:
    """Raise a ConfigError that names the first of the broken files and counts the others, if there are any."""
    if broken:
        more = {1: "", 2: " (1 more file is broken)"}.get(len(broken), f" ({len(broken) - 1} more files are broken)")
        raise ConfigError(f"data=imagefolder:{broken[0]}{more}")


def read_image(file: Path, size: int, channels: int) -> Bytes:
    """Read an image as uint8 (C, size, size). Raises a ConfigError that names the file if it cannot be read."""
    try:
        with open_image(file) as image:
            pixels = middle_square(image, size, channels)
    except ValueError as error:
        refuse(file, str(error))
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
