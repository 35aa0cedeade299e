"""Images and folders that a data set leaves out, which its owner may not expect."""

from collections.abc import Iterator
from pathlib import Path

from ablations.trainables.vit.image_folders.findings import example
from commonfloor.files import open_regular
from vitcore.data.decode import SUFFIXES, open_stream
from vitcore.data.imagefolder import TESTS, TRAIN, Listing, folder_names, in_threads, is_hidden, visible_files

BRANDS = {b"heic": "HEIC", b"heix": "HEIC", b"mif1": "HEIC", b"msf1": "HEIC", b"avif": "AVIF", b"avis": "AVIF"}
STARTS = {b"\0\0\0\x0cJXL ": "JPEG XL", b"\xff\x0a": "JPEG XL", b"\0\0\0\x0cjP  ": "JPEG 2000"}
UNSUPPORTED = frozenset({*BRANDS.values(), *STARTS.values()})


def notes(root: Path, listing: Listing[Path]) -> Iterator[str]:
    """Yield a line on each kind of images and folders in `root` that are not in its listing, if there are any."""
    parts = [root / part for part in listing.parts] or [root]
    yield from folder_notes(root, listing)
    odd = [file for part in parts for file in files_of_classes(part, listing, root) if not has_suffix(file)]
    kinds = dict(zip(odd, in_threads(image_kind, odd), strict=True))
    unsupported = [file for file in odd if kinds[file] in UNSUPPORTED]
    supported = [file for file in odd if kinds[file] and kinds[file] not in UNSUPPORTED]
    stray = [file for folder in dict.fromkeys((root, *parts)) for file in stray_images(folder)]

    def names(files: list[Path]) -> list[str]:
        return [f"{file.relative_to(root)} ({kinds[file]})" for file in files]

    yield from example("skipped", names(supported), "left out because of the ending", ": rename or convert them")
    yield from example("unread", names(unsupported), "left out because of the format", ": convert them")
    yield from example("stray", [str(file.relative_to(root)) for file in stray], "left out, in no class folder")


def folder_notes(root: Path, listing: Listing[Path]) -> Iterator[str]:
    """Yield a line on folders beside train/ and test/, and on classes that are named like these."""
    names = folder_names(root)
    others = [name for name in names if name not in listing.parts]
    if listing.parts and others:
        yield f"ignored  {', '.join(f'{name}/' for name in others)}: only {'/ and '.join(listing.parts)}/ are read"
    named = [name for name in listing.classes if name.casefold() in (*TRAIN, *TESTS)]
    if named and not listing.parts:
        yield f"names    '{named[0]}' is taken for a class, as there is no train/"


def files_of_classes(part: Path, listing: Listing[Path], root: Path) -> Iterator[Path]:
    for name in listing.classes:
        yield from visible_files(part / name, root)


def stray_images(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.iterdir()):
        if not is_hidden(file.name) and file.is_file() and (has_suffix(file) or image_kind(file)):
            yield file


def has_suffix(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES


def image_kind(file: Path) -> str:
    """Return the format of an image file by its content, or "" if it is no image that is known."""
    try:
        with open_regular(file) as stream:
            start = stream.read(12)
            stream.seek(0)
            with open_stream(stream) as image:
                return image.format or ""
    except OSError:
        return ""
    except ValueError:  # of no format that is read
        known = (kind for mark, kind in STARTS.items() if start.startswith(mark))
        return BRANDS.get(start[8:], "") if start[4:8] == b"ftyp" else next(known, "")
