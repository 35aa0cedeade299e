"""Exports merged into a run directory: a study goes on where its results are, and each trial is trained once."""

from dataclasses import replace
from pathlib import Path

import pytest
from closed_form import RECIPE, STUDY
from designs import design
from run_trials import Quiet, serve_all

from ablations.execution import runner
from ablations.execution.launch import Place
from ablations.jobs import Job, jobs
from ablations.planning.merging import merge_export
from ablations.planning.prepare import prepare
from ablations.planning.saved_plans import save_plan
from results import export, store
from results.load import load_studies
from results.tables import layout, study_table


@pytest.fixture(autouse=True)
def trained_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "drive", serve_all)


def planned(runs: Path, study: str = STUDY) -> list[Job]:
    """Plan a study of six trials in a run directory."""
    runs.mkdir(exist_ok=True)
    plan = prepare(design(runs, study, RECIPE), runs, None, code="0" * 12)
    save_plan(runs, plan)
    return jobs([plan])


def trained(runs: Path, some: list[Job]) -> None:
    """Train those of the jobs that have no result."""
    runner.run(some, Place(runs, None), Quiet())


def exported(runs: Path) -> Path:
    path = runs.with_suffix(".parquet")
    export.write(load_studies(runs), path)
    return path


def table(runs: Path) -> str:
    (study,) = load_studies(runs)
    rows = [replace(row, notes=[]) for row in study_table.table(study).rows]
    return "\n".join(map(str, rows))


def test_two_machines_train_each_trial_once(tmp_path: Path) -> None:
    """The table of the merged run directory equals that of one which trained all trials itself."""
    here, there, alone = tmp_path / "here", tmp_path / "there", tmp_path / "alone"
    trained(here, planned(here)[:2])
    trained(there, planned(there)[2:5])
    merged = merge_export(exported(there), here)
    assert (merged.written, merged.present, merged.unfinished) == (3, 0, 3)
    todo = planned(here)
    trained(here, todo)
    assert [len(store.trial(here, job.id).attempts()) for job in todo] == [1] * 6
    trained(alone, planned(alone))
    assert table(here) == table(alone)


def test_a_merged_trial_keeps_its_curve_and_says_where_it_is_from(tmp_path: Path) -> None:
    runs, merged = tmp_path / "runs", tmp_path / "merged"
    first = planned(runs)[0]
    trained(runs, [first])
    assert merge_export(exported(runs), merged).written == 1
    before, after = (store.trial(folder, first.id).state() for folder in (runs, merged))
    assert store.read_metrics(after.attempt) == store.read_metrics(before.attempt)
    assert (after.result.metrics, after.result.weights_sha256) == (before.result.metrics, before.result.weights_sha256)
    (study,) = load_studies(merged)
    text = layout.render(study_table.table(study), "md")
    assert "1 of 6 trials were imported from runs.parquet (SHA-256 " in text


def test_merging_twice_changes_nothing(tmp_path: Path) -> None:
    runs, merged = tmp_path / "runs", tmp_path / "merged"
    trained(runs, planned(runs))
    merge_export(exported(runs), merged)
    files = {path: path.read_bytes() for path in merged.rglob("*") if path.is_file()}
    again = merge_export(exported(runs), merged)
    assert (again.written, again.present) == (0, 6)
    assert {path: path.read_bytes() for path in merged.rglob("*") if path.is_file()} == files


def test_a_result_that_is_here_stays(tmp_path: Path) -> None:
    runs, here = tmp_path / "runs", tmp_path / "here"
    todo = planned(runs)
    trained(runs, todo)
    trained(here, planned(here)[:1])
    path = store.trial(here, todo[0].id).path / "result.json"
    before = path.read_bytes()
    assert (merge_export(exported(runs), here).written, path.read_bytes()) == (5, before)


def test_a_trial_with_another_id_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    todo = planned(runs)
    trained(runs, todo)
    (study,) = load_studies(runs)
    study.columns["config"][0] = study.columns["config"][1].replace('"seed": 1', '"seed": 7')
    export.write([study], tmp_path / "other.parquet")
    with pytest.raises(ValueError, match=rf"other.parquet: trial {todo[0].id}: its settings are trial \w+ here: other"):
        merge_export(tmp_path / "other.parquet", tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_study_with_another_baseline_is_refused(tmp_path: Path) -> None:
    runs, here = tmp_path / "runs", tmp_path / "here"
    trained(runs, planned(runs))
    planned(here, STUDY.replace("baseline: {rate: 0.5}", "baseline: {rate: 0.25}"))
    with pytest.raises(ValueError, match=r"runs.parquet: .* was planned with baseline rate=0\.25, now it is rate=0\.5"):
        merge_export(exported(runs), here)
    assert not (here / "trials").exists()
