"""`ablate verify` trains trials of others anew, and says how they come out."""

import json
import shutil
from pathlib import Path
from statistics import fmean
from typing import Any

import closed_form
import commands
import pytest
from closed_form import RECIPE, STUDY
from designs import STUDY_HERE, write
from in_process import Ablate, json_output, refusal
from run_trials import called_serially, serve_all

from ablations.cli import run as verifying
from ablations.execution import runner
from ablations.execution.pool import RunSummary
from ablations.jobs import Job
from ablations.planning.verification import ReportedTrial, reported_trials, sampled
from results import export, store
from results.load import load_studies
from results.study_results import StudyResults

CODE = STUDY_HERE[1:]  # the recipe, by which the code of others is run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run directory of 6 trials, whose weights and losses have a closed form, and its export."""
    folder = tmp_path_factory.mktemp("trained")
    write(folder, "s", STUDY)
    write(folder, "r", RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words in (("run", *STUDY_HERE, "--runs", "there"), ("export", "--runs", "there", "--out", "there.parquet")):
            assert called_serially(patch, *words)[0] == 0
    return folder


@pytest.fixture
def there(trained: Path, tmp_path: Path, ablate: Ablate) -> Path:
    """A copy of the run directory and of what lies beside it."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return tmp_path / "there"


def reported(runs: Path) -> dict[str, ReportedTrial]:
    source = runs.with_suffix(".parquet")
    return reported_trials(source, load_studies(source))


def changed(runs: Path, column: str, value: float | str) -> StudyResults:
    """Export a study as `changed.parquet` with one value of its first trial changed. A number is a factor."""
    (study,) = load_studies(runs)
    before = study.columns[column][0]
    study.columns[column][0] = value * before if isinstance(value, float) else value
    export.write([study], runs.with_name("changed.parquet"))
    return study


def test_trials_that_come_out_equal_are_so_reported(there: Path, tmp_path: Path, ablate: Ablate) -> None:
    found = json_output(ablate, "verify", "there.parquet", *CODE, "--sample", "4", "--runs", "anew")
    assert (found["candidates"], [one["outcome"] for one in found["trials"]]) == (6, ["identical"] * 4)
    assert {one["id"] for one in found["trials"]} == {path.name for path in (tmp_path / "anew/trials").iterdir()}
    status, output, _ = ablate("verify", "there.parquet", *CODE)
    assert (status, output.count("identical: weights and metrics")) == (0, 3)
    assert output.startswith("there.parquet: 3 of 6 trials trained anew (--seed 0)\n")
    assert output.endswith("3 equal, 0 not\n")


@pytest.mark.parametrize(
    ("column", "value", "outcome"),
    [("loss", 1.01, "differs"), ("loss", 1 + 1e-9, "rounded"), ("weights_sha256", "0" * 64, "equal")],
)
def test_a_difference_stands_beside_the_sd_over_seeds(
    there: Path, ablate: Ablate, column: str, value: float | str, outcome: str
) -> None:
    study = changed(there, column, value)
    status, output, _ = ablate("verify", "changed.parquet", *CODE, "--sample", "6", "--json")
    assert (status, f'"outcome": "{outcome}"' in output) == (int(outcome == "differs"), True)
    assert output.count('"outcome": "identical"') == 5
    if outcome == "differs":
        output = ablate("verify", "changed.parquet", *CODE, "--sample", "6")[1]
        deviation = study.trials[study.trials["arm"] == "rate=0.5"]["loss"].std()
        assert "rate=0.5 seed 0" in output
        shift = 0.125 * 0.01 / deviation  # the loss of rate 0.5 at seed 0 is 0.5 ** 3
        assert f"0.12625 there, 0.125 here: -0.0013, {shift:.2g} times the sd over seeds ({deviation:.2g})" in output
        assert output.endswith("5 equal, 1 not\n")


def test_an_infinite_number_counts_as_none(there: Path, ablate: Ablate) -> None:
    changed(there, "loss", float("inf"))
    status, output, _ = ablate("verify", "changed.parquet", *CODE, "--sample", "6")
    assert (status, output.count("loss only here"), output.count("DIFFERS")) == (1, 1, 1)


def test_the_seed_chooses_the_trials(there: Path) -> None:
    found = reported(there)
    chosen = {seed: [claim.job.id for claim in sampled(found, 2, seed)] for seed in range(9)}
    assert len({*map(tuple, chosen.values())}) > 1
    assert [claim.job.id for claim in sampled(found, 2, 3)] == chosen[3]
    assert {claim.job.id for claim in sampled(found, 99, 0)} == {*found}


def test_of_a_run_directory_imported_trials_are_chosen(there: Path, ablate: Ablate) -> None:
    assert "there: no imported trial to train anew" in refusal(ablate, "verify", "there")
    trials = sorted((there / "trials").iterdir())
    for path in trials[:2]:
        shutil.rmtree(path)
    assert ablate("run", *STUDY_HERE, "--runs", "here", "--from", "there")[0] == 0
    found = json_output(ablate, "verify", "here", "--sample", "6")
    assert {one["id"] for one in found["trials"]} == {path.name for path in trials[2:]}
    message = refusal(ablate, "verify", "here", "--runs", "here")
    assert "/here: has trial " in message
    assert "already: give another folder" in message


def test_a_trial_that_was_trained_there_does_not_count_as_trained_anew(there: Path, ablate: Ablate) -> None:
    """A trial that would only be resumed does not count either."""
    message = refusal(ablate, "verify", "there.parquet", *CODE, "--runs", "there")
    assert message.startswith(f"ablate: --runs {there}: has trial ")
    for path in there.glob("trials/*/result.json"):
        path.unlink()
    assert "already: give another folder" in refusal(ablate, "verify", "there.parquet", *CODE, "--runs", "there")


def test_the_folder_of_the_code_may_hold_the_run_directory(tmp_path: Path, ablate: Ablate) -> None:
    commands.planned(tmp_path / "code", recipe=f"{commands.RECIPE}    code: [.]\n", study=commands.ONE_ARM)
    assert ablate("run", "code/s.yaml", "--recipe", "code/r.yaml", "--runs", "code/runs")[0] == 0
    assert ablate("export", "--runs", "code/runs", "--out", "all.parquet")[0] == 0
    status, output, errors = ablate(
        "verify", "all.parquet", "--recipe", "code/r.yaml", "--sample", "1", "--runs", "code/anew"
    )
    assert (status, "1 equal, 0 not" in output) == (0, True), errors


def test_other_machines_are_named(there: Path, ablate: Ablate) -> None:
    changed(there, "torch", "1.0")
    (study,) = load_studies(there)
    study.columns["device"] = ["A core"] * 6
    study.columns["loss"][0] *= 2
    export.write([study], there.with_name("changed.parquet"))
    output = ablate("verify", "changed.parquet", *CODE, "--sample", "6")[1]
    assert "  device: A core there, " in output
    assert "judge it by the sd over seeds" in output


@pytest.mark.parametrize(
    ("device", "factor", "outcome"),
    [("Another core", 1.002, "within"), ("Another core", 1.5, "differs"), ("", 1.002, "differs")],
)
def test_another_machine_may_differ_by_the_rounding_that_is_measured(
    there: Path, ablate: Ablate, monkeypatch: pytest.MonkeyPatch, device: str, factor: float, outcome: str
) -> None:
    """Rounding is the mean square of what computing the same trials otherwise changes; equal machines have none."""
    exact = closed_form.loss
    monkeypatch.setattr(runner, "drive", serve_all)
    monkeypatch.setattr(closed_form, "loss", lambda given, step: exact(given, step) * (1 + given["pause"]))
    monkeypatch.setattr(closed_form.ClosedForm, "rounded_otherwise", lambda self, given: {**given, "pause": 0.001})
    (study,) = load_studies(there)
    study.columns["loss"][0] *= factor
    study.columns["device"] = [device or name for name in study.columns["device"]]
    export.write([study], there.with_name("changed.parquet"))
    status, output, _ = ablate("verify", "changed.parquet", *CODE, "--sample", "6", "--json")
    (trial,) = [one for one in json.loads(output)["trials"] if one["id"] == study.columns["id"][0]]
    assert (status, trial["outcome"]) == (int(outcome == "differs"), outcome)
    if device:
        squares = []
        for rate, seed in zip([0.5] * 3 + [0.25] * 3, [0, 1, 2] * 2, strict=True):
            squares.append((0.001 * ((1 - rate) ** 3 + rate * seed / 1000)) ** 2)
        assert trial["metrics"]["loss"]["rounding"] == pytest.approx(3 * fmean(squares) ** 0.5)


def test_what_is_interrupted_while_rounding_is_measured_is_not_called_different(
    there: Path, ablate: Ablate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed_form.ClosedForm, "rounded_otherwise", lambda self, given: {**given, "pause": 0.001})
    train = verifying.train_here

    def interrupted(todo: list[Job], *rest: Any) -> RunSummary:
        return RunSummary(stopped=True) if todo[0].config["pause"] else train(todo, *rest)

    monkeypatch.setattr(verifying, "train_here", interrupted)
    (study,) = load_studies(there)
    study.columns["loss"] = [1.001 * loss for loss in study.columns["loss"]]
    study.columns["device"] = ["another"] * 6
    export.write([study], there.with_name("changed.parquet"))
    status, output, errors = ablate("verify", "changed.parquet", *CODE)
    assert (status, output, errors.splitlines()[-1]) == (130, "", "interrupted: no trial is compared")


FAILS = "import os\nassert 'FAIL' not in os.environ, 'no license'\n" + commands.SCRIPT


def test_code_in_another_folder_is_named_by_the_recipe(
    tmp_path: Path, ablate: Ablate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the files of the code there is one line; a trial that fails is named with its cause."""
    for folder in ("there", "here"):
        commands.planned(tmp_path / folder, FAILS, study=commands.ONE_ARM)
    assert ablate("run", "there/s.yaml", "--recipe", "there/r.yaml", "--runs", "there/runs")[0] == 0
    assert ablate("export", "--runs", "there/runs", "--out", "all.parquet")[0] == 0
    command = ("verify", "all.parquet", "--sample", "1")
    assert "trains code of its authors: read it, then name its recipe by --recipe FILE" in refusal(ablate, *command)
    assert "metrics equal (no weights are known)" in ablate(*command, "--recipe", "there/r.yaml")[1]
    shutil.rmtree(tmp_path / "there")
    status, output, errors = ablate("verify", "all.parquet", "--recipe", "here/r.yaml", "--sample", "2")
    assert (status, "2 equal, 0 not" in output) == (0, True), errors
    monkeypatch.setenv("FAIL", "1")
    status, output, _ = ablate("verify", "all.parquet", "--recipe", "here/r.yaml", "--sample", "1")
    assert (status, ": FAILED (" in output, "0 equal, 1 not" in output) == (1, True, True)
    (tmp_path / "here" / "train.py").write_text("other")
    message = refusal(ablate, "verify", "all.parquet", "--recipe", "here/r.yaml")
    assert "here: other code, plug-ins or data" in message


def test_a_table_of_runs_cannot_be_verified_or_merged(tmp_path: Path, ablate: Ablate) -> None:
    rows = [f"{model},{seed},0.{seed}{model}" for model in (1, 2) for seed in range(3)]
    (tmp_path / "runs.csv").write_text("\n".join(["model,seed,acc", *rows]))
    assert ablate("import", "runs.csv", "--arm", "model", "--metric", "acc", "--baseline", "1")[0] == 0
    for command in ("verify", "import"):
        assert "runs@imported was a table of runs, which says nothing of code" in refusal(
            ablate, command, "runs.parquet"
        )
    assert "runs.csv: a .csv is for other programs" in refusal(ablate, "verify", "runs.csv")
    assert "nowhere" in refusal(ablate, "verify", "nowhere")


def test_an_unfinished_trial_is_no_candidate(there: Path) -> None:
    (study,) = load_studies(there)
    study.columns["status"][:2] = ["failed", "missing"]
    export.write([study], there.with_suffix(".parquet"))
    assert len(reported(there)) == 4
    assert store.trial(there, study.columns["id"][0]).id not in reported(there)
