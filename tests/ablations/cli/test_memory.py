"""What was looked at and declared is remembered by the trials: no other name, file or option forgets it."""

import contextlib
import csv
import io
import itertools
import shutil
from collections.abc import Collection
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import scipy.stats
import synthetic
from in_process import Ablate, json_output

from ablations.planning.prepare import prepare
from ablations.planning.saved_plans import save_plan
from ablations.study.design import Design
from ablations.study.reading import read_recipe, read_study
from results import store
from results.store.schemas.plans import Plan

RECIPE = """
description: A test.
config: {data: digits, width: 16, depth: 1, heads: 2, patch: 4, pool: gap, steps: 4, lr: 2e-3}
seeds: 5
"""
STUDY = """
question: Which?
baseline: {position: 1d}
factors: {position: [none, 1d, 2d, relative]}
margin: 0.01
"""
# Differences from position=1d in test accuracy, by seed. The first five of position=2d give p = 0.04, and all eight
# less. position=relative is within 0.02 of the baseline, but not within 0.01.
DIFFERENCES = {
    "none": [0.002, -0.012, 0.014, -0.011, 0.009, 0.013, -0.012, 0.004],
    "1d": [0.0] * 8,
    "2d": [0.012, 0.003, 0.016, 0.001, 0.014, 0.009, 0.011, 0.010],
    "relative": [0.006, -0.008, 0.009, -0.003, 0.004, -0.006, 0.007, 0.001],
}
SHARED = [0.70, 0.74, 0.72, 0.69, 0.73, 0.71, 0.75, 0.70]
RUN = ("--recipe", "r.yaml")
PLAN = (*RUN, "--plan-only")  # declares what a run does, and draws no figure


def write_yaml(name: str, text: str) -> None:
    Path(f"{name}.yaml").write_text(dedent(text))


def declare(text: str = STUDY, seeds: int = 5, name: str = "s") -> Plan:
    """Plan a study as `ablate run` does before it trains."""
    write_yaml(name, text)
    runs = Path("runs")
    plan = prepare(Design(read_study(f"{name}.yaml"), read_recipe("r.yaml"), {}), runs, seeds)
    save_plan(runs, plan)
    return plan


def finish(plan: Plan, diverged: Collection[tuple[str, int]] = ()) -> None:
    """Leave the results of all trials that have none. diverged: arms and seeds of trials that diverge."""
    for arm in plan.arms:
        for one in arm.trials:
            trial, change = store.trial(Path("runs"), one.id), DIFFERENCES[arm.config["position"]][one.seed]
            if trial.state().is_over:
                continue
            trial.create({"config": arm.config | {"seed": one.seed}})
            with synthetic.claimed(trial) as attempt:
                attempt.write_env({"schema": 1, "device": "A core", "threads": 1})
                accuracy = SHARED[one.seed] + change
                if (arm.name, one.seed) in diverged:
                    attempt.publish({"status": "diverged", "metrics": {}, "diverged_at_step": 3})
                else:
                    metrics = {"test_accuracy": accuracy, "val_accuracy": accuracy - 2 * change}
                    attempt.publish({"status": "finished", "metrics": metrics})


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of three contrasts with five seeds, all finished."""
    folder = tmp_path_factory.mktemp("template")
    with contextlib.chdir(folder):
        write_yaml("r", RECIPE)
        finish(declare())
    return folder


@pytest.fixture
def looked_at(template: Path, tmp_path: Path, ablate: Ablate) -> Ablate:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return ablate


def row(ablate: Ablate, study: str, arm: str) -> dict[str, Any]:
    found: dict[str, Any] = next(row for row in json_output(ablate, "table", study, *RUN)["rows"] if row["arm"] == arm)
    return found


def paired_p(arm: str, seeds: int) -> float:
    return float(scipy.stats.ttest_1samp(DIFFERENCES[arm][:seeds], 0).pvalue)


def copied_file(ablate: Ablate) -> str:
    shutil.copy("s.yaml", "copy.yaml")
    return "copy.yaml"


def renamed_study(ablate: Ablate) -> str:
    Path("s.yaml").rename("renamed.yaml")
    shutil.rmtree("runs/studies/s@r")
    return "renamed.yaml"


def removed_folder(ablate: Ablate) -> str:
    shutil.rmtree("runs/studies")
    return "s.yaml"


def needless_setting(ablate: Ablate) -> str:
    """Another name for the same trials, as by `--name`."""
    write_yaml("r", RECIPE.replace("lr: 2e-3", "lr: 1e-3"))
    return "s.yaml lr=2e-3"


def raised(ablate: Ablate) -> str:
    return "s.yaml"


@pytest.mark.parametrize("act", [raised, copied_file, renamed_study, removed_folder, needless_setting])
def test_no_other_name_or_file_forgets_a_look(looked_at: Ablate, act: Any) -> None:
    """p of eight seeds is multiplied by 6, and that of the first five counts as it is."""
    finish(declare(seeds=8, name="eight"))
    words = act(looked_at).split()
    status, _, errors = looked_at("run", *words, *PLAN, "--seeds", "8")
    assert status == 0, errors
    found = json_output(looked_at, "table", *words, *RUN)
    two = next(one for one in found["rows"] if one["arm"] == "position=2d")
    assert two["n"] == 8
    assert two["p"] == pytest.approx(min(paired_p("2d", 5), 6 * paired_p("2d", 8)))
    (note,) = [note for note in found["notes"] if "p is corrected for" in note]
    assert "2 tables that were or could have been made: the smallest of 1 x p with 5 seeds, 6 x p with 8 seeds" in note


def pruned(ablate: Ablate) -> tuple[str, ...]:
    write_yaml("s", STUDY.replace("[none, 1d, 2d, relative]", "[1d, 2d]"))
    return "s.yaml", "--prune"


def copied_arm(ablate: Ablate) -> tuple[str, ...]:
    write_yaml("one", STUDY.replace("[none, 1d, 2d, relative]", "[1d, 2d]"))
    return ("one.yaml",)


@pytest.mark.parametrize("act", [pruned, copied_arm])
def test_a_family_that_shrank_after_a_table_gives_the_verdict_of_the_whole(looked_at: Ablate, act: Any) -> None:
    before = row(looked_at, "s.yaml", "position=2d")
    assert (before["verdict"], before["first_declared"]) == ("not-resolved", None)
    words = act(looked_at)
    assert looked_at("run", *words, *PLAN)[0] == 0
    after = row(looked_at, words[0], "position=2d")
    assert (after["verdict"], after["first_declared"]) == ("better", "not-resolved")
    (warning,) = json_output(looked_at, "table", words[0], *RUN)["warnings"]
    assert (
        "changed after there were results: family from 3 contrasts to 1 contrast (first declared by s@r on 2" in warning
    )
    assert warning.endswith("UTC). As first declared: position=2d not resolved")


def edited_margin(ablate: Ablate) -> tuple[str, ...]:
    write_yaml("s", STUDY.replace("0.01", "0.02"))
    return ("s.yaml",)


def copied_margin(ablate: Ablate) -> tuple[str, ...]:
    write_yaml("wide", STUDY.replace("0.01", "0.02"))
    return ("wide.yaml",)


def margin_on_the_command_line(ablate: Ablate) -> tuple[str, ...]:
    return "s.yaml", "margin=0.02"


MARGINS = [edited_margin, copied_margin, margin_on_the_command_line]


@pytest.mark.parametrize("act", MARGINS)
def test_a_margin_declared_after_a_table_gives_the_verdict_under_the_first(looked_at: Ablate, act: Any) -> None:
    words = act(looked_at)
    assert looked_at("run", *words, *PLAN)[0] == 0
    study = words[0]
    found = row(looked_at, study, "position=relative")
    assert (found["verdict"], found["first_declared"]) == ("equivalent", "not-resolved")
    (warning,) = json_output(looked_at, "table", study, *RUN)["warnings"]
    changed = "changed after there were results: margin from 1.00 points to 2.00 points (first declared by s@r on 2"
    assert changed in warning
    assert "As first declared: " in warning
    assert "position=relative not resolved" in warning


def test_no_option_hides_what_was_declared_first(looked_at: Ablate) -> None:
    assert looked_at("run", *edited_margin(looked_at), *PLAN)[0] == 0
    for form, notes in itertools.product(("md", "latex", "html", "csv"), ("all", "short", "none")):
        text = looked_at("table", "s.yaml", *RUN, "--format", form, "--notes", notes)[1]
        if form == "csv":
            verdicts = {line["arm"]: line["verdict"] for line in csv.DictReader(io.StringIO(text))}
            assert verdicts["position=relative"] == "equivalent (first declared: not-resolved)"
        else:
            assert "equivalent (first declared: not resolved)" in text
            assert "changed after there were results: margin from 1.00 points to 2.00 points" in text


def test_report_and_figure_say_it_too(looked_at: Ablate) -> None:
    assert looked_at("run", *edited_margin(looked_at), *RUN)[0] == 0
    assert looked_at("report")[0] == 0
    text = Path("runs/report.html").read_text()
    assert "Changed after there were results: margin from 1.00 points to 2.00 points" in text
    assert "<!-- As first declared: " in text
    assert "of them otherwise as first declared" in text.partition("<section")[0], "in the contents too"


def test_another_metric_under_another_name_gives_the_verdict_under_the_first(looked_at: Ablate) -> None:
    """In val_accuracy, all differences have the other sign."""
    write_yaml("val", STUDY.replace("[none, 1d, 2d, relative]", "[1d, 2d]") + "metric: val_accuracy\n")
    assert looked_at("run", "val.yaml", *PLAN)[0] == 0
    found = row(looked_at, "val.yaml", "position=2d")
    assert (found["verdict"], found["first_declared"]) == ("worse", "not-resolved")
    (warning,) = json_output(looked_at, "table", "val.yaml", *RUN)["warnings"]
    assert "metric from test_accuracy to val_accuracy, family from 3 contrasts to 1 contrast" in warning


def test_another_baseline_gives_the_verdict_under_the_first(looked_at: Ablate) -> None:
    write_yaml("none", STUDY.replace("position: 1d", "position: none"))
    assert looked_at("run", "none.yaml", *PLAN)[0] == 0
    found = json_output(looked_at, "table", "none.yaml", *RUN)
    first = {one["arm"]: one["first_declared"] for one in found["rows"]}
    assert first == {
        "position=none": None, "position=1d": "no verdict", "position=2d": "not-resolved",
        "position=relative": "not-resolved",
    }  # fmt: skip
    (warning,) = found["warnings"]
    assert "baseline from position=1d to position=none (first declared by s@r on 2" in warning


def test_what_cannot_be_computed_under_the_first_is_said(looked_at: Ablate) -> None:
    """A study without the first baseline."""
    text = STUDY.replace("position: 1d", "position: none").replace("1d, ", "")
    write_yaml("none", text)
    assert looked_at("run", "none.yaml", *PLAN)[0] == 0
    (warning,) = json_output(looked_at, "table", "none.yaml", *RUN)["warnings"]
    assert "The verdicts as first declared cannot be given: its baseline position=1d is not in this plan" in warning


def test_studies_that_were_declared_before_any_result_are_clean(tmp_path: Path, ablate: Ablate) -> None:
    """So is a margin that was edited before there was a result, and a plan that was raised before one."""
    write_yaml("r", RECIPE)
    declare(seeds=3)
    declare(STUDY.replace("0.01", "0.05"), seeds=4)
    declare(STUDY.replace("0.01", "0.02"))
    declare(STUDY.replace("[none, 1d, 2d, relative]", "[1d, 2d]"), name="one")
    finish(declare(STUDY.replace("0.01", "0.02")))
    for study in ("s.yaml", "one.yaml"):
        assert ablate("run", study, *PLAN)[0] == 0
        found = json_output(ablate, "table", study, *RUN)
        assert found["warnings"] == []
        assert not [note for note in found["notes"] if "p is corrected for" in note]


def test_a_declaration_that_was_replaced_before_any_result_does_not_count_as_the_first(
    tmp_path: Path, ablate: Ablate
) -> None:
    write_yaml("r", RECIPE)
    declare(STUDY.replace("0.01", "0.02"))
    finish(declare())
    assert ablate("run", *edited_margin(ablate), *PLAN)[0] == 0
    (warning,) = json_output(ablate, "table", "s.yaml", *RUN)["warnings"]
    assert "margin from 1.00 points" in warning


def test_an_exported_file_says_the_same(looked_at: Ablate) -> None:
    assert looked_at("run", *copied_margin(looked_at), *PLAN)[0] == 0
    finish(declare(seeds=8))
    assert looked_at("export", "--out", "all.parquet")[0] == 0
    for study in ("s", "wide"):
        here, there = (json_output(looked_at, "table", study, *RUN, "--runs", at) for at in ("runs", "all.parquet"))
        assert here == there
    assert here["warnings"]


def test_a_study_says_beforehand_that_it_grows(tmp_path: Path, ablate: Ablate) -> None:
    """Its first table is corrected, also if the line is removed afterwards. Added afterwards, it has no effect."""
    write_yaml("r", RECIPE)
    finish(declare(STUDY + "grows: true\n"))
    assert ablate("run", "s.yaml", *PLAN)[0] == 0
    assert row(ablate, "s.yaml", "position=2d")["p"] == pytest.approx(2 * paired_p("2d", 5))
    write_yaml("s", STUDY)
    assert ablate("run", "s.yaml", *PLAN)[0] == 0
    assert row(ablate, "s.yaml", "position=2d")["p"] == pytest.approx(2 * paired_p("2d", 5))


def test_growth_that_is_declared_after_a_table_has_no_effect(looked_at: Ablate) -> None:
    write_yaml("s", STUDY + "grows: true\n")
    assert looked_at("run", "s.yaml", *PLAN)[0] == 0
    assert row(looked_at, "s.yaml", "position=2d")["p"] == pytest.approx(paired_p("2d", 5))


def test_diverged_trials_that_were_retried_are_named(tmp_path: Path, ablate: Ablate) -> None:
    """Before they were trained again, and after; in an export too, and whatever the notes."""
    write_yaml("r", RECIPE)
    plan = declare()
    finish(plan, diverged=[("position=2d", 1), ("position=2d", 4), ("position=none", 0)])
    assert json_output(ablate, "table", "s.yaml", *RUN)["warnings"] == []
    assert ablate("retry", "s.yaml", *RUN, "--diverged")[0] == 0
    named = "ablate retry --diverged: position=none seed 0, position=2d seeds 1, 4"
    for _ in range(2):
        assert ablate("export", "--out", "all.parquet")[0] == 0
        for place in ("runs", "all.parquet"):
            text = ablate("table", "s.yaml", *RUN, "--notes", "none", "--runs", place)[1]
            assert f"Note: 3 trials diverged and may have been trained again, by {named}." in text
        finish(plan)
    kept = sorted(Path("runs/trials").glob("*/attempts/*/retried-result.json"))
    assert len(kept) == 3


def test_claims_that_were_chosen_after_a_table_are_named(tmp_path: Path, ablate: Ablate) -> None:
    """So are those that were left out, as fewer claims are corrected less. Claims about later arms are clean."""
    write_yaml("r", RECIPE)
    first, chosen = "position=none < position=2d", "position=relative < position=2d"
    text = STUDY.replace("[none, 1d, 2d, relative]", "[none, 1d, 2d]")
    finish(declare(f"{text}claims: ['{first}']\n"))
    both = declare(f"{STUDY}claims: ['{first}', '{chosen}']\n")
    assert json_output(ablate, "table", "s.yaml", *RUN)["warnings"] == []
    finish(both)
    assert json_output(ablate, "table", "s.yaml", *RUN)["warnings"] == []
    declare(f"{STUDY}claims: ['{chosen}', 'position=none < position=1d']\n")
    for words in (("table", "s.yaml", *RUN, "--notes", "none"), ("plan", "s.yaml", *RUN)):
        printed = ablate(*words)[1]
        assert "claims declared after there were results: position=none < position=1d" in printed.replace("\\", "")
        assert (
            "claims left out after there were results: position=none < position=2d (first declared by s@r on 2"
            in printed
        )


def test_trials_that_were_copied_without_the_ledger_have_an_unknown_past(looked_at: Ablate) -> None:
    """So has a comparison of arms of two studies, declared after both."""
    shutil.copytree("runs/trials", "elsewhere/trials")
    write_yaml("one", STUDY.replace("[none, 1d, 2d, relative]", "[1d, 2d]"))
    assert looked_at("run", "one.yaml", *PLAN, "--runs", "elsewhere")[0] == 0
    late = "all trials of all arms had results before this directory knew of the comparison"
    (warning,) = json_output(looked_at, "table", "one", *RUN, "--runs", "elsewhere")["warnings"]
    assert late in warning
    raised = declare(STUDY, seeds=6)
    finish(raised)
    assert not any(late in one for one in json_output(looked_at, "table", "s.yaml", *RUN)["warnings"])


def test_a_ledger_that_was_removed_leaves_an_unknown_past(looked_at: Ablate) -> None:
    """The warning stays when the study is planned again."""
    assert json_output(looked_at, "table", "s", *RUN)["warnings"] == []
    shutil.rmtree("runs/ledger")
    late = "all trials of all arms had results before this directory knew of the comparison"
    (warning,) = json_output(looked_at, "table", "s", *RUN)["warnings"]
    assert late in warning
    finish(declare(STUDY, seeds=6))
    assert looked_at("run", "s.yaml", *PLAN, "--seeds", "6")[0] == 0
    (warning,) = json_output(looked_at, "table", "s", *RUN)["warnings"]
    assert late in warning
