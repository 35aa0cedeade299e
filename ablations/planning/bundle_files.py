"""Bundles of others, which are not trusted: nothing is unpickled or extracted, and sizes and names are checked."""

import hashlib
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from commonfloor.files import Broken, read_bytes, refuse_links, safe_name
from commonfloor.messages import listed, reason
from results.store import seals
from results.store.schemas.seals import Seal

SUMS, RESULTS = "SHA256SUMS", "results.parquet"
ZIP = ".zip"
MOST_FILES, MOST_BYTES = 1000, 2**31
DEPTH = 8  # folders in a name
LINE = re.compile("([0-9a-f]{64})  (.+)")  # as sha256sum writes it


@dataclass(frozen=True)
class Bundle:
    """The files of a bundle, whose hashes were found as in its manifest: name -> content."""

    path: Path
    files: Mapping[str, bytes]

    @property
    def seals(self) -> list[Seal]:
        """The seals in the bundle. Raises Broken if one is damaged."""
        found = []
        for name, payload in self.files.items():
            if name.startswith(f"{seals.FOLDER}/"):
                found.append(seals.parse_seal(payload, self.path / name))
        return seals.by_time(found)


def is_bundle(path: Path) -> bool:
    return (path / SUMS).is_file() or (path.suffix.lower() == ZIP and path.is_file())


def read_bundle(path: Path) -> Bundle:
    """Return a bundle after checking every hash. Raises ValueError if it is too large, damaged or not a bundle."""
    files = zip_files(path) if path.is_file() else folder_files(path)
    if SUMS not in files:
        raise ValueError(f"{path}: no bundle: it has no {SUMS}")
    expected = manifest(files[SUMS], path)
    others = sorted(files.keys() - expected.keys() - {SUMS})
    missing = sorted(expected.keys() - files.keys())
    edited = [name for name in expected if name in files and hashlib.sha256(files[name]).hexdigest() != expected[name]]
    faults = {"missing": missing, f"not as in {SUMS} (edited or damaged)": edited, f"not in {SUMS}": others}
    for what, names in faults.items():
        if names:
            raise Broken(f"{path}: {listed(names)}: {what}")
    if RESULTS not in files:
        raise Broken(f"{path}: no bundle: it has no {RESULTS}")
    return Bundle(path, files)


def manifest(payload: bytes, path: Path) -> dict[str, str]:
    sums: dict[str, str] = {}
    for line in payload.decode(errors="replace").splitlines():
        match = LINE.fullmatch(line)
        if match is None or match[2] in sums:
            raise Broken(f"{path}: {SUMS}: damaged at {line!a:.60}")
        sums[match[2]] = match[1]
    return sums


def checked_name(name: str, path: Path) -> str:
    """Return the name of a file in a bundle. Raises Broken if it could lead out of the bundle."""
    parts = name.split("/")
    try:
        if "\\" in name or len(parts) > DEPTH:
            raise ValueError
        for part in parts:
            safe_name(part)
    except ValueError:
        raise Broken(f"{path}: {name!a:.60}: is not the name of a file in a bundle") from None
    return name


def is_name(name: str) -> bool:
    try:
        checked_name(name, Path())
    except Broken:
        return False
    return True


def check_size(number: int, size: int, path: Path) -> None:
    if number > MOST_FILES:
        raise Broken(f"{path}: {number:,} files: at most {MOST_FILES:,}")
    if size > MOST_BYTES:
        raise Broken(f"{path}: {size:,} bytes: at most {MOST_BYTES:,}")


def zip_files(path: Path) -> dict[str, bytes]:
    """Return name -> content of the files in a .zip file. No more is unpacked than it states. Raises ValueError."""
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            check_size(len(members), sum(member.file_size for member in members), path)
            for member in members:
                name = checked_name(member.filename, path)
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise Broken(f"{path}: {name}: is neither stored nor deflated")
                if name in files:
                    raise Broken(f"{path}: two files named {name}")
                with archive.open(member) as file:
                    files[name] = file.read(member.file_size)  # `archive.read` would unpack all, and then cut it
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, RuntimeError) as error:
        raise ValueError(f"{path}: not a whole {ZIP} file ({reason(error)})") from None
    return files


def folder_files(path: Path) -> dict[str, bytes]:
    """Return name -> content of the files in a folder. Raises ValueError for links, and OSError."""
    names = []
    size = 0
    for parent, _, found in os.walk(path):
        for name in found:
            file = Path(parent, name)
            refuse_links(path, file)
            names.append(checked_name(file.relative_to(path).as_posix(), path))
            size += file.stat().st_size
            check_size(len(names), size, path)
    return {name: read_bytes(path / name, MOST_BYTES) for name in sorted(names)}


@contextmanager
def temporary_results(bundle: Bundle) -> Iterator[Path]:
    """Yield the path of a copy of a bundle's export. A ValueError that names the copy names the bundle instead."""
    with tempfile.TemporaryDirectory(prefix="ablate-bundle-") as folder:
        path = Path(folder, RESULTS)
        path.write_bytes(bundle.files[RESULTS])
        try:
            yield path
        except ValueError as error:
            if str(path) not in str(error):
                raise
            raise ValueError(str(error).replace(str(path), str(bundle.path))) from None
