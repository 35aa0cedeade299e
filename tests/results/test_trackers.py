"""Exports to trackers, read back with the trackers' own readers; and tables of runs that trackers save."""

import ast
import random
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic
from devcluster import wait_until
from in_process import Ablate, refusal
from waits import PATIENCE

from results import trackers
from results.imported import Columns, read_study
from results.store.schemas.plans import Plan
from results.trackers import tracked_runs


def scalars(folder: Path) -> dict[str, list[tuple[float, int, float]]]:
    """Map each tag of a run to (wall time, step, value) of its events, by TensorBoard's reader."""
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="the package tensorboard is not installed"
    )
    run = reader.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    run.Reload()
    return {
        tag: [(event.wall_time, event.step, event.value) for event in run.Scalars(tag)] for tag in run.Tags()["scalars"]
    }


def test_events_have_curves_and_final_metrics(tmp_path: Path) -> None:
    """Each trial that has begun is a run; its last point has the final metrics, if it is finished."""
    plan = synthetic.position(seeds=3)
    missing, running = (synthetic.trial_id(plan, "position=2d", seed) for seed in (1, 2))
    half = synthetic.Record({"status": "running", "reason": "", "config": ""}, synthetic.curve(0.9, 0.002)[:5])
    study = synthetic.results(plan, {missing: synthetic.hole("missing", "not started"), running: half})
    trials = study.trials.set_index("id")
    trackers.write_tensorboard([study], tmp_path)
    runs = list(tracked_runs([study]))
    assert {run.id for run in runs} == {*trials.index} - {missing}
    assert len(list(tmp_path.rglob("*tfevents*"))) == len(runs)
    for run in runs:
        lines = study.history[(study.history["arm"] == run.arm) & (study.history["seed"] == run.seed)]
        found = scalars(tmp_path / study.name / run.arm / f"seed={run.seed}")
        for name in study.curves:
            wall, step, value = (np.array(column) for column in zip(*found[name], strict=True))
            assert step.tolist() == lines["step"].tolist()
            np.testing.assert_allclose(value, lines[name].astype(np.float32))
            np.testing.assert_allclose(wall, lines["seconds"])
        final = [(step, value) for _, step, value in found.get("test_accuracy", [])]
        reached = pytest.approx(trials["test_accuracy"][run.id])
        assert final == ([] if run.id == running else [(synthetic.STEPS, reached)])


def test_a_mirror_grows_and_is_replaced_where_a_trial_was_retried(tmp_path: Path) -> None:
    plan = synthetic.position()
    trial = synthetic.trial_id(plan, "position=1d", 0)
    curve, other = synthetic.curve(0.9, 0.002), synthetic.curve(0.8, 0.002)
    file = tmp_path / "position-embedding@digits/position=1d/seed=0" / trackers.EVENT_FILE
    inodes = []
    for lines in (curve[:4], curve[:4], curve, other):
        record = synthetic.Record({"status": "running", "reason": "", "config": ""}, lines)
        trackers.write_tensorboard([synthetic.results(plan, {trial: record})], tmp_path)
        inodes.append(file.stat().st_ino)
        for name in ("lr", "val_loss"):
            values = [value for _, _, value in scalars(file.parent)[name]]
            np.testing.assert_allclose(values, [line[name] for line in lines], rtol=1e-6)
    assert inodes[0] == inodes[1] == inodes[2] != inodes[3]


def test_names_cannot_leave_the_folder() -> None:
    expected = {"model=timm/resnet18": "model=timm%2Fresnet18", "..": "%2E.", "../../etc": "%2E.%2F..%2Fetc"}
    assert {name: trackers.folder_name(name) for name in expected} == expected
    long = ["a" * 300, "a" * 301, "ä" * 90]
    folders = {trackers.folder_name(name) for name in long}
    assert len(folders) == 3
    assert {len(name) for name in folders} == {trackers.LONGEST_FOLDER}


def test_a_run_directory_and_its_export_give_the_same_events(tmp_path: Path, ablate: Ablate) -> None:
    runs = synthetic.write(tmp_path / "runs", synthetic.pooling(seeds=2))
    assert ablate("export", "--runs", str(runs), "--out", str(tmp_path / "all.parquet"))[0] == 0
    for source, folder in ((runs, "a"), (tmp_path / "all.parquet", "b")):
        words = ["export", "--runs", str(source), "--to", "tensorboard", "--out", str(tmp_path / folder)]
        assert ablate(*words) == (0, f"{tmp_path / folder}\n", "")
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*tfevents*"))
    assert len(files) == 12
    assert all((tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in files)


def test_what_cannot_be_exported_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ablate: Ablate) -> None:
    plan = synthetic.position(seeds=1)
    synthetic.write(tmp_path / "runs", plan)
    words = ("export", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--to")
    assert "--to excel: one of tensorboard, wandb, mlflow" in refusal(ablate, *words, "excel")
    for tracker in trackers.TRACKERS:
        monkeypatch.setitem(sys.modules, f"{tracker}.compat.proto.event_pb2", None)
        monkeypatch.setitem(sys.modules, tracker, None)
        assert f"pip install 'vit-ablations[{tracker}]'" in refusal(ablate, *words, tracker)
    with pytest.raises(ValueError, match="no trial has been evaluated yet"):
        trackers.write_tensorboard([synthetic.untrained(plan)], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore:.*noload:DeprecationWarning")  # MLflow's use of SQLAlchemy
@pytest.mark.parametrize("tracker", ["mlflow", "wandb"])
def test_other_trackers_get_a_run_per_trial(tmp_path: Path, tracker: str) -> None:
    package = pytest.importorskip(tracker, reason=f"the package {tracker} is not installed")
    study = synthetic.results(synthetic.position(seeds=2))
    trackers.TRACKERS[tracker]([study], tmp_path)
    if tracker == "wandb":
        runs = list((tmp_path / "wandb").glob("offline-run-*"))
    else:
        client = package.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
        experiment = client.get_experiment_by_name(study.name)
        runs = client.search_runs([experiment.experiment_id], max_results=100)
    assert len(runs) == len(study.trials)


def test_curves_are_mirrored_while_trials_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Curves are written before the block ends; without a folder nothing is written."""
    pytest.importorskip("tensorboard", reason="the package tensorboard is not installed")
    made = synthetic.position(seeds=2)
    synthetic.write(tmp_path / "runs", made)
    plan = Plan.model_validate(made)
    monkeypatch.setattr(trackers, "MIRROR_SECONDS", 0.01)
    with trackers.mirroring([plan], tmp_path / "runs", None):
        pass
    with trackers.mirroring([plan], tmp_path / "runs", tmp_path / "curves"):
        wait_until(lambda: list(tmp_path.rglob("*tfevents*")), "curves", PATIENCE, every=0.01)


# -- tables that trackers save -----------------------------------------------------------------------------------------

# Twelve runs, logged without a network by MLflow 3.17 and wandb 0.31 with the settings `optimizer.lr`, `model` and
# `seed`, three steps of `acc`, and `loss`. One run has a loss of NaN. One crashed after its first step. mlflow.csv is
# `search_runs().drop(columns="artifact_uri").to_csv()`. wandb.csv is the data frame of runs that the documentation of
# wandb builds, from what its offline files hold.
SAMPLES = Path(__file__).parent / "samples"
CRASHED = (0.01, "vit", 2)
NO_LOSS = (0.1, "vit", 1)
RUNS = [(lr, model, seed) for lr in (0.1, 0.01) for model in ("resnet", "vit") for seed in range(3)]


def logged_accuracies(lr: float, model: str, seed: int) -> list[float]:
    """Return what a run logged, step by step."""
    rng = random.Random(f"{lr} {model} {seed}")
    return [0.6 + 0.05 * step + rng.gauss(0, 0.01) + (0.02 if model == "vit" else 0) for step in range(3)]


def mlflow_client() -> pd.DataFrame:
    return pd.read_csv(SAMPLES / "mlflow.csv")


def mlflow_page() -> pd.DataFrame:
    """The table that MLflow's page saves: its own columns, then parameters and metrics by their names alone."""
    table = mlflow_client()
    own = {"Run ID": table["run_id"], "Name": table["tags.mlflow.runName"], "User": "me", "Status": table["status"]}
    logged = [name for name in table if name.startswith(("params.", "metrics."))]
    return pd.DataFrame(own | {name.partition(".")[2]: table[name] for name in logged})


def wandb_client() -> pd.DataFrame:
    return pd.read_csv(SAMPLES / "wandb.csv")


def wandb_page() -> pd.DataFrame:
    """The table that the page of Weights & Biases saves: its own columns, then settings and numbers by name alone."""
    rows = []
    for run in wandb_client().to_dict("records"):
        config, summary = ast.literal_eval(run["config"]), ast.literal_eval(run["summary"])
        row = {"Name": run["name"], "State": run["state"], "Tags": "", "Runtime": 3, "Sweep": ""}
        settings = {"model": config["model"], "optimizer.lr": config["optimizer"]["lr"], "seed": config["seed"]}
        rows.append(row | settings | {"acc": summary["acc"], "loss": summary.get("loss")})
    return pd.DataFrame(rows)


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
@pytest.mark.parametrize("made", [mlflow_client, mlflow_page, wandb_client, wandb_page])
def test_a_table_of_a_tracker_has_the_numbers_that_were_logged(tmp_path: Path, made: object, suffix: str) -> None:
    """The last accuracy of each run counts, except of the run that crashed."""
    assert callable(made)
    path = tmp_path / f"runs{suffix}"
    table = made()
    {".csv": table.to_csv, ".json": table.to_json, ".parquet": table.to_parquet}[suffix](path)
    request = Columns(
        study="s", arms=["lr", "model"], seed="seed", metrics=["acc", "loss"], baseline="lr=0.1,model=vit"
    )
    trials = read_study(path, request).trials.set_index(["arm", "seed"]).sort_index()
    assert len(trials) == len(RUNS)
    for lr, model, seed in RUNS:
        trial = trials.loc[(f"lr={lr},model={model}", seed)]
        last = logged_accuracies(lr, model, seed)[-1]
        if (lr, model, seed) == CRASHED:
            assert trial["status"] == "failed"
            assert trial["reason"] in (f"failed in runs{suffix}", f"crashed in runs{suffix}")
            continue
        loss = np.nan if (lr, model, seed) == NO_LOSS else 1 - last
        assert [trial["acc"], trial["loss"]] == pytest.approx([last, loss], nan_ok=True)
