"""A folder of photographs written as `datasets` and WebDataset write them, without these packages."""

import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

CLASSES = ("cat", "dog")
Image = tuple[str, bytes, int]  # path, content, label


def images(folder: Path, split: str) -> list[Image]:
    """Return the images of train/ or test/ in the order in which a folder is read."""
    found = []
    for label, name in enumerate(CLASSES):
        for file in sorted((folder / split / name).iterdir()):
            found.append((f"{name}/{file.name}", file.read_bytes(), label))
    return found


def table(rows: Sequence[Image], classes: Sequence[str] = CLASSES, column: str = "label", **more: Any) -> pa.Table:
    """Return a table with the metadata that `datasets` writes into its schema."""
    columns = {
        "image": [{"bytes": content, "path": path} for path, content, _ in rows],
        column: [label for *_, label in rows],
        **more,
    }
    features: dict[str, Any] = {"image": {"_type": "Image"}}
    if classes:
        features[column] = {"names": list(classes), "_type": "ClassLabel"}
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    made = pa.table({**columns, "image": pa.array(columns["image"], kind)})
    return made.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def halves(made: pa.Table) -> list[pa.Table]:
    return [made.slice(0, made.num_rows // 2), made.slice(made.num_rows // 2)]


def save_split(made: pa.Table, folder: Path) -> None:
    """Write a table as Dataset.save_to_disk does, in two files of small batches."""
    folder.mkdir(parents=True)
    names = [f"data-0000{number}-of-00002.arrow" for number in range(2)]
    for name, part in zip(names, halves(made), strict=True):
        with pa.ipc.new_stream(folder / name, made.schema) as stream:
            stream.write_table(part, max_chunksize=3)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))


def as_saved(folder: Path, target: Path) -> str:
    for split in ("train", "test"):
        save_split(table(images(folder, split)), target / split)
    (target / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    return f"hf:{target}"


def as_parquet(folder: Path, target: Path) -> str:
    target.mkdir()
    for split in ("train", "test"):
        for number, part in enumerate(halves(table(images(folder, split)))):
            pq.write_table(part, target / f"{split}-0000{number}-of-00002.parquet", row_group_size=3)
    return f"parquet:{target}/*.parquet"


def as_samples(folder: Path, target: Path) -> str:
    """Write tars whose labels are text in .json."""
    target.mkdir()
    for split in ("train", "test"):
        rows = images(folder, split)
        middle = len(rows) // 2
        for number, part in enumerate((rows[:middle], rows[middle:])):
            write_tar(target / f"{split}-{number:03}.tar", json_samples(part))
    return f"wds:{target}/{{train,test}}-{{000..001}}.tar"


def json_samples(rows: Sequence[Image]) -> Iterator[tuple[str, bytes]]:
    for number, (_, content, label) in enumerate(rows):
        yield f"{number:06}.png", content
        yield f"{number:06}.json", json.dumps({"label": CLASSES[label], "width": 24}).encode()


def write_tar(path: Path, members: Iterator[tuple[str, bytes]] | Sequence[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path
