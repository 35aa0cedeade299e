"""One file for a colleague: Parquet with everything that tables, figures, reports and comparisons need, or flat CSV.

A Parquet row is a trial, once, whichever studies share it; the plans stand in the schema's metadata. Equal results
are equal bytes.
"""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from results import layout, store
from results.study import HISTORY, NUMBERS, TEXTS, Record, StudyResults, assemble

KEY = b"ablate"  # the entry of the schema's metadata that makes a file an export

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        *((name, pa.string()) for name in TEXTS),
        *((name, pa.float64()) for name in NUMBERS),
        ("history", pa.list_(pa.struct([(name, pa.float64()) for name in HISTORY]))),
        ("correct_index", pa.list_(pa.int32())),
        ("correct", pa.list_(pa.uint8())),
    ]
)


def write(studies: Sequence[StudyResults], path: Path) -> None:
    """Writes `path`: .parquet holds everything, .csv a row for each planned trial.

    Raises ValueError for another suffix, or where there is nothing to export.
    """
    if not studies:
        raise ValueError(f"{path}: nothing to export")
    if path.suffix == ".parquet":
        store.write_bytes(path, parquet(studies))
    elif path.suffix == ".csv":
        store.write_bytes(path, (flat(studies) + "\n").encode())
    else:
        raise ValueError(f"{path}: an export is named .parquet (everything) or .csv (the trials)")


# -- Parquet -----------------------------------------------------------------------------------------------------------


def parquet(studies: Sequence[StudyResults]) -> bytes:
    """The file's content."""
    rows: dict[str, dict[str, Any]] = {}
    for study in studies:
        for row in trial_rows(study):
            rows.setdefault(row["id"], row)
    plans = json.dumps({"schema": store.SCHEMA, "plans": [study.plan for study in studies]}, allow_nan=False)
    table = pa.Table.from_pylist(list(rows.values()), schema=SCHEMA.with_metadata({KEY: plans}))
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", write_page_checksum=True)
    return buffer.getvalue()


def trial_rows(study: StudyResults) -> list[dict[str, Any]]:
    lines = dict(list(study.history.groupby(["arm", "seed"], sort=False)))
    rows = []
    for trial in study.trials.to_dict("records"):
        own = {name: trial[name] for name in ("id", *TEXTS, *NUMBERS)}
        history = lines.get((trial["arm"], trial["seed"]))
        evaluations = [] if history is None else history[list(HISTORY)].to_dict("records")
        index, correct = study.correct.get(trial["id"], (None, None))
        rows.append({**own, "history": evaluations, "correct_index": index, "correct": correct})
    return rows


def read(path: Path) -> list[StudyResults]:
    """The studies of an exported .parquet file, equal to those that were written.

    Raises ValueError for a file that is no export, is damaged, or was written by a newer version.
    """
    try:
        table = pq.read_table(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a whole .parquet file ({str(error).splitlines()[0]})") from None
    header = json.loads((table.schema.metadata or {}).get(KEY, "{}"))
    if "schema" not in header:
        raise ValueError(f"{path}: a Parquet file, but not one that `ablate export` wrote")
    if header["schema"] > store.SCHEMA:
        raise store.NewerSchema(
            f"{path}: schema {header['schema']} is newer than this version reads ({store.SCHEMA}): upgrade to read it"
        )
    rows = table.drop_columns(["correct_index", "correct"]).to_pylist()
    tests = zip(arrays(table["correct_index"]), arrays(table["correct"]), strict=True)
    records = {row["id"]: record(row, *test) for row, test in zip(rows, tests, strict=True)}
    return [assemble(plan, records) for plan in header["plans"]]


def arrays(column: Any) -> list[np.ndarray | None]:
    """A column of lists, without a Python number for each entry."""
    return [scalar.values.to_numpy() if scalar.is_valid else None for scalar in column]


def record(row: dict[str, Any], index: np.ndarray | None, correct: np.ndarray | None) -> Record:
    values = {name: row[name] for name in (*TEXTS, *NUMBERS)}
    tested = None if index is None or correct is None else (index, correct)
    return Record(values, row["history"], tested)


# -- CSV ---------------------------------------------------------------------------------------------------------------


def flat(studies: Sequence[StudyResults]) -> str:
    """The trials with their study and their resolved config, a column a field."""
    frames = []
    for study in studies:
        trials = study.trials.drop(columns="config")
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
