"""The options of a pack, taken from the command, from an existing pack, or from defaults that fit the images."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from commonfloor.files import read_bytes
from commonfloor.messages import reason
from commonfloor.options import ConfigError, Options
from vitcore.data.builtin import BUILT_IN
from vitcore.data.pack import BEGUN, MANIFEST, NAME, Format, Manifest, Side, Sum, manifest

LARGEST_NOTE = 2**26  # bytes
SIZE = 256  # default side of the stored squares, in pixels


class PackOptions(Options):
    """The options with which a pack is written. size: side of the stored squares, in pixels.

    crop: side of the center crop for evaluation, in pixels, by default 7/8 of `size`, such as 224 for 256. Raises
    ConfigError if a side is not allowed.
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
    """The note in an unfinished pack, which records its options.

    source: `Source.digest` of the images. decoding: version of how turned and translucent images are decoded.
    """

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
    begun = stored_options(folder, name)
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


def stored_options(folder: Path, name: str) -> PackOptions | None:
    """Return the options of the finished or unfinished pack in `folder`, or None; raise ConfigError if damaged."""
    if (folder / MANIFEST).is_file():
        return options_of(manifest(folder, name))
    return read_note_of_pack(folder)


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
