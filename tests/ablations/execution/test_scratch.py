"""Checkpoints on scratch space, and the trials whose weights are kept."""

import shutil
import signal
from pathlib import Path

import pytest
import synthetic
from closed_form import HELPERS
from run_trials import Quiet, curve_job, served

from ablations.cli import watching as cleaning
from ablations.cli.inputs import directories
from ablations.execution import runner
from ablations.execution.launch import Place
from results import store
from results.store.schemas.plans import Plan


@pytest.fixture
def trial(tmp_path: Path) -> store.Trial:
    made = store.trial(tmp_path / "runs", "0123456789ab", tmp_path / "scratch")
    made.create({"config": {}})
    return made


def test_checkpoints_lie_on_scratch_space_alone(trial: store.Trial, tmp_path: Path) -> None:
    with synthetic.claimed(trial) as attempt:
        for step in (1, 2, 3):
            attempt.save_checkpoint(step, b"state %d" % step)
    files = list((tmp_path / "scratch").rglob("*.safetensors"))
    assert len(files) == 2
    assert all(file.is_relative_to(tmp_path / "scratch/0123456789ab/0001") for file in files)
    assert not list((tmp_path / "runs").rglob("*.safetensors"))
    with synthetic.claimed(trial) as attempt:
        attempt.write_env({})
        assert attempt.checkpoint() == b"state 3"
        assert store.read_json(attempt.path / "env.json")["resumed_from"] == {"attempt": "0001", "step": 3}


def test_checkpoints_in_the_run_directory_are_found_too(trial: store.Trial, tmp_path: Path) -> None:
    """Scratch space may be another node's, or cleaned: the trial goes on from what is left, if anything."""
    inside = store.Trial(trial.path)
    with synthetic.claimed(trial) as attempt:
        attempt.log({"step": 4})
        attempt.save_checkpoint(5, b"gone")
    shutil.rmtree(tmp_path / "scratch")
    assert trial.latest_step() == 4  # the metrics still tell how far it came
    with synthetic.claimed(inside) as attempt:
        assert attempt.checkpoint() is None
        attempt.save_checkpoint(7, b"inside")
    with synthetic.claimed(trial) as attempt:
        assert attempt.checkpoint() == b"inside"
        attempt.save_checkpoint(8, b"outside")
        assert attempt.checkpoint() == b"outside"
    with synthetic.claimed(inside) as attempt:
        assert attempt.checkpoint() == b"inside"


def test_another_run_directory_on_the_same_scratch_space_is_another(trial: store.Trial, tmp_path: Path) -> None:
    other = store.trial(tmp_path / "others", trial.id, tmp_path / "scratch")
    other.create({"config": {}})
    with synthetic.claimed(trial) as mine, synthetic.claimed(other) as theirs:
        mine.save_checkpoint(5, b"mine")
        theirs.save_checkpoint(9, b"theirs")
        assert mine.checkpoint() == b"mine"
        mine.publish({"status": "finished"})
        assert theirs.checkpoint() == b"theirs"
        theirs.publish({"status": "finished"})
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize("folder", ["scratch", "../scratch", "/a/%j", "/a/../b", "/a\nb", "/a\x1bb"])
def test_folder_that_would_not_mean_the_same_everywhere_is_refused(folder: str) -> None:
    with pytest.raises(ValueError, match=r"checkpoints=.*an absolute folder"):
        directories.scratch(folder)
    assert directories.scratch("~/scratch") == Path.home() / "scratch"


def test_stopped_run_goes_on_from_scratch_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", HELPERS)
    one = curve_job(steps=10, pause=0.02)
    place = Place(tmp_path / "runs", None, checkpoints=tmp_path / "scratch", keep_weights="none")
    display = Quiet()
    display.show_running = lambda *_: signal.raise_signal(signal.SIGINT)
    assert runner.run([one], place, display, workers=1).stopped
    assert list((tmp_path / "scratch" / one.id / "0001").rglob("*.safetensors"))
    runner.run([one], place, Quiet())
    state = store.trial(place.runs, one.id).state()
    assert state.status == "finished"
    assert state.attempt is not None
    assert store.read_json(state.attempt / "env.json")["resumed_from"]["attempt"] == "0001"
    assert not (state.attempt / "weights.safetensors").exists()
    assert len(state.result.weights_sha256) == 64
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize(
    ("keep", "baseline", "other"), [("all", True, True), ("baseline", True, False), ("none", False, False)]
)
def test_weights_are_kept_of_whom_they_should(keep: cleaning.Keep, baseline: bool, other: bool) -> None:
    plan = synthetic.position()
    ids = [synthetic.trial_id(plan, arm, 0) for arm in (plan["baseline"], "position=none")]
    assert [*map(cleaning.kept_weights(keep, [Plan.model_validate(plan)]), ids)] == [baseline, other]


def test_weights_that_a_damaged_plan_may_need_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "studies" / "study@recipe" / "plan.json"
    path.parent.mkdir(parents=True)
    path.write_text("[]")
    job = curve_job()
    assert served(tmp_path, job, "none").kind == "finished"
    assert len([*tmp_path.rglob("weights.safetensors")]) == 1
