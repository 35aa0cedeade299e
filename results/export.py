"""One file for a colleague: Parquet with everything that tables, figures, reports and comparisons need, or flat CSV.

A Parquet row is a trial, once, whichever studies share it; the plans stand in the schema's metadata. Equal results
are equal bytes.
"""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from results import store
from results.names import METRICS
from results.store.inspection_data import Inspection, pack, unpack
from results.store.record import Record
from results.store.schemas import ExportHeader, in_range, problem
from results.study_results import HISTORY, NUMBERS, TEXTS, StudyResults, assemble
from results.tables import layout

Json = dict[str, Any]

KEY = b"ablate"  # the entry of the schema's metadata that makes a file an export

# Columns that earlier versions did not write.
ADDED = {
    *("micro_batch", "ranks", "fused", "suspect_hardware", "evals", "inspect"),
    *("compile", "attention", "matmul_precision", "tf32", "weights_sha256"),
}
NOTHING: Mapping[str, Inspection] = {}
ARRAYS = {"correct_index": np.int32, "correct": np.uint8}
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        *((name, pa.string()) for name in TEXTS),
        *((name, pa.float64()) for name in NUMBERS),
        ("history", pa.list_(pa.struct([(name, pa.float64()) for name in HISTORY]))),
        ("correct_index", pa.list_(pa.int32())),
        ("correct", pa.list_(pa.uint8())),
        ("inspect", pa.string()),
    ]
)


def write(studies: Sequence[StudyResults], path: Path, inside: Mapping[str, Inspection] = NOTHING) -> None:
    """Writes `path`: .parquet holds everything, .csv a row for each planned trial.

    inside: trial id -> what `ablate inspect` found in it.
    Raises ValueError for another suffix, or where there is nothing to export.
    """
    if not studies:
        raise ValueError(f"{path}: nothing to export")
    if path.suffix == ".parquet":
        store.write_bytes(path, parquet(studies, inside))
    elif path.suffix == ".csv":
        store.write_bytes(path, (flat(studies) + "\n").encode())
    else:
        raise ValueError(f"{path}: an export is named .parquet (everything) or .csv (the trials)")


# -- Parquet -----------------------------------------------------------------------------------------------------------


def parquet(studies: Sequence[StudyResults], inside: Mapping[str, Inspection] = NOTHING) -> bytes:
    """The file's content."""
    rows = list({row["id"]: row for study in studies for row in trial_rows(study)}.values())
    for row in rows:
        row["inspect"] = pack(inside[row["id"]]) if row["id"] in inside else ""
    plans = [study.plan for study in studies]
    header: Json = {"schema": store.SCHEMA, "plans": plans, "trials": fingerprint(rows)}
    header["checksum"] = store.checksum(header)
    metadata = {KEY: json.dumps(header, allow_nan=False)}
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA.with_metadata(metadata)), buffer, compression="zstd")
    return buffer.getvalue()


def trial_rows(study: StudyResults) -> list[Json]:
    """A row for each planned trial, by the columns of SCHEMA."""
    lines = dict(list(study.history.groupby(["arm", "seed"], sort=False)))
    rows = []
    for trial in study.trials.to_dict("records"):
        history = lines.get((trial["arm"], trial["seed"]))
        index, correct = study.correct.get(trial["id"], (None, None))
        rows.append(
            {name: trial[name] for name in ("id", *TEXTS, *NUMBERS)}
            | {"history": [] if history is None else history[list(HISTORY)].to_dict("records")}
            | {"correct_index": index, "correct": correct}
        )
    return rows


def fingerprint(rows: Sequence[Json]) -> str:
    """sha256 of what the rows say: Parquet's own checksums leave its footer out."""
    digest = hashlib.sha256()
    for row in rows:
        plain = {name: value for name, value in row.items() if name not in ARRAYS}
        digest.update(json.dumps(plain, sort_keys=True).encode())
        for name, kind in ARRAYS.items():
            digest.update(b"" if row[name] is None else np.asarray(row[name], kind).tobytes())
    return digest.hexdigest()


def read(path: Path) -> list[StudyResults]:
    """The studies of an exported .parquet file, equal to those that were written.

    Raises ValueError for a file that is no export, is damaged, or was written by a newer version.
    """
    table = read_table(path)
    header = read_header(path, table.schema)
    rows = read_rows(path, table)
    if header["trials"] != fingerprint(rows):
        raise store.Broken(f"{path}: damaged (the checksum of its trials differs)")
    records = {row["id"]: record(row) for row in rows}
    return [assemble(plan, records) for plan in header["plans"]]


def read_plans(path: Path) -> list[Json]:
    """The plans alone. Raises ValueError as `read` does."""
    plans: list[Json] = read_header(path, read_table(path, ["id"]).schema)["plans"]
    return plans


def read_table(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Raises ValueError for what is no Parquet, or not whole."""
    try:
        return pq.read_table(path, columns=columns)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a whole .parquet file ({str(error).splitlines()[0]})") from None


def read_inside(path: Path) -> dict[str, Inspection]:
    """Trial id -> what `ablate inspect` found in it. The file is one that `read` has read."""
    table = pq.read_table(path)
    if "inspect" not in table.schema.names:
        return {}
    packed = zip(table["id"].to_pylist(), table["inspect"].to_pylist(), strict=True)
    return {trial: unpack(trial, text) for trial, text in packed if text}


def read_header(path: Path, schema: pa.Schema) -> Json:
    """What the schema's metadata hold. Raises ValueError, Broken, NewerSchema."""
    content = (schema.metadata or {}).get(KEY)
    if content is None:
        raise ValueError(f"{path}: a Parquet file, but not one that `ablate export` wrote")
    try:
        header = store.parse_json(content, path)
        if header.get("checksum") != store.checksum(header):
            raise store.Broken("the checksum of its plans differs")
        if wrong := problem(ExportHeader, header):
            raise store.Broken(wrong)
    except store.Broken as error:
        raise store.Broken(f"{path}: damaged ({error})") from None
    return header


def read_rows(path: Path, table: pa.Table) -> list[Json]:
    """The rows with their arrays. Raises Broken."""
    missing = ADDED - set(table.schema.names)
    if not table.schema.equals(pa.schema([column for column in SCHEMA if column.name not in missing])):
        raise store.Broken(f"{path}: damaged (not the columns of schema {store.SCHEMA})")
    try:
        rows: list[Json] = table.drop_columns(list(ARRAYS)).to_pylist()
    except UnicodeDecodeError as error:
        raise store.Broken(f"{path}: damaged ({error})") from None
    for row in rows:
        try:
            in_range({name: row[name] for name in METRICS if name in row})
        except ValueError as error:
            raise store.Broken(f"{path}: damaged (trial {row['id']}: {error})") from None
    for name in ARRAYS:
        for row, scalar in zip(rows, table[name], strict=True):  # no Python number for each image
            row[name] = scalar.values.to_numpy() if scalar.is_valid else None
    return rows


def record(row: Json) -> Record:
    tested = (row["correct_index"], row["correct"]) if row["correct"] is not None else None
    return Record({name: row[name] for name in (*TEXTS, *NUMBERS) if name in row}, row["history"], tested)


# -- CSV ---------------------------------------------------------------------------------------------------------------


def flat(studies: Sequence[StudyResults]) -> str:
    """The trials with their study and their resolved config, a column a field."""
    frames = []
    for study in studies:
        trials = study.trials.drop(columns=["config", "evals"])
        config = pd.DataFrame([settings(text) for text in study.trials["config"]])
        config = config.drop(columns=[name for name in config if name in trials])
        frames.append(pd.concat([trials, config], axis=1).assign(study=study.name))
    trials = pd.concat(frames, ignore_index=True).convert_dtypes()  # 2, not 2.0
    cells = trials.astype(object).where(trials.notna(), None)
    names = ["study", *(str(name) for name in cells if name != "study")]
    return layout.as_csv([dict(zip(names, row, strict=True)) for row in cells[names].itertuples(index=False)])


def settings(config: str) -> dict[str, Any]:
    """A trial's config, what is nested as JSON text."""
    fields = json.loads(config or "{}")
    return {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in fields.items()}
