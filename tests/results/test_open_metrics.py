"""A metric that nothing here knows, from a trial's outcome to tables, comparisons, exports and figures."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic

from results import export, store
from results.comparison.compare import compare
from results.figures import study_figure
from results.figures.plots import metric_limits
from results.load import load_studies
from results.records import as_json
from results.store.schemas.metrics import BEFORE_0_25, Metric, is_lower_better, metric_by_name
from results.store.schemas.trials import EvalSummary
from results.study_results import StudyResults
from results.tables import layout
from results.tables.study_table import table
from results.trackers import tracked_runs
from vitcore.training.evaluation import METRICS

NAME = "test_calibration_error"
DURING = "val_calibration_error"
DECLARED = {"name": NAME, "higher_is_better": False, "lowest": 0.0, "highest": 1.0, "label": "calibration error"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a study of the metric, whose trials measure it at the end and another at each evaluation."""
    folder, plan = tmp_path_factory.mktemp("runs"), synthetic.position()
    plan |= {"metric": NAME, "metrics": [DECLARED], "margin": None}
    records = synthetic.position_records(plan)
    for trial_id, record in records.items():
        measured = {NAME: (1 - float(record.values["test_accuracy"] or 0)) / 2}
        lines = [dict(line) | {DURING: 1 - line["val_accuracy"]} for line in record.history]
        records[trial_id] = replace(synthetic.changed(record, **measured), history=lines)
    synthetic.write(folder, plan, records)
    store.write_json(store.study_folder(folder, plan["name"]) / "plan.json", plan | {"split": None})
    return folder


def of_run_directory_and_export(runs: Path, tmp_path: Path) -> list[StudyResults]:
    (study,) = load_studies(runs)
    export.write([study], tmp_path / "a.parquet")
    return [study, *load_studies(tmp_path / "a.parquet")]


def test_what_a_trial_measures_is_a_column_of_tables_and_exports(runs: Path, tmp_path: Path) -> None:
    for study in of_run_directory_and_export(runs, tmp_path):
        means = {row.arm: row.measured[NAME] for row in table(study, besides=[NAME]).rows}
        assert means["position=none"] == pytest.approx(0.12)
        assert study.history[DURING].iloc[-1] == pytest.approx(1 - study.history["val_accuracy"].iloc[-1])


def test_a_declared_metric_is_judged_by_its_own_direction(runs: Path, tmp_path: Path) -> None:
    for study in of_run_directory_and_export(runs, tmp_path):
        made = table(study)
        (none,) = [row for row in made.rows if row.arm == "position=none"]
        assert (none.verdict, none.error_ratio) == ("worse", None)
        assert none.delta == pytest.approx(0.092)
        page = layout.render(made, "md")
        assert "calibration error" in page
        assert "test images" not in page


def test_a_table_of_other_code_claims_nothing_about_vision_transformers(runs: Path) -> None:
    """Sizes that nobody knows are no columns, a rate that no arm has is not named, and seeds are only numbers."""
    (study,) = load_studies(runs)
    unknown = {"params": None, "flops": None, "config": {"depth": 3}}
    arms = [arm.model_copy(update=unknown) for arm in study.plan.arms]
    other = replace(study, plan=study.plan.model_copy(update={"arms": arms, "trainable": "mine:fit"}))
    assert {"params", "flops"} <= {*layout.shown_columns(table(study))}
    assert {"params", "flops"}.isdisjoint(layout.shown_columns(table(other)))
    for shown, of_vit in ((study, True), (other, False)):
        page = layout.render(table(shown), "md")
        assert ("All at the baseline's learning rate" in page) == of_vit
        assert ("paired by seed number" in page) != of_vit


def test_a_declared_metric_is_compared(runs: Path, tmp_path: Path) -> None:
    first, second = of_run_directory_and_export(runs, tmp_path)
    values = [value + 0.1 + 0.01 * (place % 3) for place, value in enumerate(second.columns[NAME])]
    larger = {NAME: values, "weights_sha256": [""] * 20}
    found = compare([first], [replace(second, columns=second.columns | larger)])
    assert {row.verdict for row in found.rows} == {"worse"}
    assert json.loads(as_json(found))["rows"][0]["metric"] == NAME


def test_a_declared_metric_is_drawn_within_its_range(runs: Path) -> None:
    (study,) = load_studies(runs)
    assert "calibration error" in study_figure.picture(study, "svg").decode()
    assert metric_limits(study.plan.primary_metric, 0.0, 0.9, 0.5) == (0.0, 1.0)


def test_trackers_get_what_a_trial_measures(runs: Path) -> None:
    (run, *_) = tracked_runs(load_studies(runs))
    *during, (_, _, last) = run.points
    assert all(DURING in scalars for _, _, scalars in during)
    assert NAME in last


def test_a_metric_named_like_another_column_replaces_nothing() -> None:
    plan = synthetic.position()
    key = synthetic.trial_id(plan, "position=1d", 0)
    record = synthetic.position_records(plan)[key]
    evals = {"fewshot": EvalSummary(metrics={"status": 1.0, "arm": 2.0})}
    study = synthetic.results(plan, {key: replace(record, evals=evals)})
    assert set(study.columns["status"]) == {"finished"}
    assert "position=1d" in study.columns["arm"]


def test_plans_before_0_25_have_the_metrics_that_vision_transformers_declare() -> None:
    """`results` may not import vitcore, so what older plans meant stands there a second time."""
    declared = [Metric(name=name, **kind) for name, kind in METRICS.items()]
    assert [metric_by_name(name) for name in BEFORE_0_25] == declared


LOWER = "val_loss loss/test testMSE rmse WER cer word.error-rate errors_total fid50k train_seconds eval-latency flops"
HIGHER = "answer_accuracy fidelity interrogation sentiment merit images_per_second flops_per_second mAP lossless"


def test_less_is_better_by_whole_words_of_a_name() -> None:
    assert [name for name in LOWER.split() if not is_lower_better(name)] == []
    assert [name for name in HIGHER.split() if is_lower_better(name)] == []
