"""A metric that nothing here knows, from a trial's outcome to tables, comparisons, exports and figures."""

from dataclasses import replace
from pathlib import Path

import pytest
import synthetic

from results import export
from results.load import load_studies
from results.study_results import StudyResults
from results.tables.study_table import table
from results.trackers import tracked_runs

NAME = "test_calibration_error"
DURING = "val_calibration_error"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a study whose trials measure the metric at the end, and another at each evaluation."""
    folder, plan = tmp_path_factory.mktemp("runs"), synthetic.position()
    records = synthetic.position_records(plan)
    for trial_id, record in records.items():
        measured = {NAME: (1 - float(record.values["test_accuracy"] or 0)) / 2}
        lines = [dict(line) | {DURING: 1 - line["val_accuracy"]} for line in record.history]
        records[trial_id] = replace(synthetic.changed(record, **measured), history=lines)
    return synthetic.write(folder, plan, records)


def of_run_directory_and_export(runs: Path, tmp_path: Path) -> list[StudyResults]:
    (study,) = load_studies(runs)
    export.write([study], tmp_path / "a.parquet")
    return [study, *load_studies(tmp_path / "a.parquet")]


def test_what_a_trial_measures_is_a_column_of_tables_and_exports(runs: Path, tmp_path: Path) -> None:
    for study in of_run_directory_and_export(runs, tmp_path):
        means = {row.arm: row.measured[NAME] for row in table(study, besides=[NAME]).rows}
        assert means["position=none"] == pytest.approx(0.12)
        assert study.history[DURING].iloc[-1] == pytest.approx(1 - study.history["val_accuracy"].iloc[-1])


def test_trackers_get_what_a_trial_measures(runs: Path) -> None:
    (run, *_) = tracked_runs(load_studies(runs))
    *during, (_, _, last) = run.points
    assert all(DURING in scalars for _, _, scalars in during)
    assert NAME in last


def test_a_metric_named_like_another_column_replaces_nothing() -> None:
    plan = synthetic.position()
    key = synthetic.trial_id(plan, "position=1d", 0)
    record = synthetic.position_records(plan)[key]
    evals = '{"fewshot": {"metrics": {"status": 1.0, "arm": 2.0}, "notes": []}}'
    study = synthetic.results(plan, {key: synthetic.changed(record, evals=evals)})
    assert set(study.columns["status"]) == {"finished"}
    assert "position=1d" in study.columns["arm"]
