"""Training curves for TensorBoard, read back with its own reader."""

import sys
from pathlib import Path

import numpy as np
import pytest
import synthetic
from in_process import called

from results import tensorboard
from results.study_results import StudyResults

accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="the package tensorboard is not installed"
)


def holed() -> StudyResults:
    """A study with a trial that never began, one that is running, and the others finished."""
    plan = synthetic.position()
    missing = synthetic.trial_id(plan, "position=2d", 1)
    running = synthetic.trial_id(plan, "position=2d", 2)
    half = synthetic.Record({"status": "running", "reason": "", "config": ""}, synthetic.curve(0.9, 0.002)[:5])
    return synthetic.results(plan, {missing: synthetic.hole("missing", "not started"), running: half})


def scalars(folder: Path) -> dict[str, list[tuple[float, int, float]]]:
    """Tag -> (wall time, step, value) of every event of one run, by TensorBoard's reader."""
    run = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    run.Reload()
    return {
        tag: [(event.wall_time, event.step, event.value) for event in run.Scalars(tag)] for tag in run.Tags()["scalars"]
    }


def test_tensorboard_reads_every_curve(tmp_path: Path) -> None:
    """Each trial that has begun is a run, each column of its metrics a scalar, with the steps and the seconds."""
    study = holed()
    tensorboard.write_events([study], tmp_path)
    runs = sorted(path.parent for path in tmp_path.rglob("*tfevents*"))
    begun = study.history[["arm", "seed"]].drop_duplicates()
    assert {(run.parent.name, run.name) for run in runs} == {
        (arm, f"seed={seed}") for arm, seed in begun.itertuples(index=False)
    }
    assert len(runs) == 19
    for run in runs:
        seed = int(run.name.partition("=")[2])
        lines = study.history[(study.history["arm"] == run.parent.name) & (study.history["seed"] == seed)]
        found = scalars(run)
        for name in tensorboard.CURVES:
            wall, step, value = (np.array(column) for column in zip(*found[name], strict=True))
            assert step.tolist() == lines["step"].tolist()
            np.testing.assert_allclose(value, lines[name].astype(np.float32))
            np.testing.assert_allclose(wall, lines["seconds"])
        trial = study.trials[(study.trials["arm"] == run.parent.name) & (study.trials["seed"] == seed)].iloc[0]
        if trial["status"] == "finished":
            ((_, step, value),) = found["test_accuracy"]
            assert (step, value) == (synthetic.STEPS, pytest.approx(trial["test_accuracy"]))
        else:
            assert "test_accuracy" not in found


def test_a_mirror_grows_and_is_replaced_where_a_trial_was_retried(tmp_path: Path) -> None:
    """What is there is appended to, in the same file; another curve takes its place; equal results, equal bytes."""
    plan = synthetic.position()
    trial = synthetic.trial_id(plan, "position=1d", 0)
    curve, other = synthetic.curve(0.9, 0.002), synthetic.curve(0.8, 0.002)
    file = tmp_path / "position-embedding@digits/position=1d/seed=0" / tensorboard.FILE
    sizes = []
    for lines in (curve[:4], curve[:4], curve, other):
        record = synthetic.Record({"status": "running", "reason": "", "config": ""}, lines)
        tensorboard.write_events([synthetic.results(plan, {trial: record})], tmp_path)
        sizes.append((file.stat().st_size, file.stat().st_ino, [value for _, _, value in scalars(file.parent)["lr"]]))
    assert sizes[0] == sizes[1]
    assert (sizes[2][0] > sizes[0][0], sizes[2][1] == sizes[0][1]) == (True, True)
    assert sizes[3][1] != sizes[2][1]
    assert [len(lr) for _, _, lr in sizes] == [4, 4, 10, 10]
    np.testing.assert_allclose(sizes[2][2], [line["lr"] for line in curve], rtol=1e-6)


def test_names_cannot_leave_the_folder(tmp_path: Path) -> None:
    """An arm is one folder below its study, whatever it is called."""
    names = ["model=timm/resnet18", "..", "../../etc", "pool=gap,lr=0.002"]
    assert [tensorboard.folder_name(name) for name in names] == [
        "model=timm%2Fresnet18", "%2E.", "%2E.%2F..%2Fetc", "pool=gap,lr=0.002"
    ]  # fmt: skip


def test_the_command_mirrors_runs_and_exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ablate export --to tensorboard`, from a run directory and from an export, the same bytes."""
    runs = synthetic.write(tmp_path / "runs", synthetic.pooling())
    assert called(monkeypatch, "export", "--runs", str(runs), "--out", str(tmp_path / "all.parquet"))[0] == 0
    for source, folder in ((runs, "a"), (tmp_path / "all.parquet", "b")):
        words = ["export", "--runs", str(source), "--to", "tensorboard", "--out", str(tmp_path / folder)]
        assert called(monkeypatch, *words) == (0, f"{tmp_path / folder}\n", "")
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*tfevents*"))
    assert len(files) == 30
    assert all((tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in files)


def test_what_cannot_be_mirrored_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another format, no curve yet, no package: nothing is written."""
    runs = str(synthetic.write(tmp_path / "runs", synthetic.position()))
    status, _, errors = called(monkeypatch, "export", "--runs", runs, "--to", "excel")
    assert (status, "--to" in errors and "tensorboard" in errors) == (2, True)
    plan = synthetic.position()
    ids = [trial["id"] for arm in plan["arms"] for trial in arm["trials"]]
    nothing = synthetic.results(plan, dict.fromkeys(ids, synthetic.hole("missing", "not started")))
    with pytest.raises(ValueError, match="no trial has been evaluated yet"):
        tensorboard.write_events([nothing], tmp_path / "out")
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    status, _, errors = called(
        monkeypatch, "export", "--runs", runs, "--to", "tensorboard", "--out", str(tmp_path / "out")
    )
    assert (status, "this needs tensorboard" in errors) == (2, True)
    assert "pip install 'vit-ablations[tensorboard]'" in errors
    assert not (tmp_path / "out").exists()
