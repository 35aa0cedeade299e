"""Decoding of untrusted image files: of known formats, upright by their EXIF orientation, and on white."""

import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from commonfloor.files import read_bytes
from commonfloor.messages import reason
from vitcore.data.dataset import Bytes
from vitcore.settings import Shape

IMAGE_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # others, such as EPS, may start programs
SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
LARGEST = 2**30  # bytes in a file
DECODING = 2  # version of how turned and translucent images are decoded; version 1 left them as they are stored
SIXTEEN_BITS = ("I;16", "I;16B", "I;16L", "I;16N")
GRAY_MODES = ("1", "L", "LA", *SIXTEEN_BITS, "I", "F")
ORIENTATION = 0x0112  # the EXIF tag
TURNS = {  # EXIF orientation -> the name of Pillow's transposition that turns the image upright
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
JPEG_END, PNG_END = b"\xff\xd9", b"IEND\xaeB`\x82"
PNG_EXIF = (b"eXIf", b"tEXt", b"zTXt", b"iTXt")  # the kinds of chunks that may hold an orientation

warnings.filterwarnings("ignore", "Corrupt EXIF data", UserWarning)  # `orientation` copes, and its images are intact


def open_image(file: Path) -> Image.Image:
    """Open an image file without decoding it; raise ValueError if unreadable, over 1 GiB or in no known format."""
    try:
        return open_content(read_bytes(file, LARGEST))
    except OSError as error:
        raise unreadable_error(reason(error)) from None


def open_content(content: bytes | memoryview, formats: tuple[str, ...] = IMAGE_FORMATS) -> Image.Image:
    """Open an image from a file's content without decoding; raise ValueError if unreadable or in none of `formats`."""
    return open_stream(io.BytesIO(content), formats)


def open_stream(stream: BinaryIO, formats: tuple[str, ...] = IMAGE_FORMATS) -> Image.Image:
    """Open an image from an open file. Reads the header alone of most formats. Raises the errors of `open_content`."""
    try:
        return Image.open(stream, formats=formats)
    except UnidentifiedImageError:
        raise unreadable_error(f"none of {', '.join(formats)}") from None
    except Exception as error:  # Pillow's decoders raise many types, such as DecompressionBombError
        raise unreadable_error(error) from None


@dataclass(frozen=True, slots=True)  # there is one for each image
class Facts:
    """What is known of an image without its pixels. size: width and height. alpha: whether it may be transparent."""

    size: tuple[int, int]
    gray: bool
    orientation: int
    alpha: bool


def facts(content: bytes) -> Facts:
    """Return the facts about an image; raise ValueError if it cannot be read, or its values are of an unknown range."""
    with open_content(content) as image:
        try:
            decode = needs_decoding(image, content)
            if decode:
                eight_bits(image).load()
            turned = orientation(image) if decode or image.format != "PNG" else 1
            return Facts(image.size, is_gray(image), turned, image.has_transparency_data)
        except Exception as error:  # Pillow's decoders raise many types
            raise unreadable_error(error) from None


def needs_decoding(image: Image.Image, content: bytes) -> bool:
    """Return whether only decoding tells that an image is whole, or how it is turned."""
    if image.mode in ("I", "F"):
        return True
    if image.format in ("JPEG", "MPO"):
        return not content.endswith(JPEG_END)
    if image.format == "PNG":
        return not content.endswith(PNG_END) or any(kind in content for kind in PNG_EXIF)
    return image.format != "WEBP"  # of which opening reads all


def middle_window(image: Image.Image, shape: Shape, channels: int) -> Bytes:
    """Return the largest centered window, resized to uint8 (*shape[, 3]); raise ValueError if it cannot be decoded."""
    height, width = shape
    try:
        plain = upright(image).convert("L" if channels == 1 else "RGB")
        if plain.size != (width, height):
            plain = ImageOps.fit(plain, (width, height), Image.Resampling.BILINEAR)
    except Exception as error:  # Pillow's decoders raise many types
        raise unreadable_error(error) from None
    return np.asarray(plain, np.uint8)


def upright(image: Image.Image) -> Image.Image:
    """Return an image with 8 bits a channel, turned by its EXIF orientation; raise as `eight_bits` and Pillow do."""
    image.load()
    turn = TURNS.get(orientation(image))
    plain = eight_bits(image)
    if plain.has_transparency_data:
        plain = Image.alpha_composite(Image.new("RGBA", plain.size, "white"), plain.convert("RGBA"))
    if turn:
        plain = plain.transpose(Image.Transpose[turn])
        plain.info = {}  # a second call must not turn it again
    return plain


def orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8, by which a loaded image is still to be turned. Pillow itself turns TIFFs."""
    try:
        value = image.getexif().get(ORIENTATION)
    except Exception:  # damaged EXIF data of an intact image raise many types
        return 1
    return value if value in TURNS else 1


def eight_bits(image: Image.Image) -> Image.Image:
    """Return an image with 16-bit values scaled to 0-255, on white; raise ValueError for 32-bit values."""
    if image.mode in SIXTEEN_BITS or (image.mode == "I" and image.format in ("PNG", "PPM")):
        values = np.asarray(image).astype(np.uint32)
        pixels = ((values + 128) // 257).astype(np.uint8)
        pixels[values == image.info.get("transparency")] = 255
        return Image.fromarray(pixels)
    if image.mode in ("I", "F"):
        kind = "32-bit integers" if image.mode == "I" else "floating-point numbers"
        raise ValueError(f"its values are {kind} of an unknown range: convert it to 8 or 16 bits a channel")
    return image


def is_translucent(image: Image.Image) -> bool:
    """Return whether an image has a pixel that is not opaque; raise ValueError if it cannot be decoded."""
    try:
        if not image.has_transparency_data:
            return False
        if image.mode in SIXTEEN_BITS:
            return bool((np.asarray(image) == image.info["transparency"]).any())
        lowest, _ = image.convert("RGBA").getchannel("A").getextrema()
        return lowest != 255
    except Exception as error:  # Pillow's decoders raise many types
        raise unreadable_error(error) from None


def is_gray(image: Image.Image) -> bool:
    return image.mode in GRAY_MODES


def unreadable_error(why: object) -> ValueError:
    return ValueError(f"cannot be read as an image ({why})")
