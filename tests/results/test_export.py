"""One file holds everything: what is read back equals what was written."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import synthetic

from results import export, store
from results.comparison.compare import compare
from results.load import load_studies
from results.store.schemas.metrics import BEFORE_0_25
from results.study_results import StudyResults
from results.tables.study_table import table


def studies() -> list[StudyResults]:
    """Make two studies that share their baseline, with a trial of every status."""
    plan = synthetic.position()
    holes = {"failed": "ValueError: =cmd()", "diverged": "", "missing": "not started", "broken": "result.json: torn"}
    records = {
        synthetic.trial_id(plan, "position=2d", seed): synthetic.hole(status, reason)
        for seed, (status, reason) in enumerate(holes.items())
    }
    return [synthetic.results(plan, records), synthetic.results(synthetic.patch_size())]


def test_everything_is_read_back(tmp_path: Path) -> None:
    """An export of simulated studies, and of a run directory, holds the studies that were written."""
    for plan in (synthetic.position(), synthetic.patch_size()):
        synthetic.write(tmp_path / "runs", plan)
    file = tmp_path / "all.parquet"
    for written in (studies(), load_studies(tmp_path / "runs")):
        export.write(written, file)
        for a, b in zip(written, export.read(file), strict=True):
            synthetic.assert_same(a, b)
            assert table(a) == table(b)
    assert [study.name for study in load_studies(file, ["patch-size"])] == ["patch-size@digits"]
    assert compare(written, load_studies(file)).verdicts == {"identical": 7}


def test_studies_that_measure_other_numbers_are_read_back_from_one_file(tmp_path: Path) -> None:
    """Also a metric that is named like a column of exports."""
    other = synthetic.hybrid_stem(overrides={"width": 64})
    records = {}
    for trial_id, record in synthetic.simulate(other).items():
        lines = [{**line, "val_map": 0.25} for line in record.history]
        records[trial_id] = replace(synthetic.changed(record, test_map=0.5, correct=7.0), history=lines)
    written = [studies()[0], synthetic.results(other, records)]
    export.write(written, tmp_path / "all.parquet")
    for a, b in zip(written, export.read(tmp_path / "all.parquet"), strict=True):
        synthetic.assert_same(a, b)
    assert "correct" in b.metrics


def test_equal_results_are_equal_bytes_and_a_shared_trial_is_one_row(tmp_path: Path) -> None:
    for suffix in ("parquet", "csv"):
        for name in ("a", "b"):
            export.write(studies(), tmp_path / f"{name}.{suffix}")
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()
    frame = pd.read_parquet(tmp_path / "a.parquet")
    assert len(frame) == 20 + 15 - 5
    assert frame["id"].is_unique


def test_csv_has_the_config_of_every_trial(tmp_path: Path) -> None:
    export.write(studies(), tmp_path / "trials.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "trials.csv").read_text())))
    assert len(rows) == 35
    assert {row["study"] for row in rows} == {"position-embedding@digits", "patch-size@digits"}
    assert [rows[0][name] for name in ("arm", "position", "patch", "seed")] == ["position=none", "none", "2", "0"]
    assert float(rows[0]["test_accuracy"]) == studies()[0].trials["test_accuracy"][0]
    assert [row["status"] for row in rows[10:15]] == ["failed", "diverged", "missing", "broken", "finished"]
    assert not any(cell.startswith(("=", "@", "+")) for row in rows for cell in row.values())


def test_a_setting_named_like_a_column_is_beside_it() -> None:
    plan = synthetic.position()
    changes = {"config": json.dumps({"seed": 0, "device": "gpu0", "status": "new", "study": [1]}), "device": "cpu"}
    trial_id = synthetic.trial_id(plan, "position=none", 0)
    written = synthetic.results(plan, {trial_id: synthetic.changed(synthetic.simulate(plan)[trial_id], **changes)})
    row = next(export.csv_rows(written))
    assert [row[name] for name in ("study", "seed", "device", "status")] == [plan["name"], 0, "cpu", "finished"]
    assert {name: row[name] for name in row if name.startswith("config.")} == {
        "config.device": "gpu0",
        "config.status": "new",
        "config.study": "[1]",
    }


def test_another_suffix_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"an export is named \.parquet .* or \.csv"):
        export.write(studies(), tmp_path / "all.xlsx")
    with pytest.raises(ValueError, match="nothing to export"):
        export.write([], tmp_path / "all.parquet")
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_export_is_one_clear_line(tmp_path: Path) -> None:
    empty = export.schema(BEFORE_0_25, ()).empty_table()
    file, newer = tmp_path / "a.parquet", json.dumps({"schema": 99, "checksum": store.checksum({"schema": 99})})
    for write, error in (
        (lambda: None, "no such run directory or exported file"),
        (lambda: file.write_text("position,accuracy\n"), r"a\.parquet: not a whole \.parquet file"),
        (lambda: pq.write_table(pa.table({"a": [1]}), file), "a Parquet file, but not one that `ablate export` wrote"),
        (
            lambda: pq.write_table(empty.replace_schema_metadata({export.KEY: newer}), file),
            "schema 99 is newer than this version reads",
        ),
    ):
        write()
        with pytest.raises(ValueError, match=error) as caught:
            load_studies(file)
    assert caught.type is store.NewerSchema


def test_damage_is_found(tmp_path: Path) -> None:
    path = tmp_path / "all.parquet"
    export.write(studies(), path)
    whole, expected = path.read_bytes(), [table(study) for study in studies()]
    rng = np.random.default_rng(0)
    for _ in range(40):
        position = int(rng.integers(len(whole)))
        flipped = whole[:position] + bytes([whole[position] ^ (1 << int(rng.integers(8)))]) + whole[position + 1 :]
        for damaged in (whole[:position], flipped):
            path.write_bytes(damaged)
            try:
                found = [table(study) for study in export.read(path)]
            except ValueError as error:
                assert "all.parquet" in str(error)  # noqa: PT017
            else:
                assert found == expected


EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.parquet"
DEMO = ["position-embedding", "pooling", "patch-size", "data-fraction", "hybrid-stem"]


def test_the_example_holds_the_studies_of_make_demo_and_the_verdicts_of_the_readme() -> None:
    """Every planned trial is finished, in a file of a few hundred KB."""
    assert f"STUDIES := {' '.join(DEMO)}\n" in (EXAMPLE.parents[1] / "Makefile").read_text()
    found = {study.plan.study: study for study in load_studies(EXAMPLE)}
    assert set(found) == set(DEMO)
    assert {status for study in found.values() for status in study.trials["status"]} == {"finished"}
    assert EXAMPLE.stat().st_size < 500_000
    rows = {row.arm: (row.n, row.verdict) for row in table(found["position-embedding"]).rows}
    assert (rows["position=none"], rows["position=2d"]) == ((5, "worse"), (5, "not-resolved"))
