"""The engine plans, runs and compares what it knows nothing of: a trainable of a few lines."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import closed_form
import pytest
from closed_form import HELPERS, STUDY, loss
from designs import RECIPE as VIT_RECIPE
from designs import design
from in_process import Ablate
from run_trials import Quiet, job_of, planned_curves, serve_all, served, workers_of
from trainings import tiny
from waits import wait_until

from ablations.execution import runner
from ablations.execution.launch import Place
from ablations.jobs import jobs
from ablations.planning import plan as planning
from ablations.trainables.trainable import VIT, find
from results import store
from results.study_results import load_plans
from results.tables import study_table
from vitcore.training.evaluation import NOT_METRICS
from vitcore.training.objectives import OBJECTIVE


def test_study_of_any_trainable_gets_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan names its trainable, and its table compares by the trainable's own metric."""
    runs, todo = planned_curves(tmp_path)
    monkeypatch.setattr(runner, "drive", serve_all)
    summary = runner.run(todo, Place(runs, None), Quiet())
    assert sorted(summary.done) == sorted(job.id for job in todo)
    (plan,) = store.read_plans(runs).readable
    assert (plan.trainable, plan.split, plan.data) == (closed_form.NAME, None, None)
    rows = {row.arm: row for row in study_table.table(load_plans(runs, [plan])[0]).rows}
    assert rows["rate=0.25"].mean == pytest.approx(0.75**3 + 0.25 / 1000)
    assert rows["rate=0.25"].verdict == "worse"


def test_settings_are_checked_by_the_trainable(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="factors: unknown key 'pool'"):
        planned_curves(tmp_path, STUDY.replace("factors: {rate: [0.5, 0.25]}", "factors: {pool: [cls, gap]}"))


def test_settings_beside_the_name_of_a_plan_are_those_of_its_trainable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ablate: Ablate
) -> None:
    """`pause` is not corrected to `patch`, which Vision Transformers have."""
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(STUDY)
    Path("r.yaml").write_text(closed_form.RECIPE)
    assert ablate("run", "s.yaml", "--recipe", "r.yaml", "--plan-only")[0] == 0
    assert ablate("plan", "s@r", "pause=0.1", "--name", "slow")[::2] == (0, "")
    assert "did you mean 'rate'?" in ablate("plan", "s@r", "rte=0.1")[2]


def test_how_it_runs_is_no_identity(tmp_path: Path) -> None:
    _, first = planned_curves(tmp_path / "a", pause=0.0)
    _, second = planned_curves(tmp_path / "b", pause=0.1)
    assert [job.id for job in first] == [job.id for job in second]
    assert len({job.id for job in first}) == 6


def test_trials_of_several_trainables_run_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker loads one trainable: curves and Vision Transformers are trained one after the other."""
    monkeypatch.setenv("PYTHONPATH", HELPERS)
    runs, curves = planned_curves(tmp_path)
    vits = jobs([planning.build(design(tmp_path, recipe=VIT_RECIPE), [0])])
    mixed = [curves[0], *vits, *curves[1:]]
    summary = runner.run(mixed, Place(runs, None), Quiet(), workers=1)
    assert sorted(summary.done) == sorted(job.id for job in mixed)


@pytest.mark.parametrize("objective", OBJECTIVE)
def test_what_a_vit_reports_is_what_it_declares(tmp_path: Path, objective: str) -> None:
    """The metrics of a result are those of the plan; a line of the curve has those that need no test images."""
    job = job_of(tiny(objective=objective, pool="cls", patch=2, steps=2))
    served(tmp_path, job)
    state = store.trial(tmp_path, job.id).state()
    declared = {metric.name for metric in find(VIT).metrics([job.config])}
    assert state.result.metrics.keys() == declared
    (*_, line) = store.read_metrics(state.attempt)
    of_progress = {"schema", *NOT_METRICS}
    assert line.content().keys() - of_progress == {name for name in declared if not name.startswith("test_")}


RUN = """
import sys
from pathlib import Path
from unittest.mock import Mock
from ablations.execution import runner
from ablations.execution.launch import Place
from ablations.jobs import jobs
from results import store
runs = Path(sys.argv[1])
done = runner.run(jobs(store.read_plans(runs).readable), Place(runs, None), Mock(), 2).done
assert "torch" not in sys.modules and len(done) == 6, done
"""


def start(runs: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", RUN, str(runs)], env=os.environ | {"PYTHONPATH": HELPERS})


def test_killed_run_continues_where_it_was(tmp_path: Path) -> None:
    """Workers and the run are killed in the midst of trials; the next run ends all, with the numbers of a calm one."""
    runs, todo = planned_curves(tmp_path, steps=30, pause=0.02)
    first = start(runs)
    wait_until(lambda: len(list(runs.glob("trials/*/attempts/0001/checkpoints/*"))) >= 4, "checkpoints")
    for worker in workers_of(first.pid):
        os.kill(worker, signal.SIGKILL)
    first.kill()
    first.wait()
    assert start(runs).wait(120) == 0
    for job in todo:
        state = store.trial(runs, job.id).state()
        assert state.result is not None
        assert state.result.metrics == {"loss": loss(job.config, 30)}
        assert [line.step for line in store.read_metrics(state.attempt)] == list(range(1, 31))
