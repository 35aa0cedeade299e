"""Races of trials: arms that can hardly become better take no more seeds, whoever trains them."""

from pathlib import Path

import closed_form
import pytest
from designs import design
from in_process import Ablate, json_output, refusal
from run_trials import Quiet, called_serially, serve_all, served

from ablations.execution import runner
from ablations.execution.launch import Place
from ablations.execution.pool import Pool
from ablations.execution.race import Races, left_out, open_jobs
from ablations.jobs import Job, jobs
from ablations.planning.prepare import prepare
from ablations.planning.saved_plans import save_plan
from results.store.schemas.plans import Plan

# The loss grows with the seed, more slowly at a smaller rate: 0.25 is far behind, 0.45 a little, 0.7 leads.
STUDY = "{question: Which rate?, baseline: {rate: 0.5}, factors: {rate: [0.5, 0.25, 0.45, 0.7]}, race: true}"
RECIPE = f"{{description: A curve., train: '{closed_form.NAME}', config: {{steps: 3}}, seeds: 6}}"


def planned(folder: Path) -> tuple[Path, Plan]:
    runs = folder / "runs"
    runs.mkdir(parents=True)
    plan = prepare(design(folder, STUDY, RECIPE), runs, None, code="0" * 12)
    save_plan(runs, plan)
    return runs, plan


def trained(runs: Path) -> list[str]:
    return sorted(path.parent.name for path in runs.glob("trials/*/result.json"))


def run(runs: Path, plan: Plan, todo: list[Job] | None = None) -> Quiet:
    display = Quiet()
    races = Races(runs, [plan])
    runner.run(todo or jobs([plan]), Place(runs, None), display, left_out=races.left_out)
    return display


def stop_after(trials: int) -> object:
    """Return a stand-in for `runner.drive` that serves some trials, and is then killed."""

    def serve_some(pool: Pool, *_: object) -> None:
        for _ in range(trials):
            trial = next(pool.ready_trials(float("inf")))
            pool.settle(trial, served(pool.place.runs, trial.job))
        pool.stop()

    return serve_some


def test_race_that_is_killed_and_continued_stops_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, plan = planned(tmp_path / "a")
    monkeypatch.setattr(runner, "drive", serve_all)
    display = run(runs, plan)
    assert [text.partition(" stopped by the race after ")[0] for text in display.said] == ["rate=0.25", "rate=0.45"]
    counts = {arm.name: len(set(arm.ids.values()) & {*trained(runs)}) for arm in plan.arms}
    assert counts["rate=0.5"] == counts["rate=0.7"] == 6
    assert 2 <= counts["rate=0.25"] < 6
    assert set(left_out(runs, [plan])) == plan.arm_trials - {*trained(runs)}
    assert {job.id for job in open_jobs(runs, [plan])} == {*trained(runs)}

    again, same = planned(tmp_path / "b")
    monkeypatch.setattr(runner, "drive", stop_after(7))
    run(again, same)
    assert len(trained(again)) == 7
    monkeypatch.setattr(runner, "drive", serve_all)
    run(again, same)
    assert trained(again) == trained(runs)


def test_tasks_train_seed_by_seed(tmp_path: Path) -> None:
    """Elsewhere, tasks begin among the first 32 trials, as few of them then compete."""
    todo = jobs([planned(tmp_path)[1]])
    for task in ("a", "b", "c"):
        assert [job.config["seed"] for job in runner.pull_order(todo, task, 1)] == sorted([*range(6)] * 4)


def test_trial_that_another_plan_needs_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, plan = planned(tmp_path)
    monkeypatch.setattr(runner, "drive", serve_all)
    run(runs, plan)
    other = plan.model_copy(update={"name": "other", "race": False})
    assert left_out(runs, [plan, other]) == {}


def test_commands_count_what_a_race_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ablate: Ablate) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(STUDY.replace(", race: true", ""))
    Path("r.yaml").write_text(RECIPE)
    command = ("s.yaml", "--recipe", "r.yaml")
    expected = json_output(ablate, "plan", *command, "--race")["race"]
    assert expected["stopped"] == 0
    assert 0.1 < expected["equal"] < expected["worse"] < 0.7
    status, output, errors = called_serially(monkeypatch, "run", *command, "--race", "--no-probe")
    assert (status, "the race saved" in output) == (0, True), errors
    view = json_output(ablate, "plan", "s@r")
    stopped = view["race"]["stopped"]
    assert view["trials"]["todo"] == 0 < stopped
    found = json_output(ablate, "status")
    assert (found["missing"], found["stopped"]) == (0, stopped)
    assert ablate("table", "s@r", "--strict")[0] == 0
    assert ablate("export", "--out", "all.parquet")[0] == 0
    assert ablate("table", "--runs", "all.parquet")[1] == ablate("table")[1]
    assert "is a race" in refusal(ablate, "run", *command, "--race", "--from", "all.parquet", "--runs", "new")


def test_race_is_declared_before_the_first_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ablate: Ablate
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(closed_form.STUDY)
    Path("r.yaml").write_text(RECIPE)
    command = ("s.yaml", "--recipe", "r.yaml")
    assert called_serially(monkeypatch, "run", *command, "--seeds", "2", "--no-probe")[0] == 0
    assert "declared before the first" in refusal(ablate, "run", *command, "--race")
    Path("s.yaml").write_text(STUDY.replace("factors", "tune: {steps: [2, 3, 4]}, factors"))
    assert "race: not with tune" in refusal(ablate, "plan", *command, "--runs", "new")
    Path("s.yaml").write_text(STUDY.replace("factors", "figure: isoflop, factors"))
    assert "race: not with figure=isoflop" in refusal(ablate, "plan", *command, "--runs", "new")
