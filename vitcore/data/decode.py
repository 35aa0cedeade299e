"""Decoding of untrusted image files, limited to known formats, file sizes and ranges of pixel values."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vitcore.data.dataset import Bytes
from vitcore.data.files import read_regular

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # others, such as EPS, may start programs
SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
LARGEST = 2**30  # bytes in a file
SIXTEEN_BITS = ("I;16", "I;16B", "I;16L", "I;16N")
GRAY_MODES = ("1", "L", *SIXTEEN_BITS, "I", "F")


def open_image(file: Path) -> Image:
    """Open an image file without decoding it; raise ValueError if unreadable, over 1 GiB or in no known format."""
    try:
        return open_content(read_regular(file, LARGEST))
    except OSError as error:
        raise unreadable_error(error.strerror) from None


def open_content(content: bytes | memoryview, formats: tuple[str, ...] = IMAGE_FORMATS) -> Image:
    """Open an image from a file's content without decoding; raise ValueError if unreadable or in none of `formats`."""
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(io.BytesIO(content), formats=formats)
    except Exception as error:  # Pillow's decoders raise many types, such as DecompressionBombError
        listed = f"none of {', '.join(formats)}"
        raise unreadable_error(listed if isinstance(error, UnidentifiedImageError) else error) from None


def middle_square(image: Image, size: int, channels: int) -> Bytes:
    """Return an image's middle square, resized to uint8 (size, size[, 3]); raise ValueError if it cannot be decoded."""
    from PIL import Image, ImageOps

    try:
        plain = eight_bits(image).convert("L" if channels == 1 else "RGB")
        if plain.size != (size, size):
            plain = ImageOps.fit(plain, (size, size), Image.Resampling.BILINEAR)
    except Exception as error:  # Pillow's decoders raise many types
        raise unreadable_error(error) from None
    return np.asarray(plain, np.uint8)


def eight_bits(image: Image) -> Image:
    """Return an image with 16-bit values scaled to 0-255; raise ValueError for 32-bit values, of unknown range."""
    from PIL import Image

    if image.mode in SIXTEEN_BITS or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return Image.fromarray(((np.asarray(image).astype(np.uint32) + 128) // 257).astype(np.uint8))
    if image.mode in ("I", "F"):
        kind = "32-bit integers" if image.mode == "I" else "floating-point numbers"
        raise ValueError(f"its values are {kind} of an unknown range: convert it to 8 or 16 bits a channel")
    return image


def is_gray(image: Image) -> bool:
    return image.mode in GRAY_MODES


def unreadable_error(why: object) -> ValueError:
    return ValueError(f"cannot be read as an image ({why})")
