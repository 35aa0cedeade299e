"""Exports of results to one file, as Parquet or flat CSV. Every command that reads results accepts the Parquet file.

It has one row per trial, even if several studies share it, and the plans as metadata. Equal results give equal bytes.
"""

import hashlib
import io
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BeforeValidator
from pydantic import Json as JsonText

from results import store
from results.statistics.arms import outcomes_by_arm
from results.store import ledger, seals
from results.store.contents import parse_json
from results.store.eval_files import Inspection, pack_inspection, unpack_inspection
from results.store.record import FAULTS, Record, is_correctness
from results.store.schemas.base import Plain, Schema, Settings, Sha256, TrialId, validated
from results.store.schemas.declarations import Declaration
from results.store.schemas.metrics import AXES, MEASURES
from results.store.schemas.plans import Plan
from results.store.schemas.seals import Seal
from results.store.schemas.trials import EvalSummary
from results.study_results import TEXTS, StudyResults, assemble, rows_of
from results.tables import formats

Json = dict[str, Any]

KEY = b"ablate"  # the key in the schema's metadata that marks a file as an export

REQUIRED_COLUMNS = {"id", "status", "plugins", "config", "history", "correct_index", "correct"}  # by any version
MOST_ROWS, MOST_VALUES, MOST_BYTES = 10**6, 2**29, 2**32  # limits on what is read; values and bytes over all columns
ARRAYS = {"correct_index": np.int32, "correct": np.uint8}
NOT_VALUES = ("id", "history", "evals", "inspect", *ARRAYS)  # columns that are not values of a Record
RENAMED = {name: f"metric {name}" for name in ("history", "inspect", *ARRAYS)}  # metrics with the name of a column
TYPES = dict.fromkeys(("id", *TEXTS, "evals", "inspect"), pa.string())
TYPES |= {"correct_index": pa.list_(pa.int32()), "correct": pa.list_(pa.uint8())}


OR_EMPTY = BeforeValidator(lambda text: "{}" if text == "" else text)  # "": the trial has no such part


class ExportHeader(Schema):
    """The metadata of an exported Parquet file.

    declarations: of the trials, None in exports of 0.23. trials: SHA-256 of all rows. checksum: of the other fields.
    """

    plans: list[Plan]
    declarations: list[Declaration] | None = None
    seals: list[Seal] = []
    trials: Sha256
    checksum: Sha256


class TrialRow(Schema):
    """A row of an exported Parquet file. Arrow has checked the types of its columns. Missing numbers are NaN."""

    id: TrialId
    status: Literal["finished", "diverged", "failed", "running", "interrupted", "missing", "broken"]
    config: Annotated[JsonText[Settings], OR_EMPTY]
    evals: Annotated[JsonText[dict[str, EvalSummary]], OR_EMPTY] = {}
    plugins: Annotated[JsonText[dict[str, str]], OR_EMPTY]
    history: list[dict[str, float | None]]
    __pydantic_extra__: dict[str, str | float]


def schema(metrics: Iterable[str], curves: Iterable[str]) -> pa.Schema:
    columns = [RENAMED.get(name, name) for name in metrics]
    names = ["id", *TEXTS, "evals", *columns, *MEASURES, *FAULTS, "history", "correct_index", "correct", "inspect"]
    return typed_schema(names, [*AXES, *curves])


def typed_schema(names: Sequence[str], history: Iterable[str]) -> pa.Schema:
    evaluation = pa.struct([(name, pa.float64()) for name in history])
    types = TYPES | {"history": pa.list_(evaluation)}
    return pa.schema([(name, types.get(name, pa.float64())) for name in names])


def write(studies: Sequence[StudyResults], path: Path, inside: Mapping[str, Inspection] = {}) -> None:
    """Write an export of the studies to `path`: everything to .parquet, one row per planned trial to .csv.

    inside: trial id -> inspection. Raises ValueError for another suffix, or if `studies` is empty.
    """
    if not studies:
        raise ValueError(f"{path}: nothing to export")
    if path.suffix == ".parquet":
        store.write_bytes(path, parquet(studies, inside))
    elif path.suffix == ".csv":
        store.write_bytes(path, (csv_text(studies) + "\n").encode())
    else:
        raise ValueError(f"{path}: an export is named .parquet (everything) or .csv (the trials)")


def parquet(studies: Sequence[StudyResults], inside: Mapping[str, Inspection] = {}) -> bytes:
    """Return the content of a Parquet export. inside: trial id -> inspection."""
    rows: dict[str, Json] = {}
    declarations: dict[Any, Declaration] = {}
    sealed: dict[str, Seal] = {}
    metrics: dict[str, None] = {}
    curves: dict[str, None] = {}
    for study in studies:
        for declared in study.plan.declarations:
            declarations[declared.time, declared.plan, *declared.seeds] = declared
        sealed |= {seals.sha256(seal): seal for seal in study.plan.seals}
        metrics |= dict.fromkeys(study.metrics)
        curves |= dict.fromkeys(study.curves)
        for row in trial_rows(study):
            rows[row["id"]] = row | {"inspect": ""}
    for trial_id in inside.keys() & rows.keys():
        rows[trial_id]["inspect"] = pack_inspection(inside[trial_id])
    header = {
        "schema": store.SCHEMA,
        "plans": [store.plan_content(study.plan) for study in studies],
        "declarations": [declared.content() for declared in ledger.by_time(declarations.values())],
        "trials": fingerprint(rows.values()),
    }
    if sealed:
        header["seals"] = [seal.content() for seal in seals.by_time(sealed.values())]
    metadata = {KEY: json.dumps(header | {"checksum": store.checksum(header)}, allow_nan=False)}
    table = pa.Table.from_pylist([*rows.values()], schema(metrics, curves).with_metadata(metadata))
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def trial_rows(study: StudyResults) -> Iterator[Json]:
    for trial, history in study.trials_with_history():
        row = {name: trial[name] for name in ("id", *TEXTS, *MEASURES, *FAULTS)}
        row |= {RENAMED.get(name, name): trial[name] for name in study.metrics}
        row["history"] = [{name: line[name] for name in (*AXES, *study.curves)} for line in history]
        row["correct_index"], row["correct"] = study.correct.get(trial["id"], (None, None))
        row["evals"] = ""
        if trial["evals"]:
            row["evals"] = json.dumps(trial["evals"], default=EvalSummary.content, sort_keys=True)
        yield row


def fingerprint(rows: Iterable[Json]) -> str:
    """Return the SHA-256 of all rows, which detects damage that Parquet's checksums do not cover."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(without_arrays(row), sort_keys=True).encode())
        for name, kind in ARRAYS.items():
            if row[name] is not None:
                digest.update(np.asarray(row[name], kind).tobytes())
    return digest.hexdigest()


def without_arrays(row: Json) -> Json:
    return {name: value for name, value in row.items() if name not in ARRAYS}


def read(path: Path) -> list[StudyResults]:
    """Return the studies in a Parquet export. Raises Broken if rows are damaged, and the errors of `read_header`."""
    header = read_header(path)
    records: dict[str, Record] = {}
    metrics = {column: name for name, column in RENAMED.items()}
    with naming_damage(path):
        rows = read_rows(path)
        if header.trials != fingerprint(rows):
            raise store.Broken("the checksum of its trials differs")
        for number, row in enumerate(rows):
            values = {metrics.get(name, name): value for name, value in row.items() if name not in NOT_VALUES}
            tested = None if row["correct"] is None else (row["correct_index"], row["correct"])
            records[row["id"]] = Record(values, row["history"], tested, checked(row, number).evals)
        for plan in header.plans:
            missing = plan.arm_trials - records.keys()
            if missing:
                raise store.Broken(f"no row for trial {min(missing)}")
    declarations = header.declarations
    if declarations is None:  # 0.23 wrote the file
        declarations = list(itertools.chain.from_iterable(map(ledger.declarations_of_plan, header.plans)))
    studies = []
    for plan in header.plans:
        plan = seals.with_seals(ledger.with_declarations(plan, declarations), header.seals)
        studies.append(assemble(plan, records))
    return studies


def read_inspections(path: Path) -> dict[str, Inspection]:
    inspections = {}
    with naming_damage(path):
        for number, row in enumerate(read_rows(path)):
            trial_id = checked(row, number).id
            if row.get("inspect"):
                inspections[trial_id] = unpack_inspection(trial_id, row["inspect"])
    return inspections


@contextmanager
def naming_damage(path: Path) -> Iterator[None]:
    """Raise errors about damaged content in a `with` block as Broken, with the file's path before the message."""
    try:
        yield
    except (store.Broken, UnicodeDecodeError) as error:
        raise store.Broken(f"{path}: damaged ({error})") from None


@contextmanager
def open_parquet(path: Path, **options: Any) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file within a `with` block. Raises ValueError if the file is missing, damaged or not Parquet."""
    try:
        with pq.ParquetFile(path, **options) as file:
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)  # str() of an OSError begins with its number
        raise ValueError(f"{path}: not a whole .parquet file ({why.splitlines()[0]})") from None


def read_header(path: Path) -> ExportHeader:
    """Return the header of an export, without reading its rows.

    Raises ValueError if it is missing or not an export, Broken if damaged, NewerSchema if a newer version wrote it.
    """
    with open_parquet(path) as file:
        content = (file.schema_arrow.metadata or {}).get(KEY)
    if content is None:
        raise ValueError(f"{path}: a Parquet file, but not one that `ablate export` wrote")
    with naming_damage(path):
        header = parse_json(content, path)
        if header.get("checksum") != store.checksum(header):
            raise store.Broken("the checksum of its plans differs")
        return validated(ExportHeader, header)


def is_export(path: Path) -> bool:
    """Return whether a Parquet file is an export. Raises ValueError if it is missing or not Parquet."""
    with open_parquet(path) as file:
        return KEY in (file.schema_arrow.metadata or {})


def read_rows(path: Path) -> list[Json]:
    """Return a dict per row, with arrays or None in the columns ARRAYS. Raises ValueError if the file is damaged."""
    with open_parquet(path) as file:
        check_columns(file.schema_arrow)
        texts = [field.name for field in file.schema_arrow if field.type == pa.string()]
    with open_parquet(path, read_dictionary=texts) as file:
        check_size(file.metadata)
        table = file.read()
        columns = {name: column_values(name, table[name]) for name in table.column_names}
    characters = sum(len(text) for name in texts for text in columns[name] if text)
    check_limit("characters of text", characters, MOST_BYTES)
    return list(map(without_absent, rows_of(columns)))


def without_absent(row: Json) -> Json:
    """Return a row without the numbers that only trials of other studies in the file have."""
    present = {name: value for name, value in row.items() if value is not None or name in REQUIRED_COLUMNS}
    if row["history"]:
        present["history"] = [line and without_none(line) for line in row["history"]]
    return present


def without_none(line: Json) -> Json:
    return {name: number for name, number in line.items() if number is not None}


def check_columns(columns: pa.Schema) -> None:
    """Raise Broken unless a file has the columns of an export; earlier versions had fewer, and trials differ."""
    expected = typed_schema(columns.names, history_names(columns))
    if REQUIRED_COLUMNS.difference(columns.names) or not columns.equals(expected):
        raise store.Broken(f"not the columns of schema {store.SCHEMA}")


def check_size(file: pq.FileMetaData) -> None:
    values = 0
    size = 0  # bytes
    for group, column in itertools.product(range(file.num_row_groups), range(file.num_columns)):
        chunk = file.row_group(group).column(column)
        values += chunk.num_values
        size += chunk.total_uncompressed_size
    check_limit("rows", file.num_rows, MOST_ROWS)
    check_limit("values", values, MOST_VALUES)
    check_limit("bytes", size, MOST_BYTES)


def column_values(name: str, column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column, with arrays or None for a column of ARRAYS.

    Rows share equal texts, which Parquet stores once: a small file could otherwise flood memory.
    """
    if name in ARRAYS:
        return [as_numpy(scalar.values) for scalar in column]
    values: list[Any] = []
    for chunk in column.chunks:
        if pa.types.is_dictionary(column.type):
            texts = dict(enumerate(chunk.dictionary.to_pylist()))
            values += map(texts.get, chunk.indices.to_pylist())  # no text has the index None
        else:
            values += chunk.to_pylist()
    return values


def as_numpy(values: pa.Array | None) -> np.ndarray | None:
    """Return the numbers of an array, without a Python number for each or pandas. Raises Broken if one is missing."""
    if values is None:
        return None
    if values.null_count:
        raise store.Broken("correct_index or correct: a number is missing")
    return np.from_dlpack(values)


def checked(row: Json, number: int) -> TrialRow:
    """Return a row of an export after checking its values and arrays. Raises Broken, with the row's number."""
    tested = [row[name] for name in ARRAYS if row[name] is not None]
    try:
        trial = validated(TrialRow, without_arrays(row))
        if len(tested) == 1 or (tested and not is_correctness(*tested)):
            raise store.Broken("correct_index and correct do not belong together")
    except store.Broken as error:
        raise store.Broken(f"row {number}: {error}") from None
    return trial


def history_names(columns: pa.Schema) -> list[str]:
    """Return the names of the numbers in training histories. Raises Broken if two columns or numbers share a name."""
    names = list[str]()
    for column in columns:
        if column.name == "history" and pa.types.is_list(column.type) and pa.types.is_struct(column.type.value_type):
            names += column.type.value_type.names
    if len({*columns.names}) < len(columns.names) or len({*names}) < len(names):
        raise store.Broken("two columns of one name")
    return names


def check_limit(what: str, number: int, most: int) -> None:
    if number > most:
        raise store.Broken(f"{number:,} {what}: at most {most:,}")


def csv_text(studies: Sequence[StudyResults]) -> str:
    rows = list(itertools.chain.from_iterable(map(csv_rows, studies)))
    columns: dict[str, list[Plain]] = {}
    for name in dict.fromkeys(itertools.chain.from_iterable(rows)):
        columns[name] = csv_column([row.get(name) for row in rows])
    return formats.as_csv(list(rows_of(columns)))


def csv_rows(study: StudyResults) -> Iterator[dict[str, Plain]]:
    """Yield column -> value for each planned trial. Settings that are lists or dicts are JSON text.

    A setting with the name of a column, such as `device`, is in `config.device`, except `seed`, which is the same.
    """
    collapsed: dict[tuple[str, int], bool] = {}
    for arm, outcomes in outcomes_by_arm(study).items():
        for outcome in outcomes:
            collapsed[arm, outcome.seed] = outcome.collapsed
    for trial in rows_of(study.columns):
        row: dict[str, Plain] = {"study": study.name} | trial | {"collapsed": collapsed[trial["arm"], trial["seed"]]}
        del row["config"], row["evals"]
        for name, value in json.loads(trial["config"] or "{}").items():
            column = f"config.{name}" if name in row and name != "seed" else name
            row[column] = json.dumps(value) if isinstance(value, dict | list) else value
        yield row


def csv_column(values: Sequence[Plain]) -> list[Plain]:
    """Return the values of a column, with None for NaN, and without decimals if all numbers are whole."""
    cells: list[Plain] = []
    for value in values:
        is_nan = isinstance(value, float) and math.isnan(value)
        cells.append(None if is_nan else value)
    if all(value.is_integer() for value in cells if isinstance(value, float)):
        return [int(value) if isinstance(value, float) else value for value in cells]
    return cells
