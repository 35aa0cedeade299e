"""Commands on a study that was run: no torch to read it, JSON with its keys, and what comes next."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from another_process import called_without
from designs import STUDY_HERE
from in_process import Ablate, json_output, refusal

from ablations.cli.app import EXTRAS
from ablations.cli.inputs.preparation import warn_of_queued_trials
from ablations.study.naming import PlanIdentity
from results.store import read_plan, write_plan

READING = [
    "table s --recipe r.yaml --runs all.parquet --format latex",
    "plot --runs all.parquet --out figures --format svg --x epoch",
    "report --runs all.parquet --out report.html",
    "compare all.parquet all.parquet s.yaml",
    "compare all.parquet published",
    "export --runs all.parquet --out again.parquet",
    "table s --recipe r.yaml",
    "list",
]


def test_reading_needs_no_extra(finished: Path, tmp_path: Path) -> None:
    for command, (status, output, errors) in called_without(EXTRAS, tmp_path, finished, READING).items():
        assert (status, bool(output.strip())) == (0, True), (command, errors)


def test_commands_that_print_paths_and_logs_print_json_too(copied: Ablate) -> None:
    for words, key in ((["report"], "report"), (["export", "--out", "r.csv"], "export")):
        path = copied(*words)[1].strip()
        assert json_output(copied, *words) == {key: path, "studies": ["s@r"]}
        assert Path(path).stat().st_size
    logs = json_output(copied, "logs", "s", "--lines", "2")["logs"]
    arms = ("position=none", "position=1d")
    assert {(log["arm"], log["seed"]) for log in logs} == {(arm, seed) for arm in arms for seed in range(3)}
    assert all(len(log["lines"]) <= 2 and log["status"] == "finished" for log in logs)
    assert json_output(copied, "logs", "s", "--failed") == {"logs": []}
    words = ("clean", "--keep-weights", "none")
    clean = json_output(copied, *words)
    assert clean["bytes"] == sum(Path(one["path"]).stat().st_size for one in clean["files"]) > 0
    assert clean["removed"] is False
    assert json_output(copied, *words, "--yes") == {**clean, "removed": True}
    assert not any(Path(one["path"]).exists() for one in clean["files"])


def test_a_trial_of_the_export_comes_out_with_the_same_weights(there: Ablate) -> None:
    found = json_output(there, "verify", "all.parquet", "--sample", "1")
    assert [one["outcome"] for one in found["trials"]] == ["identical"]


def test_plan_has_the_keys_that_others_rely_on(there: Ablate) -> None:
    words = ("plan", *STUDY_HERE, "--seeds", "4")
    plan = json_output(there, *words)
    assert plan["trials"] == {"planned": 8, "finished": 6, "shared": 0, "todo": 2}
    assert " ".join(sorted(plan)) == (
        "confounds declared_first disk disk_bytes hours hours_from plugins race recipe resolution "
        "resolvable_difference study taken trials wall"
    )
    assert plan["disk_bytes"] == sum(plan["disk"].values())
    assert plan["disk"].keys() == {"weights", "checkpoints", "files"}
    assert min(plan["hours"], plan["resolvable_difference"]) > 0
    for workers, turns in ((1, 2), (2, 1)):
        took = json_output(there, *words, "--jobs", str(workers))["wall"]
        assert took == {"seconds": pytest.approx(3600 * plan["hours"] / 2 * turns), "devices": workers}
    assert "(under a minute on 2 cores here), from past" in there(*words, "--jobs", "2")[1]


def test_an_edited_result_is_missing_until_it_is_trained_again_and_a_newer_one_is_refused(copied: Ablate) -> None:
    path, table, run = next(Path("runs/trials").glob("*/result.json")), ("table", *STUDY_HERE), ("run", *STUDY_HERE)
    text = path.read_text()
    path.write_text(json.dumps(json.loads(text) | {"steps": 7}))
    assert "its checksum differs" in copied(*table)[1]
    assert copied(*table, "--strict")[0] == 1
    assert copied(*run)[0] == 0
    assert json.loads(path.read_text())["weights_sha256"] == json.loads(text)["weights_sha256"]
    assert copied(*table, "--strict")[0] == 0
    path.write_text(text.replace('"schema": 1', '"schema": 9'))
    for words in (table, run):
        assert "schema 9 is newer than this version reads (1): upgrade" in refusal(copied, *words)


@pytest.mark.parametrize(
    "command", ["table s", "table s.yaml", "status s", "logs s", "plot s --out OUT.png", "export s --out OUT.csv"]
)
def test_the_only_recipe_of_a_study_is_inferred(there: Ablate, command: str, tmp_path: Path) -> None:
    assert there(*command.replace("OUT", str(tmp_path / "out")).split())[0] == 0


def test_several_recipes_of_a_study_are_named(copied: Ablate) -> None:
    assert copied("run", *STUDY_HERE, "steps=2", "--seeds", "1", "--plan-only")[0] == 0
    (offered,) = re.findall(r"(s@r,\S+) \(steps=2\)", refusal(copied, "table", "s"))
    assert copied("table", offered)[0] == copied("table", "s", "steps=2")[0] == 0


def test_the_name_of_a_plan_stands_for_its_settings_and_seeds(copied: Ablate) -> None:
    """The recipe's seeds are not trained, and a "/" in a setting is the "-" of the folder's name."""
    assert copied("run", *STUDY_HERE, "model=Ti/4", "steps=1", "--seeds", "1", "--plan-only")[0] == 0
    name = "s@r,model=Ti/4,steps=1"
    assert json_output(copied, "plan", name)["trials"]["planned"] == 2
    assert copied("table", name)[0] == copied("status", name)[0] == 0


def test_a_margin_may_be_declared_on_the_command_line(copied: Ablate) -> None:
    assert copied("run", *STUDY_HERE, "margin=0.25", "--plan-only")[0] == 0
    assert [path.name for path in Path("runs/studies").iterdir()] == ["s@r"]
    assert json_output(copied, "table", "s")["margin"] == 0.25
    assert copied("report")[0] == 0
    assert "margin=0.25" in Path("runs/report.html").read_text()
    for words in (["run", "s.yaml", "margin=-1"], ["table", "s", "margin=0.1"], ["train", "margin=0.1"]):
        assert "margin=" in refusal(copied, *words)
    assert "--margin 3: below 1" in refusal(copied, "compare", "runs", "runs", "--fail-on", "worse", "--margin", "3")


def test_a_plan_of_some_arms_counts_those(there: Ablate) -> None:
    words = ("plan", *STUDY_HERE, "--seeds", "5", "--arm", "position=none")
    view = json_output(there, *words)
    assert view["trials"] == {"planned": 5, "finished": 3, "shared": 0, "todo": 2}
    assert list(view["confounds"]) == ["position=none"]
    assert "1 arm x 5 seeds = 5 trials" in there(*words)[1]
    both = json_output(there, *words, "--arm", "position=1*")["trials"]
    assert (both["planned"], both["todo"]) == (10, 4), "given again: the union"


def test_a_table_and_logs_of_some_arms_keep_the_baseline_and_the_correction(copied: Ablate) -> None:
    whole = json_output(copied, "table", "s@r")
    for glob, kept in (("position=n*", whole["rows"]), ("position=1d", whole["rows"][1:])):
        assert json_output(copied, "table", "s@r", "--arm", glob) == whole | {"rows": kept}
        arms = {log["arm"] for log in json_output(copied, "logs", "s@r", "--arm", glob)["logs"]}
        assert arms == {kept[0]["arm"]}
    assert "--arm x: s@r has the arms" in refusal(copied, "table", "s@r", "--arm", "x")


def test_a_forgotten_recipe_is_named(there: Ablate) -> None:
    for words, expected in ((["plan", "s.yaml"], 0), (["run", "s.yaml", "steps=30", "--max-hours", "0"], 2)):
        status, _, errors = there(*words)
        assert status == expected
        assert errors.startswith("recipe digits; ")
        assert " has s with --recipe r" in errors.splitlines()[0]


@pytest.mark.parametrize("name", ["s@r", "s@r+abc123"])
def test_settings_of_how_trials_run_continue_the_study(copied: Ablate, name: str) -> None:
    """So do they in a run directory of 0.21 or before, where they are in the hash of the name.

    The plan records them only if a trial may still run.
    """
    path, table = Path("runs/studies") / name / "plan.json", copied("table", "s")[1].replace("s@r", name)
    plan = read_plan(Path("runs/studies/s@r/plan.json"))
    shutil.rmtree("runs/studies")
    write_plan(path, plan.model_copy(update={"name": name, "overrides": {"compile": False}}))
    for words in (["s", "device=cuda"], ["s.yaml", "device=cuda"], [*STUDY_HERE, "device=cuda"], ["s"]):
        assert copied("table", *words) == (0, table, ""), words
    assert copied("run", *STUDY_HERE, "threads=2")[::2] == (0, "")
    assert json.loads(path.read_text())["overrides"] == {"compile": False}
    assert copied("table", "s", "threads=1")[1] == table
    shutil.rmtree(Path("runs/trials") / plan.arms[0].trials[0].id)
    assert copied("run", *STUDY_HERE, "threads=2", "--arm", plan.arms[1].name)[0] == 0
    assert os.listdir("runs/studies") == [name]
    assert json.loads(path.read_text())["overrides"] == {"threads": 2}
    for word in ("s", "s.yaml"):
        why = f"was not run in runs (there: {name} (threads=2))"
        assert refusal(copied, "table", word, "lr=3") == f"ablate: s with lr=3: {why}: `ablate run {word} lr=3` first\n"


def test_a_study_with_settings_is_named_by_them(copied: Ablate) -> None:
    """The keys are sorted, and "/" becomes "-". A plan that an earlier version named by a hash keeps its name."""
    settings = ["steps=2", "batch=8", "threads=1"]
    name, plans = "s@r,batch=8,steps=2", Path("runs/studies")
    assert f"next    ablate table {name}" in copied("run", *STUDY_HERE, *settings, "--seeds", "1")[1]
    for words in ([name], ["s", *settings, "--recipe", "r"], ["s.yaml", *settings[:2]]):
        assert "| position=none" in copied("table", *words)[1], words
    plan = read_plan(plans / name / "plan.json")
    shutil.rmtree(plans / name)
    write_plan(plans / "s@r+abc123" / "plan.json", plan.model_copy(update={"name": "s@r+abc123"}))
    assert "next    ablate table s@r+abc123" in copied("run", *STUDY_HERE, *settings, "--seeds", "1")[1]
    for command in ("table", "status", "plot", "report", "export", "clean"):
        words = [] if command == "clean" else ["s", *settings]
        assert copied(command, *words)[0] == 0, command
    assert PlanIdentity("s", "r", {"model": "Ti/16"}).name == "s@r,model=Ti-16"


def test_a_deleted_factor_whose_value_stays_in_the_baseline_is_named(copied: Ablate, tmp_path: Path) -> None:
    study = "{question: q, baseline: {position: 1d, pool: gap}, factors: {position: [none], pool: [map]}}"
    (tmp_path / "two.yaml").write_text(study)
    words = ("two.yaml", "--recipe", "r.yaml", "steps=2", "--seeds", "1")
    assert copied("run", *words, "--plan-only")[0] == 0
    (tmp_path / "two.yaml").write_text(study.replace(", pool: [map]", ""))
    assert "was planned with other factors (pool), which name its baseline" in refusal(copied, "plan", *words)


def test_a_plan_may_be_given_a_name(copied: Ablate) -> None:
    assert "next    ablate table mine" in copied("run", *STUDY_HERE, "--name", "mine", "steps=2", "--seeds", "1")[1]
    assert sorted(os.listdir("runs/studies")) == ["mine", "s@r"]
    for words in (["table", "mine"], ["table", "s", "steps=2"], ["run", "mine"], ["plan", "mine", "--seeds", "2"]):
        assert "mine" in copied(*words)[1] or words[0] == "table", words
    assert "mine: is the name of a plan of s@r,steps=2" in refusal(copied, "run", *STUDY_HERE, "--name", "mine")
    spelling = "must start with a letter or digit"
    for name, why in (("a/b", spelling), ("pooling", "is the name of a study"), ("a@b", spelling)):
        assert f"--name {name}: {why}" in refusal(copied, "plan", *STUDY_HERE, "--name", name)
    assert "--name x: is one study's" in refusal(copied, "plan", "s.yaml", "demo", "--name", "x")


def test_a_plan_says_how_it_changes_queued_trials(copied: Ablate, capsys: pytest.CaptureFixture[str]) -> None:
    """A trial may be queued if it is not over and the run directory has submissions."""
    plan, runs = read_plan(Path("runs/studies/s@r/plan.json")), Path("runs")
    changed = plan.model_copy(update={"overrides": {"threads": 1, "options": {}}})
    warn_of_queued_trials(plan, changed, runs)
    (runs / "submissions").mkdir()
    warn_of_queued_trials(plan, changed, runs)
    next(runs.glob("trials/*/result.json")).unlink()
    assert capsys.readouterr().err == ""
    warn_of_queued_trials(plan, changed, runs)
    assert capsys.readouterr().err.startswith("s@r: trials queued on SLURM will also be trained with threads=1")


def test_of_two_older_plans_settings_choose_the_one_to_continue(copied: Ablate) -> None:
    plan, plans = read_plan(Path("runs/studies/s@r/plan.json")), Path("runs/studies")
    shutil.rmtree(plans)
    for name, overrides in (("s@r+aaaaaa", {"device": "cpu"}), ("s@r+bbbbbb", {"threads": 2})):
        write_plan(plans / name / "plan.json", plan.model_copy(update={"name": name, "overrides": overrides}))
    for words in (["table", "s"], ["run", *STUDY_HERE]):
        assert "s@r+aaaaaa" in copied(*words, "device=cpu")[1]
        assert "runs: name one or its settings: s@r+aaaaaa (device=cpu), " in refusal(copied, *words)


def test_a_run_ends_with_the_commands_that_come_next(there: Ablate) -> None:
    status, output, errors = there("run", *STUDY_HERE)
    assert (status, "recipe digits" in errors) == (0, False)
    *_, table, others = output.splitlines()
    assert table == "next    ablate table s@r"
    assert others.split("; ") == ["        ablate plot s@r", "ablate report s@r"]
    plan = json.loads(Path("runs/studies/s@r/plan.json").read_text())
    trial = Path("runs/trials") / plan["arms"][0]["trials"][0]["id"]
    trial.rename("gone")
    output = there("run", *STUDY_HERE, "--arm", "position=1d")[1]
    assert "next    ablate table s@r --interim   verdicts so far: 1 of 6" in output
    assert "5 of 6 planned trials" in there("table", "s@r", "--interim")[1]
    Path("gone").rename(trial)


def test_a_study_is_shown_with_its_last_answer(there: Ablate) -> None:
    output = there("show", *STUDY_HERE)[1]
    for text in ("matter?", "none, 1d", "position=none: 60.00%", "position=none < position=1d", "s@r: On "):
        assert text in output
    assert "results   none in " in there("show", "model-shape")[1]
    shown = json_output(there, "show", *STUDY_HERE)
    assert (shown["recipe"], list(shown["answers"])) == ("r", ["s@r"])
