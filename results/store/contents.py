"""The content of files: JSON, JSON Lines and archives of arrays, checked when it is read and never unpickled."""

import hashlib
import io
import json
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commonfloor.files import LARGEST, Broken, read_bytes, write_bytes
from results.store.schemas.base import AnySchema, validated

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

SCHEMA = 1
CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


class NewerSchema(ValueError):
    """Raised if a newer version of this suite wrote a file."""


def write_json(path: Path, content: object, mode: int = 0o666) -> None:
    write_bytes(path, json_bytes(content), mode)


def json_bytes(content: object) -> bytes:
    """Return the content of a JSON file. Raises ValueError if a number is infinite or NaN."""
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


def read(path: Path, schema: type[AnySchema]) -> AnySchema:
    """Return the validated content of a JSON file. Raises OSError, Broken or NewerSchema."""
    return parse(read_bytes(path), path, schema)


def parse(payload: bytes, path: Path, schema: type[AnySchema]) -> AnySchema:
    return validated(schema, parse_json(payload, path), path)


def read_sealed(path: Path, schema: type[AnySchema]) -> AnySchema:
    """Return the validated content of a JSON file, verified against its checksum. Raises the errors of `read`."""
    content = read_json(path)
    record = validated(schema, content, path)
    if content.get("checksum") != checksum(content):
        raise Broken(f"{path.name}: its checksum differs (edited or damaged)")
    return record


def read_json(path: Path) -> dict[str, Any]:
    return parse_json(read_bytes(path), path)


def parse_json(payload: bytes, path: Path) -> dict[str, Any]:
    """Return the JSON object in the bytes of the file `path`. Raises Broken or NewerSchema."""
    name = path.name
    try:
        content = json.loads(payload.decode())
    except (ValueError, RecursionError) as error:  # also for too many digits or levels
        raise Broken(f"{name} is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise Broken(f"{name} is not a JSON object")
    version = content.get("schema", SCHEMA)
    if type(version) is not int:
        raise Broken(f"{name}: schema: a number, not {version!a:.60}")
    if version > SCHEMA:
        raise NewerSchema(f"{path}: schema {version} is newer than this version reads ({SCHEMA}): upgrade to read it")
    return content


def parse_lines(payload: bytes, schema: type[AnySchema]) -> list[AnySchema]:
    """Return the lines of a JSON-lines file before the first line that is torn or invalid."""
    lines: list[AnySchema] = []
    for line in payload.decode(errors="replace").splitlines():
        try:
            lines.append(validated(schema, json.loads(line)))
        except (ValueError, RecursionError):  # Broken is a ValueError too
            break
    return lines


def checksum(content: Mapping[str, object]) -> str:
    """Return the SHA-256 (hex) of a record as canonical JSON, without the field `checksum`."""
    rest = {key: value for key, value in content.items() if key != "checksum"}
    return hashlib.sha256(CANONICAL.encode(rest).encode()).hexdigest()


def timestamp() -> str:
    """Return the current time in UTC, such as 2026-01-31T12:00:00Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def parse_npz(content: bytes, name: str) -> "dict[str, np.ndarray]":
    """Return name -> array for an .npz archive, from which no more is unpacked than it states.

    name: the file's name in errors. Raises Broken if it is damaged, holds pickles, or unpacks to more than LARGEST
    bytes.
    """
    import numpy as np  # late: commands that read no arrays start sooner

    try:
        members = zipfile.ZipFile(io.BytesIO(content)).infolist()
        total = sum(member.file_size for member in members)
        if total > LARGEST:
            raise Broken(f"its arrays take {total:,} bytes: at most {LARGEST:,}")
        for member in members:
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # unpacked without a limit
                raise Broken(f"{member.filename!a:.60} is neither stored nor deflated")
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return dict(archive)
    except Exception as error:  # a damaged archive raises zlib.error, UnicodeDecodeError and more
        raise Broken(f"{name} cannot be read ({error})") from None


def npz_bytes(arrays: "Mapping[str, ArrayLike]") -> bytes:
    import numpy as np  # late: as above

    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()
