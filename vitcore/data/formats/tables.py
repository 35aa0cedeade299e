"""Arrow files, as `datasets` saves them, and Parquet files: a row an image."""

import json
import mmap
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from commonfloor.files import open_regular, read_bytes, safe_name
from commonfloor.messages import reason
from vitcore.data.formats.layout import File, Selection, SplitImages, is_label_name
from vitcore.data.imagefolder import StoredImage

LARGEST_JSON = 2**24  # bytes


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn what reading a damaged file raises into a ValueError that names it."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, pa.ArrowException) as error:
        raise ValueError(f"{name}: cannot be read ({reason(error)})") from None


def saved_splits(folder: str) -> dict[str, list[File]]:
    """Return the files of each split that `datasets` saved in a folder; raise ValueError if it saved none."""
    root = Path(folder)
    if not root.is_dir():
        raise ValueError("no such folder")
    if (root / "dataset_dict.json").exists():
        with readable("dataset_dict.json"):
            names = list(map(safe_name, read_json(root / "dataset_dict.json")["splits"]))
        return {name: saved_files(root / name, f"{name}/") for name in names}
    if not (root / "state.json").exists():
        why = "has no dataset_dict.json and no state.json, which save_to_disk writes"
        raise ValueError(f"{why}; a folder of Parquet files is parquet:{folder}")
    return {"all": saved_files(root, "")}


def saved_files(folder: Path, prefix: str) -> list[File]:
    with readable(f"{prefix}state.json"):
        state = read_json(folder / "state.json")
        names = [safe_name(entry["filename"]) for entry in state["_data_files"]]
        if state.get("_indices_data_files"):
            raise ValueError("of an old version, with rows chosen by indices: load and save it again")
    return [(folder / name, prefix + name) for name in names]


def read_json(path: Path) -> Any:
    return json.loads(read_bytes(path, LARGEST_JSON))


class ArrowFile:
    """An Arrow stream, mapped into memory. rows: of its one group."""

    def __init__(self, path: Path) -> None:
        with open_regular(path) as file:
            content = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self.table = pa.ipc.open_stream(content).read_all()  # copies nothing
        self.schema: pa.Schema = self.table.schema
        self.rows = [self.table.num_rows]

    def read(self, column: str, group: int) -> pa.ChunkedArray:
        values = self.table[column]
        values.validate(full=True)  # offsets that point outside would crash
        return values


class ParquetFile:
    """A Parquet file. rows: of each row group."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open_regular(path) as file:
            self.metadata = pq.read_metadata(file)
        self.schema: pa.Schema = self.metadata.schema.to_arrow_schema()
        self.rows = [self.metadata.row_group(group).num_rows for group in range(self.metadata.num_row_groups)]

    def read(self, column: str, group: int) -> pa.ChunkedArray:
        with open_regular(self.path) as file:
            return pq.ParquetFile(file, metadata=self.metadata).read_row_group(group, [column])[column]


class TableFile:
    """An open file of rows. name: as in messages. Raises ValueError if it cannot be read."""

    latest = threading.local()  # keeps the group that a thread read last

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        with readable(name):
            self.size = path.stat().st_size
            self.file = ArrowFile(path) if path.suffix == ".arrow" else ParquetFile(path)
            self.classes = class_names(self.file.schema)
        self.starts = list(accumulate(self.file.rows, initial=0))  # of the groups
        self.lock = threading.Lock()
        self.groups: WeakValueDictionary[int, pa.ChunkedArray] = WeakValueDictionary()

    def image(self, column: str, row: int) -> bytes:
        """Return an encoded image. Threads that read the same group share it. Raises ValueError if it is missing."""
        group = bisect_right(self.starts, row) - 1
        with self.lock, readable(self.name):
            values = self.groups.get(group)
            if values is None:
                values = self.file.read(column, group)
                if pa.types.is_struct(values.type):
                    values = pc.struct_field(values, "bytes")
                self.groups[group] = values
        self.latest.group = values
        content = values[row - self.starts[group]].as_py()
        if content is None:
            raise ValueError("the file holds no bytes of this image, or only its path: save_to_disk embeds images")
        return content

    def labels(self, column: str) -> list[int | str]:
        """Return the labels of all rows. Raises ValueError if one is missing or neither a whole number nor text."""
        kind = self.file.schema.field(column).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise ValueError(f"the label column {column} holds {kind}, neither whole numbers nor text")
        labels: list[int | str] = []
        for group in range(len(self.file.rows)):
            with readable(self.name):
                values = self.file.read(column, group)
            if values.null_count:
                row = len(labels) + values.is_null().index(True).as_py()
                raise ValueError(f"{self.name} row {row}: has no label")
            labels += values.to_pylist()
        return labels


def class_names(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Return column -> names of its classes, as `datasets` writes them into a schema; {} in files of others."""
    content = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    names: dict[str, tuple[str, ...]] = {}
    for column, kind in content.get("info", {}).get("features", {}).items():
        if column in schema.names and isinstance(kind, dict) and kind.get("_type") == "ClassLabel":
            names[column] = tuple(map(str, kind.get("names") or ()))
    return names


def holds_images(kind: pa.DataType) -> bool:
    """Return whether a column's type is that of encoded images: bytes, or a struct with bytes."""
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind["bytes"].type
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def read_tables(files: Sequence[File], choice: Selection) -> SplitImages:
    """Return the images and labels of a split. Raises ValueError if a file is damaged or a column has to be chosen."""
    images: list[StoredImage] = []
    labels: list[int | str] = []
    classes: set[tuple[str, ...]] = set()
    for path, name in files:
        shard = TableFile(path, name)
        kinds = {field.name: field.type for field in shard.file.schema}
        with_images = [column for column, kind in kinds.items() if holds_images(kind)]
        image = choice.column("image", with_images, kinds)
        if image not in with_images:
            raise ValueError(f"#image={image}: holds {kinds[image]}, not encoded images")
        label = choice.column("label", list(shard.classes) or list(filter(is_label_name, kinds)), kinds)
        for row in range(shard.starts[-1]):
            images.append(StoredImage(f"{name} row {row}", shard.size, partial(shard.image, image, row)))
        labels += shard.labels(label)
        classes.add(shard.classes.get(label, ()))
    if len(classes) > 1:
        raise ValueError(f"{files[0][1]} and files beside it differ in the names of their classes")
    return SplitImages(images, labels, classes.pop())
