"""Trials of exports and of other run directories: a study goes on where its results are; each trial is trained once."""

from dataclasses import replace
from pathlib import Path

import commands
import pytest
from closed_form import NAME, RECIPE, STUDY
from designs import STUDY_HERE, design, write
from in_process import Ablate, json_output, refusal
from run_trials import Quiet, serve_all

from ablations.execution import runner, slots
from ablations.execution.launch import Place
from ablations.jobs import Job, jobs
from ablations.planning.merging import ForeignTrial, exported_trials, merge_export
from ablations.planning.prepare import prepare
from ablations.planning.saved_plans import save_plan
from ablations.trainables.user_code import processor
from results import export, store
from results.load import load_studies
from results.store import eval_files, ledger
from results.store.schemas.trials import EvalSummary
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
    planned(merged)
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
    planned(merged)
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
    planned(tmp_path / "merged")
    with pytest.raises(ValueError, match=rf"other.parquet: trial {todo[0].id}: its settings are trial \w+ here: other"):
        merge_export(tmp_path / "other.parquet", tmp_path / "merged")
    assert not (tmp_path / "merged/trials").exists()


def test_code_that_needs_more_gpus_is_not_told_to_set_a_device(tmp_path: Path) -> None:
    """Training code of users need not have a setting `device`."""
    _, (job, *_) = commands.planned(tmp_path, recipe=f"{commands.RECIPE}    resources: {{gpus: 2}}\n")
    with pytest.raises(ValueError, match=r"gpus=2: no GPU here$"):
        slots.check_gpus([job], 0, 1, "here")


def test_a_study_with_another_baseline_is_refused(tmp_path: Path) -> None:
    runs, here = tmp_path / "runs", tmp_path / "here"
    trained(runs, planned(runs))
    planned(here, STUDY.replace("baseline: {rate: 0.5}", "baseline: {rate: 0.25}"))
    with pytest.raises(ValueError, match=r"runs.parquet: .* was planned with baseline rate=0\.25, now it is rate=0\.5"):
        merge_export(exported(runs), here)
    assert not (here / "trials").exists()


# -- --from ------------------------------------------------------------------------------------------------------------

SOURCES = ["there", "there.parquet"]


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A run directory with 4 of 6 trials, and its export."""
    trained(tmp_path / "there", planned(tmp_path / "there")[:4])
    exported(tmp_path / "there")
    write(tmp_path, "s", STUDY)
    write(tmp_path, "r", RECIPE)
    return tmp_path / "there"


@pytest.mark.parametrize("source", SOURCES)
def test_a_run_takes_finished_trials_and_trains_the_others(
    there: Path, tmp_path: Path, ablate: Ablate, source: str
) -> None:
    status, output, errors = ablate("run", *STUDY_HERE, "--runs", "here", "--from", source)
    assert status == 0, errors
    assert f"ablate: {source}: 4 trials taken; trained by {processor()}\n" in errors
    assert "4 of 6 trials were imported from " in output
    here = tmp_path / "here"
    todo = planned(here)
    assert [len(store.trial(here, job.id).attempts()) for job in todo] == [1] * 6
    before, after = (store.trial(runs, todo[0].id).state() for runs in (there, here))
    assert after.result.metrics == before.result.metrics
    assert after.result.weights_sha256 == before.result.weights_sha256
    assert store.read_metrics(after.attempt) == store.read_metrics(before.attempt)
    assert after.weights.exists() is (source == "there")
    assert {*ledger.read_declarations(there)[0].ids} == {job.id for job in todo}
    assert ledger.read_declarations(there)[0] in ledger.read_declarations(here)
    again = ablate("run", *STUDY_HERE, "--runs", "here", "--from", source, "--plan-only")
    assert f"{source}: 0 trials taken" in again[2]


@pytest.mark.parametrize("source", SOURCES)
def test_a_plan_and_a_run_that_is_refused_count_what_they_would_take_and_write_nothing(
    there: Path, tmp_path: Path, ablate: Ablate, source: str
) -> None:
    words = ("plan", *STUDY_HERE, "--runs", "here", "--from", source)
    view = json_output(ablate, *words)
    assert (view["trials"], view["taken"]) == ({"planned": 6, "finished": 0, "shared": 0, "todo": 2}, 4)
    assert "= 6 trials: 0 finished, 0 shared, 2 to do, 4 to take (--from)" in ablate(*words)[1]
    for command in ("plan", "run"):  # both know how long the trials there took
        refused = refusal(ablate, command, *words[1:], "--max-hours", "0")
        assert "--max-hours 0: training 2 trials takes" in refused
    assert not (tmp_path / "here").exists()


def test_a_run_that_was_killed_while_it_took_trials_has_what_was_declared(
    there: Path, tmp_path: Path, ablate: Ablate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run takes no trial that is here, and what was declared comes with trials that are taken."""

    def killed(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(ForeignTrial, "write", killed)
    assert ablate("run", *STUDY_HERE, "--runs", "here", "--from", "there")[0] == 130
    assert ledger.read_declarations(tmp_path / "here") == ledger.read_declarations(there)


def test_a_trial_that_was_killed_before_its_evals_is_taken_again(
    there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (study,) = load_studies(there)
    trial = next(exported_trials(study, NAME))
    trial = replace(trial, row={**trial.row, "evals": {"knn": EvalSummary(metrics={"knn_accuracy": 0.5})}})

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as own:
        own.setattr(eval_files, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            trial.write(tmp_path / "here", "there", trial.config)
    assert trial.write(tmp_path / "here", "there", trial.config)
    here = store.trial(tmp_path / "here", trial.id)
    assert eval_files.read(here, "knn", trial.row["weights_sha256"]).metrics == {"knn_accuracy": 0.5}


def test_of_several_sources_the_first_counts(there: Path, tmp_path: Path, ablate: Ablate) -> None:
    words = ("run", *STUDY_HERE, "--runs", "here", "--from", "there.parquet", "--from", "there", "--plan-only")
    taken = f"there.parquet: 4 trials taken; trained by {processor()}\n"
    assert f"{taken}ablate: there: 0 trials taken\n" in ablate(*words)[2]


def test_a_damaged_trial_is_trained_anew(there: Path, tmp_path: Path, ablate: Ablate) -> None:
    """A damaged curve or result in another run directory is not taken, and an export names it too."""
    first, second, *_ = planned(tmp_path / "plan")
    attempt = store.trial(there, first.id).state().attempt
    (attempt / "metrics.jsonl").write_text("{}")
    (there / "trials" / second.id / "result.json").write_text("{}")
    exported(there)
    for source, damaged in (("there", 2), ("there.parquet", 2)):
        status, output, errors = ablate("run", *STUDY_HERE, "--runs", f"here-{source}", "--from", source)
        assert f"{source}: 2 trials taken, {damaged} left out, which are damaged or lack an eval" in errors
        assert (status, "2 of 6 trials were imported" in output) == (0, True)


NOT_SOURCES = {
    "nothing.parquet": "--from nothing.parquet: no such export, bundle or run directory",
    "runs.csv": "runs.csv: a .csv is for other programs",
    "s.yaml": "s.yaml: not a whole .parquet file",
    "empty": "--from empty: no run directory: it has no folder `trials`",
    "here": "--from here: is the run directory itself",
    "damaged.parquet": "damaged.parquet: ",
    "newer": "newer",
}


@pytest.mark.parametrize(("source", "message"), NOT_SOURCES.items(), ids=NOT_SOURCES)
def test_what_is_no_source_is_refused_and_nothing_is_written(
    there: Path, tmp_path: Path, ablate: Ablate, source: str, message: str
) -> None:
    for folder in ("empty", "here/trials"):
        (tmp_path / folder).mkdir(parents=True)
    content = (tmp_path / "there.parquet").read_bytes()
    third = len(content) // 3
    (tmp_path / "damaged.parquet").write_bytes(content[:third] + bytes(third) + content[2 * third :])
    there.rename(tmp_path / "newer")
    for path in tmp_path.glob("newer/trials/*/result.json"):
        path.write_text(path.read_text().replace(f'"schema": {store.SCHEMA}', f'"schema": {store.SCHEMA + 1}'))
    assert message in refusal(ablate, "run", *STUDY_HERE, "--runs", "here", "--from", source)
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["trials"]
    assert not list((tmp_path / "here/trials").iterdir())


def test_a_dry_submission_takes_nothing(ablate: Ablate) -> None:
    assert "--dry-run and --from: a dry run takes nothing" in refusal(ablate, "submit", "s", "--from", "x", "--dry-run")


def test_settings_that_are_not_those_of_the_id_are_refused(there: Path, tmp_path: Path, ablate: Ablate) -> None:
    (study,) = load_studies(there)
    study.columns["config"][0] = study.columns["config"][1]
    export.write([study], tmp_path / "other.parquet")
    message = refusal(ablate, "run", *STUDY_HERE, "--runs", "here", "--from", "other.parquet")
    assert "other.parquet: trial " in message
    assert "here: other code, plug-ins or data" in message
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize("source", ["there/runs", "runs.parquet"])
def test_a_script_may_lie_in_another_folder_on_each_machine(tmp_path: Path, ablate: Ablate, source: str) -> None:
    """Trials of a user's code are known by its content; the folder of the other machine may be gone."""
    runs, todo = commands.planned(tmp_path / "there")
    trained(runs, todo[:2])
    export.write(load_studies(runs), tmp_path / "runs.parquet")
    commands.planned(tmp_path / "here")
    (tmp_path / "there" / "train.py").unlink()
    words = ("here/s.yaml", "--recipe", "here/r.yaml", "--runs", "here/runs", "--from", source)
    status, output, errors = ablate("run", *words)
    assert (status, "2 of 6 trials were imported" in output) == (0, True), errors


def test_the_folder_of_the_code_may_hold_a_new_run_directory(tmp_path: Path, ablate: Ablate) -> None:
    """What is written there is no code, before a plan is saved there too."""
    recipe = f"{commands.RECIPE}    code: [.]\n"
    runs, todo = commands.planned(tmp_path / "here", recipe=recipe, study=commands.ONE_ARM)
    trained(runs, todo[:1])
    exported(runs).rename(tmp_path / "runs.parquet")
    words = ("run", "here/s.yaml", "--recipe", "here/r.yaml", "--runs", "here/new", "--from", "runs.parquet")
    for taken in ("1 trial taken", "0 trials taken"):
        status, _, errors = ablate(*words)
        assert (status, taken in errors) == (0, True), errors
    assert {path.name for path in (tmp_path / "here/new/trials").iterdir()} == {job.id for job in todo}
