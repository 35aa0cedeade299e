"""Workers that are started before there is anything to do."""

from pathlib import Path

import pytest
import synthetic
from test_running import Quiet

from ablations import launch, runner
from ablations.jobs import Job
from ablations.launch import Place
from vitcore.config import Config
from vitcore.identity import trial_id


def tiny(seed: int) -> Job:
    config = Config(width=8, depth=1, heads=1, patch=4, steps=2, batch=4, seed=seed)
    return Job(trial_id(config), config.model_dump(), "arm", "")


def test_a_run_takes_the_workers_that_are_there(tmp_path: Path) -> None:
    """The trial is trained in one of them; the other, for which there is no work, ends before that."""
    place, job = Place(tmp_path, None), tiny(0)
    with launch.ahead(place, ["new"], 2) as ahead:
        processes = [process for _, process in ahead.waiting]
        assert len(processes) == 2
        tally = runner.run([job], place, Quiet(), 1, ahead=ahead)
        assert tally.done == [job.id]
        assert not ahead.waiting
        assert processes[1].poll() == -9
    assert [process.poll() for process in processes] == [0, -9]


def test_nothing_is_left_of_them_where_a_plan_is_refused(tmp_path: Path) -> None:
    """They end with the error."""
    processes = []

    def refused() -> None:
        with launch.ahead(Place(tmp_path, None), ["new"], 1) as ahead:
            processes.extend(process for _, process in ahead.waiting)
            raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        refused()
    assert [process.poll() for process in processes] == [-9]


def test_what_a_library_writes_into_the_environment_later_is_not_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was started before it is taken, and one that is started after it inherits the same."""
    with launch.ahead(Place(tmp_path, None), ["new"], 1) as ahead:
        (begun, process) = ahead.waiting[0]
        monkeypatch.setenv("KMP_INIT_AT_FORK", "FALSE")
        own = next(launch.environments(1, on_cpu=False, asked=1))
        later = launch.start(Place(tmp_path, None), own, False, ahead.environment)
        assert later == begun
        assert ahead.process(later) is process
        ahead.waiting.append((begun, process))


def test_a_worker_with_another_order_is_not_taken(tmp_path: Path) -> None:
    """Another run directory, or another environment: a new one is started."""
    place = Place(tmp_path, None)
    with launch.ahead(place, ["new"], 1) as ahead:
        (begun, process), wanted = ahead.waiting[0], launch.start(Place(tmp_path / "other", None), {}, on_cpu=True)
        another = ahead.process(wanted)
        another.kill()
        another.communicate()
        assert another is not process
        assert ahead.process(begun) is process
        ahead.waiting.append((begun, process))


def test_none_is_started_where_all_that_was_planned_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a command mostly has nothing to train; a study never planned, or a trial without its result, has."""
    monkeypatch.setattr(launch.Start, "process", lambda self: pytest.fail("a worker was started"))
    synthetic.write(tmp_path, synthetic.position())
    with launch.ahead(Place(tmp_path, None), ["position-embedding"], 1) as ahead:
        assert not ahead.waiting
    assert not launch.finished(tmp_path, ["position-embedding", "another"])
    next((tmp_path / "trials").glob("*/result.json")).unlink()
    assert not launch.finished(tmp_path, ["position-embedding"])


@pytest.mark.parametrize(("login", "most"), [(False, launch.MOST_AHEAD), (True, launch.login.MOST)])
def test_a_machine_of_many_cores_does_not_start_them_all(
    login: bool, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many trials there will be is not known yet; a login node is shared."""
    monkeypatch.setattr(launch, "cores", lambda: 64)
    monkeypatch.setattr(launch, "gpus", list)
    monkeypatch.setattr(launch.login, "here", lambda: login)
    monkeypatch.setattr(launch, "start", lambda place, own, *_: launch.Start(["sleep", "60"], own))
    with launch.ahead(Place(tmp_path, None), ["new"], None) as ahead:
        assert len(ahead.waiting) == most
