"""Exports to trackers: settings, curves and results; one line where a package is missing; curves while trials run."""

import sys
import time
from pathlib import Path

import pytest
import synthetic
from in_process import called

from ablations.reporting import live_curves
from results.store.schemas import Plan
from results.trackers.runs import tracked


def test_a_tracker_is_told_settings_curves_and_results() -> None:
    """A run for every trial that has begun, its points those of its curve, its results with the last."""
    study = synthetic.results(synthetic.position(seeds=2))
    runs = list(tracked([study]))
    assert len(runs) == len(study.trials)
    for one in runs:
        history = study.history[(study.history["arm"] == one.arm) & (study.history["seed"] == one.seed)]
        steps = [step for _, step, scalars in one.points if "train_loss" in scalars]
        assert steps == history["step"].tolist()
        reached = study.trials.loc[study.trials["id"] == one.trial, "test_accuracy"].item()
        assert one.points[-1][2]["test_accuracy"] == pytest.approx(reached)


@pytest.mark.parametrize("tracker", ["wandb", "mlflow"])
def test_a_missing_tracker_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tracker: str) -> None:
    """With what to install, and status 2."""
    synthetic.write(tmp_path / "runs", synthetic.position(seeds=2))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, tracker, None)
    status, output, errors = called(monkeypatch, "export", "--to", tracker)
    assert (status, output, errors.count("\n")) == (2, "", 1)
    assert f"pip install 'vit-ablations[{tracker}]'" in errors


def test_mlflow_reads_what_was_written(tmp_path: Path) -> None:
    """By its own client: an experiment a study, a run a trial."""
    mlflow = pytest.importorskip("mlflow", reason="the package mlflow is not installed")
    from results.trackers import mlflow as ours

    study = synthetic.results(synthetic.position(seeds=2))
    ours.write([study], tmp_path)
    client = mlflow.MlflowClient(tracking_uri=ours.database(tmp_path))
    experiment = client.get_experiment_by_name(study.name)
    assert len(client.search_runs([experiment.experiment_id], max_results=100)) == len(study.trials)


def test_wandb_writes_offline_runs(tmp_path: Path) -> None:
    """A folder each, which `wandb sync` takes."""
    pytest.importorskip("wandb", reason="the package wandb is not installed")
    from results.trackers import wandb as ours

    study = synthetic.results(synthetic.position(seeds=1))
    ours.write([study], tmp_path)
    assert len(list((tmp_path / "wandb").glob("offline-run-*"))) == len(study.trials)


def test_curves_are_mirrored_while_trials_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before the block ends, and at its end; without a folder nothing is written."""
    pytest.importorskip("tensorboard", reason="the package tensorboard is not installed")
    made = synthetic.position(seeds=2)
    synthetic.write(tmp_path / "runs", made)
    plan = Plan.model_validate(made)
    monkeypatch.setattr(live_curves, "EVERY_SECONDS", 0.01)
    with live_curves.mirroring([plan], tmp_path / "runs", None):
        pass
    with live_curves.mirroring([plan], tmp_path / "runs", tmp_path / "curves"):
        deadline = time.monotonic() + 30
        while not list(tmp_path.rglob("*tfevents*")) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert list(tmp_path.rglob("*tfevents*"))
