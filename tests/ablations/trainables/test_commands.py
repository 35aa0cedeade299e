"""Commands of users are planned, trained and compared as our own trials are."""

import io
import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import dedent, indent

import pytest
from commands import ONE_ARM, RECIPE, SCRIPT, STUDY, planned
from designs import design, write
from in_process import Ablate, refusal
from run_trials import Quiet, serve_all, served

from ablations import provenance
from ablations.cli.inputs.plan_names import plan_names
from ablations.cli.inputs.words import Request
from ablations.cli.watching import find_waste
from ablations.execution import runner
from ablations.execution.launch import Place
from ablations.execution.messages import Note, read_event
from ablations.execution.worker import Worker
from ablations.jobs import jobs
from ablations.planning import estimate, overview
from ablations.planning.prepare import prepare
from ablations.planning.saved_plans import save_plan
from ablations.status.slurm_answers import SlurmAnswers
from ablations.status.study_status import study_status
from ablations.status.view import render
from ablations.study.reading import read_recipe
from ablations.trainables.command import training
from ablations.trainables.command.output import Curve, Report
from ablations.trainables.trainable import TrainingContext
from results import export, store
from results.store import lease
from results.store.schemas.plans import Plan
from results.store.schemas.trials import MetricsLine
from results.study_results import load_plans
from results.tables import layout, study_table
from results.tables.sentences import setting_text

PER_IMAGE = "{better: higher, unit: fraction, per_image: true}"
BAD_RECIPES = [
    ("train: python train.py {lrr} {lr}", "train: {lrr} is unknown; did you mean 'lr'?"),
    ("train: python train.py {seed}", "config: lr: the command takes it nowhere: write {lr} or {settings} into"),
    ("train: python 'train.py {lr}", "train: python 'train.py {lr}: no closing quotation"),
    ("train: python train.py --all={settings}", "train: {settings} stands for several words: separate it by blanks"),
    ("train: python train.py {settings}\nspelling: --{name} {value}", "spelling=--{name} {value}: words with {key}"),
    ("train: python train.py {lr}\ncode: [src]", "code: src: no such file or folder in "),
    ("train: python train.py {lr}\nmetrics: {}", "metrics: name what the code reports"),
    ("train: python train.py {lr}\nmetrics: {f1: {better: yes}}", "better=yes: 'higher' or 'lower'"),
    ("train: python train.py {lr}\nsettings: {wd: {min: 0}}", "settings: wd: is no setting: give its default in"),
    ("train: python train.py {lr}\nsettings: {lr: {min: 1}}", "lr=0.5: at least 1"),
    ("train: python train.py {lr}\nsettings: {lr: {choices: [a, b]}}", "lr=0.5: 'a' or 'b'"),
    ("train: python train.py {lr}\nconfig: {lr: {a: 1}}", "config: lr: a plain value: nested settings have names with"),
    ("train: python train.py {seed}\nconfig: {seed: 1}", "seed"),
    ("train: a.py:f\nmetrics: {f1: {better: higher, printed: 'f1:'}}", "metrics: printed: is for a command"),
    ("train: python train.py {lr}\nmetrics: {f1: {better: higher, per_image: true}}", "per_image: is for an accuracy"),
    (f"train: python train.py {{lr}}\nmetrics: {{a: {PER_IMAGE}, b: {PER_IMAGE}}}", "per_image: for one metric, not a"),
    ("train: a.py:f\nmetrics: {train_seconds: {better: lower}}", "metrics: train_seconds: is recorded for each trial"),
    ("train: python train.py {lr}\nmetrics: {steps: {better: lower}}", "metrics: steps: is recorded for each trial"),
    ("train: python train.py {lr}\nmetrics: {params: {better: higher}}", "metrics: params: {better: lower} without a"),
    ("train: python train.py {lr}\nmetrics: {flops: {better: lower, unit: G}}", "metrics: flops: {better: lower} wit"),
    ("train: python train.py {lr}\npaired: maybe", "paired=maybe: 'by-seed' or 'no'"),
    ("train: ''\nmetrics: {}\npaired: no", "paired=no: is for a command or function"),
    ("train: closed_form:CLOSED_FORM\nmetrics: {}\ncode: [a.py]", "code: is for a command: write its command"),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "message"), BAD_RECIPES, ids=[lines for lines, _ in BAD_RECIPES])
def test_a_recipe_that_cannot_work_is_refused_in_one_line(tmp_path: Path, lines: str, message: str) -> None:
    keys = {"description": "d", "config": "{lr: 0.5}", "metrics": "{f1: {better: higher}}"}
    keys |= dict(line.split(": ", 1) for line in lines.splitlines())
    text = "\n".join(f"{key}: {value}" for key, value in keys.items())
    with pytest.raises(ValueError, match=r"r\.yaml: ") as refusal:
        read_recipe(write(tmp_path, "r", text))
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_study_of_a_command_gets_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan holds all that training needs, and the first metric is compared."""
    runs, todo = planned(tmp_path)
    (tmp_path / "r.yaml").unlink()
    monkeypatch.setattr(runner, "drive", serve_all)
    assert len(runner.run(todo, Place(runs, None), Quiet()).done) == 6
    (plan,) = store.read_plans(runs).readable
    table = study_table.table(load_plans(runs, [plan])[0])
    rows = {row.arm: row for row in table.rows}
    assert plan.metric == "score"
    assert rows["lr=0.25"].mean == pytest.approx(0.251)
    assert [
        (line.step, line.number("loss")) for line in store.read_metrics(store.trial(runs, todo[0].id).state().attempt)
    ] == [(step, 1 / step) for step in range(1, 6)]


@pytest.mark.parametrize(("line", "is_paired"), [("", True), ("    paired: no\n", False)])
def test_a_recipe_says_whether_seeds_pair_and_no_id_depends_on_it(tmp_path: Path, line: str, is_paired: bool) -> None:
    runs, todo = planned(tmp_path, recipe=RECIPE + line)
    (plan,) = store.read_plans(runs).readable
    assert plan.is_paired == is_paired
    _, others = planned(tmp_path / "other")
    assert [job.id for job in todo] == [job.id for job in others]


def test_an_id_is_of_settings_template_and_code_but_of_no_folder(tmp_path: Path) -> None:
    def ids(name: str, script: str = SCRIPT, recipe: str = RECIPE) -> list[str]:
        return [job.id for job in planned(tmp_path / name, script, recipe)[1]]

    first = ids("a")
    assert len({*first}) == 6
    assert ids("b") == first
    assert ids("c", recipe=RECIPE.replace("A script.", "Another text.")) == first
    assert not {*ids("d", script=f"{SCRIPT}# an edit")} & {*first}
    assert not {*ids("e", recipe=RECIPE.replace("{lr} {seed}", "{lr}  --flag {seed}"))} & {*first}
    assert ids("f", recipe=RECIPE.replace("config: {lr: 0.5}", "config: {lr: 0.25}")) == first


def test_a_limit_of_hours_is_not_passed_by_trials_of_unknown_time(tmp_path: Path) -> None:
    """Nobody knows how long a command takes before a trial of it has finished here."""
    runs, todo = planned(tmp_path)
    plans = store.read_plans(runs).readable
    for most, what in ((1e6, "how long the trials of 2 arms take is unknown: first train one"), (1e-9, "training 5 ")):
        with pytest.raises(ValueError, match=what):
            estimate.check_max_hours(most, plans, todo, runs, estimate.local_device(plans))
        assert served(runs, todo[0]).kind == "finished"
    estimate.check_max_hours(1, plans, todo, runs, estimate.local_device(plans))


def test_a_setting_named_like_one_of_how_vits_run_is_an_ordinary_setting(tmp_path: Path) -> None:
    """Its value is in the plan's name, and the table of another value is another study's."""
    recipe = RECIPE.replace("{lr: 0.5}", "{lr: 0.5, threads: 1}")
    recipe = recipe.replace("{lr} {seed} {folder}", "{lr} {seed} {folder} {threads}")
    runs, _ = planned(tmp_path, recipe=recipe)
    made = prepare(design(tmp_path, STUDY, recipe, threads=2), runs, None, code="0" * 12)
    save_plan(runs, made)
    assert made.name == "s@r,threads=2"
    for value, name in ((1, "s@r,threads=1"), (2, "s@r,threads=2")):
        assert plan_names(Request(["s"], {"threads": value}, recipe="r"), runs) == [name]
    assert plan_names(Request(["s"], {}, recipe="r"), runs) == ["s@r"]
    assert setting_text(made) == "r with threads=2"


def test_a_running_command_shows_its_metric(tmp_path: Path) -> None:
    """By `ablate status`, and while it trains, from the lines of metrics.jsonl."""
    runs, (first, *_) = planned(tmp_path)
    plans = store.read_plans(runs).readable
    with store.claim(store.trial(runs, first.id), lease.Watch()) as attempt:
        attempt.write_metrics([MetricsLine(step=3, seconds=6.0, score=0.125, loss=0.5)])
        status = study_status(plans[0], runs, SlurmAnswers())
    (trial,) = (one for arm in status.arms for one in arm.now_running)
    assert (trial.accuracy, trial.metric, trial.value) == (None, "score", 0.125)
    assert "seed 0   step 3   score 0.125" in render([status]).plain

    seen = []
    order = training.CommandOrder(None, tmp_path, {}, {})
    with store.claim(store.trial(runs, first.id), lease.Watch()) as attempt:
        attempt.progress = lambda step, numbers: seen.append((step, numbers))
        running = training.CommandRun(order, attempt, TrainingContext())
        (running.folder / "metrics.jsonl").write_text('{"step": 4, "score": 0.25, "loss": NaN}\n')
        running.save_curve()
    assert seen == [(4, {"score": 0.25})]


def test_without_weights_the_large_files_of_a_folder_go(tmp_path: Path) -> None:
    """They stay until the trial is over, and small files stay for good. `ablate clean` finds what was kept."""
    script = """
        import os, sys
        os.chdir(sys.argv[3])
        os.mkdir("models")
        open("models/last.pt", "wb").write(bytes(1 << 21))
        open("plot.svg", "wb").write(bytes(1 << 10))
        os.symlink("/etc/hosts", "link")
        print("METRIC score=1")
    """
    runs, (kept, *others) = planned(tmp_path, script)
    for job, keep in ((kept, "all"), (others[0], "none")):
        assert served(runs, job, keep).metrics == {"score": 1}
        folder = store.trial(runs, job.id).attempts()[-1] / "folder"
        assert (folder / "models" / "last.pt").exists() == (keep == "all")
        assert (folder / "plot.svg").exists()
    plans = store.read_plans(runs).readable
    waste = find_waste(runs, plans, "none")
    assert [(item.path.name, item.bytes) for item in waste] == [("last.pt", 1 << 21)]
    assert not find_waste(runs, plans, "all")


def test_settings_are_spelled_as_the_recipe_says(tmp_path: Path) -> None:
    """A flag is left out if it is false, a null setting too, and no shell sees a value."""
    script = "import sys; print('METRIC score=1'); print(sys.argv[1:])"
    settings = "config: {lr: 1, amp: true, ema: false, model.name: 'a b; $HOME', init: null}"
    recipe = RECIPE.replace("{lr} {seed} {folder}", "{settings}").replace("config: {lr: 0.5}", settings)
    for spelling, written in (
        ("", ["--lr", "1", "--amp", "--model.name", "a b; $HOME"]),
        ("    spelling: '{key}={value}'\n", ["lr=1", "amp=true", "ema=false", "model.name=a b; $HOME"]),
    ):
        study = "{question: q, baseline: {lr: 1}, factors: {model.name: ['a b; $HOME', c]}}"
        runs, todo = planned(tmp_path / str(len(written)), script, recipe + spelling, study)
        assert served(runs, todo[0]).kind == "finished"
        assert str(written) in log(runs, todo[0].id)


def log(runs: Path, trial_id: str) -> str:
    attempt = store.trial(runs, trial_id).attempts()[-1]
    return (attempt / "log").read_text()


def test_a_metric_is_read_from_what_a_script_prints_anyway(tmp_path: Path) -> None:
    """The last number after the text counts, on either output, though no line may end there."""
    script = """
        import sys
        for epoch in range(3):
            print(f"epoch {epoch} | test loss: {1 / (epoch + 1):.2e}")
            print(f"\\r*** Best metric: 7{epoch}.5% (epoch {epoch})", end="", file=sys.stderr)
        print("METRIC params=42 test loss: none")
    """
    metrics = """
        metrics:
          loss: {better: lower, printed: "test loss:"}
          top1: {better: higher, printed: "*** Best metric: "}
          params: {better: lower}
    """
    recipe = RECIPE.replace("    metrics: {score: {better: higher}}\n", indent(dedent(metrics), " " * 4))
    runs, todo = planned(tmp_path, script, recipe, ONE_ARM)
    assert served(runs, todo[0]).kind == "finished"
    result = store.trial(runs, todo[0].id).state().result
    assert result is not None
    assert result.metrics == {"loss": 0.333, "top1": 72.5, "params": 42}


@pytest.mark.parametrize(
    ("printed", "number"),
    [
        ("1,234.5 tokens", 1234.5),
        ("1,5", 1.0),
        ("\x1b[1;32m0.25\x1b[0m", 0.25),
        ("-.5e-1,", -0.05),
        ("Infinity", math.inf),
        ("12345", 12345.0),
        ("0.91, 0.93", 0.91),
    ],
)
def test_numbers_are_read_as_scripts_print_them(printed: str, number: float) -> None:
    report = Report({"loss": "loss:"})
    report.find_printed("loss: 7")
    report.find_printed(f"step 3 \x1b[1mloss:\x1b[0m {printed}")
    assert [float(value) for value in report.values["loss"]] == [number]


COSTS = RECIPE.replace(
    "{score: {better: higher}}",
    "{score: {better: higher}, params: {better: lower}, flops: {better: lower}, images_per_second: {better: higher}}",
)
PARETO = STUDY.replace("margin", "metrics: [score, params, flops, images_per_second], margin")
COSTLY = """
    import sys
    lr, seed = float(sys.argv[1]), int(sys.argv[2])
    print(f"METRIC score={lr + lr * seed / 1000} images_per_second={99 / lr + lr * seed}")
    print(f"METRIC params={lr * 416} flops={SEEDS + lr * 8}")
"""


def test_reported_costs_are_those_of_the_arms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables, secondary metrics, dominance and exports have them as they have those of our own models."""
    runs, todo = planned(tmp_path, COSTLY.replace("SEEDS", "0"), COSTS, PARETO.replace("0.25", "0.75"))
    monkeypatch.setattr(runner, "drive", serve_all)
    assert len(runner.run(todo, Place(runs, None), Quiet()).done) == 6
    studies = load_plans(runs, store.read_plans(runs).readable)
    export.write(studies, tmp_path / "e.parquet")
    for (study,) in (studies, export.read(tmp_path / "e.parquet")):
        table = study_table.table(study)
        base, other = table.rows
        assert [(row.params, row.flops) for row in table.rows] == [(208, 4), (312, 6)]
        secondary = other.secondary
        assert [secondary[name].delta for name in ("params", "flops", "images_per_second")] == [104, 2, -65.75]
        assert secondary["images_per_second"].mean == 132.75
        assert (base.dominated_by, other.dominated_by) == ([], [])
        text = layout.render(table, "md")
        assert all(part in text for part in ("FLOPs", " 208 |", " 312 |", "Pareto"))
    cheaper = study.columns | {"score": [1 - value for value in study.columns["score"]]}
    assert study_table.table(replace(study, columns=cheaper)).rows[1].dominated_by == ["lr=0.5"]


def test_costs_that_differ_between_seeds_are_named_in_a_note(tmp_path: Path) -> None:
    runs, todo = planned(tmp_path, COSTLY.replace("SEEDS", "seed"), COSTS, ONE_ARM)
    for job in todo:
        assert served(runs, job).kind == "finished"
    (row,) = study_table.table(load_plans(runs, store.read_plans(runs).readable)[0]).rows
    assert (row.params, row.flops) == (208, None)
    assert "its seeds have 4 or 5 or 6 FLOPs an image: no single number" in row.notes


def test_a_cost_that_is_no_count_fails_in_one_line(tmp_path: Path) -> None:
    runs, todo = planned(tmp_path, "print('METRIC score=1 params=0.5 flops=1 images_per_second=1')", COSTS, ONE_ARM)
    assert served(runs, todo[0]).cause == "metric params=0.5: a whole number of at least 0"


def test_a_cost_that_no_metric_reports_is_refused_in_a_study(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="metrics=params: one of score"):
        planned(tmp_path, study=STUDY.replace("margin", "metrics: [score, params], margin"))


def test_a_metric_named_like_what_every_trial_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="metrics: device: is recorded for each trial: give a metric of yours another"):
        planned(tmp_path, recipe=RECIPE.replace("score", "device"), study=STUDY)


def test_a_printed_metric_that_never_comes_fails_in_one_line(tmp_path: Path) -> None:
    recipe = RECIPE.replace("better: higher", "better: higher, printed: 'score is'")
    runs, todo = planned(tmp_path, "print('score is unknown')", recipe, ONE_ARM)
    assert served(runs, todo[0]).kind == "failed"
    failure = store.trial(runs, todo[0].id).failure()
    assert failure is not None
    assert failure.cause == "metric score was not reported: no number was printed after 'score is'"


def test_an_id_is_of_printed_texts_and_not_of_other_metrics(tmp_path: Path) -> None:
    """A text read for another metric is another trial, so that no number stands under a wrong name."""

    def trial_id(name: str, metrics: str) -> str:
        recipe = RECIPE.replace("{score: {better: higher}}", f"{{{metrics}}}")
        return planned(tmp_path / name, recipe=recipe, study=ONE_ARM)[1][0].id

    a, b = "{better: lower, printed: 'a:'}", "{better: lower, printed: 'b:'}"
    first = trial_id("first", f"x: {a}, y: {b}")
    assert trial_id("order", f"y: {b}, x: {a}") == first
    assert trial_id("added", f"x: {a}, y: {b}, score: {{better: higher}}") == first
    assert trial_id("swapped", f"x: {b}, y: {a}") != first
    assert trial_id("without", "score: {better: higher}") == planned(tmp_path / "plain", study=ONE_ARM)[1][0].id


def test_finished_trials_that_lack_an_added_metric_are_named(tmp_path: Path) -> None:
    runs, todo = planned(tmp_path, study=ONE_ARM, script="print('METRIC score=1')")
    assert [served(runs, job).kind for job in todo] == ["finished"] * 3
    recipe = RECIPE.replace("{score: {better: higher}}", "{score: {better: higher}, loss: {better: lower}}")
    added = design(tmp_path, ONE_ARM.replace("baseline", "metric: loss, baseline"), recipe)
    plan = prepare(added, runs, None, prune=True, code="0" * 12)
    (row,) = study_table.table(load_plans(runs, [plan])[0]).rows
    assert (row.n, row.missing) == (0, 3)
    assert row.notes == ["seeds 0, 1, 2 missing: its result has no loss"]


def test_a_changed_metric_of_a_planned_study_is_named(tmp_path: Path) -> None:
    recipe = RECIPE.replace("higher}", "higher, printed: 'acc:'}")
    planned(tmp_path, recipe=recipe)
    other = recipe.replace("acc:", "test acc:")
    with pytest.raises(ValueError, match=r"changed .* \(metrics: score: 'acc:' -> score: 'test acc:'\): undo that"):
        planned(tmp_path, recipe=other)
    with pytest.raises(ValueError, match=r"\(train: .* \{folder\} -> .* \{folder\} -v\)"):
        planned(tmp_path, recipe=recipe.replace("{folder}", "{folder} -v"))
    with pytest.raises(ValueError, match=r"\(metrics: score: 'acc:' -> none printed\)"):
        planned(tmp_path)


def test_no_step_is_named_where_a_resumed_command_recorded_none(tmp_path: Path) -> None:
    for step, text in ((0, "resuming lr=0.5, seed 1"), (1200, "resuming lr=0.5, seed 1 at step 1,200")):
        channel = io.StringIO()
        Worker(Place(tmp_path, None), channel).announce_resume("lr=0.5, seed 1", step)
        assert read_event(channel.getvalue()) == Note(text)


def test_lines_of_one_step_are_one_of_the_curve(tmp_path: Path) -> None:
    """As Trainers write them, training before evaluation. A command that continues from a step replaces later ones."""
    numbers = [
        {"step": 100, "loss": 2.0},
        {"step": 100, "eval_loss": 1.5, "epoch": 1.0},
        {"step": 200, "loss": math.nan},
        {"step": 200, "eval_loss": 1.0},
    ]
    curve = Curve(tmp_path / "metrics.jsonl")
    curve.path.write_text("".join(json.dumps(line) + "\n" for line in numbers))
    assert curve.has_changed()
    first, second = curve.lines
    assert (first.step, first.epoch, first.number("loss"), first.number("eval_loss")) == (100, 1.0, 2.0, 1.5)
    assert second.number("eval_loss") == 1.0
    assert curve.diverged  # a number of the last step is not finite
    with open(curve.path, "a") as file:
        file.write('{"step": 100, "loss": 1.9}\n')
    assert curve.has_changed()
    assert [(line.number("loss"), line.number("eval_loss")) for line in curve.lines] == [(1.9, 1.5)]
    assert not curve.diverged


def test_a_plan_names_many_files_of_code_by_their_folders() -> None:
    assert overview.code_text(["train.py", "conf/a.yaml"]) == "train.py, conf/a.yaml"
    many = [f"timm/models/m{number}.py" for number in range(12)]
    assert overview.code_text([*many, "timm/version.py", "trial.py"]) == "trial.py, timm/ (13 files)"


def test_a_command_knows_what_it_is_by_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sees what its trial is, and nothing of the paths by which workers find this suite."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(provenance.HOME), str(provenance.HOME), "/users"]))
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    (tmp_path / "beside.py").touch()
    script = """
        import json, os, sys
        import beside
        assert os.environ["PYTHONPATH"] == "/users"
        settings = json.load(open(os.environ["ABLATE_SETTINGS"]))
        assert settings == {"lr": 0.5} and os.environ["ABLATE_FOLDER"] == sys.argv[3]
        json.dump({"score": int(os.environ["ABLATE_SEED"])}, open(os.environ["ABLATE_FOLDER"] + "/metrics.json", "w"))
    """
    runs, todo = planned(tmp_path, script, study=ONE_ARM)
    assert [served(runs, job).metrics for job in todo] == [{"score": seed} for seed in range(3)]


UNNAMED = {  # what the template lacks -> the warning
    "seed": "train: has no {seed}: unless the command reads ABLATE_SEED, all seeds are the same trial",
    "folder": "train: has no {folder}: unless the command reads ABLATE_FOLDER, trials that run at once write to "
    "the same files",
}


@pytest.mark.parametrize("name", UNNAMED)
def test_a_template_without_seed_or_folder_is_warned_of(ablate: Ablate, tmp_path: Path, name: str) -> None:
    """Unless the code has the name of the environment variable."""
    write(tmp_path, "r", RECIPE.replace(f"{{{name}}}", "x"))
    (tmp_path / "train.py").write_text(SCRIPT)
    status, output, _ = ablate("check", "r.yaml")
    warnings = [line.strip() for line in output.splitlines() if "warning" in line]
    assert (status, warnings) == (0, [f"warning {UNNAMED[name]}"])
    (tmp_path / "train.py").write_text(f"{SCRIPT}# reads ABLATE_{name.upper()}")
    assert "warning" not in ablate("check", "r.yaml")[1]


UNKNOWN = [  # words of the factor, what the message says
    ("n-layers", "unknown key 'n-layers'; did you mean 'n-layer'?"),
    ("lr", "unknown key 'lr'; did you mean 'lr-max'?"),
    ("zzz", "unknown key 'zzz': the recipe's settings are n-layer, lr-max, seed"),
]


@pytest.mark.parametrize(("key", "message"), UNKNOWN)
def test_an_unknown_setting_of_a_command_is_told_from_the_recipe(tmp_path: Path, key: str, message: str) -> None:
    recipe = RECIPE.replace("{lr} {seed}", "{settings} {seed}").replace("lr: 0.5", "n-layer: 4, lr-max: 0.5")
    with pytest.raises(ValueError, match=re.escape(message)):
        design(tmp_path, f"{{question: q, baseline: {{n-layer: 4}}, factors: {{{key}: [1, 2]}}}}", recipe)


def test_a_forgotten_recipe_is_asked_for(ablate: Ablate, tmp_path: Path) -> None:
    write(tmp_path, "s", "{question: q, baseline: {type: mlp}, factors: {type: [mlp, rnn]}}")
    for command in ("plan", "show", "run", "check"):
        line = refusal(ablate, command, "s.yaml")
        assert "s.yaml: baseline: unknown key 'type'" in line
        assert "(on recipe digits, the default: give that of your own code as --recipe FILE)" in line
    assert "--recipe" not in refusal(ablate, "plan", "s.yaml", "--recipe", "cifar10")


def test_edited_code_is_planned_anew_before_it_trains(tmp_path: Path) -> None:
    runs, todo = planned(tmp_path)
    (tmp_path / "train.py").write_text("print('METRIC score=0')")
    ended = served(runs, todo[0])
    assert (ended.kind, ended.cause) == (
        "failed",
        "train: the code has changed since the study was planned (edited: train.py): undo that, or plan it anew with "
        "--prune (results stay)",
    )


def test_edited_files_are_named_with_what_to_do(tmp_path: Path) -> None:
    """Edited, added and removed files. --prune plans new trials, and the results of the old code stay."""
    for name in ("a.py", "b.py", "c.py", "d.py"):
        (tmp_path / name).write_text("")
    recipe = f"{RECIPE}    code: [.]\n"
    script = "print('METRIC score=1')"
    runs, (first, *_) = planned(tmp_path, script, recipe, ONE_ARM)
    assert served(runs, first).kind == "finished"
    (tmp_path / "a.py").unlink()
    for name in ("b.py", "c.py", "d.py"):
        (tmp_path / name).write_text("edited")
    (tmp_path / "new.py").touch()
    with pytest.raises(ValueError, match="its code or recipe has changed since") as refusal:
        planned(tmp_path, f"{script}  # edited", recipe, ONE_ARM)
    assert str(refusal.value) == (
        "s@r: its code or recipe has changed since it was planned (edited: b.py, c.py, d.py and 1 more; added: new.py; "
        "removed: a.py): undo that, plan it anew with --prune (results stay), or keep both tables with --name NEW"
    )
    anew = prepare(design(tmp_path, ONE_ARM, recipe), runs, None, prune=True, code="0" * 12)
    save_plan(runs, anew)
    assert {first.id}.isdisjoint(job.id for job in jobs([anew]))
    assert store.trial(runs, first.id).state().status == "finished"


def test_a_plan_of_before_names_no_edited_file(tmp_path: Path) -> None:
    """Plans had one digest for all files. They are read, and the files are listed."""
    planned(tmp_path, study=ONE_ARM)
    (path,) = tmp_path.glob("runs/studies/*/plan.json")
    content = json.loads(path.read_text())
    kind, _, described = content["trainable"].partition(" ")
    about = json.loads(described)
    del about["file_digests"]
    store.write_plan(path, Plan(**{**content, "trainable": f"{kind} {json.dumps(about)}"}))
    with pytest.raises(ValueError, match=r"its code or recipe has changed since it was planned \(some of train\.py\)"):
        planned(tmp_path, f"{SCRIPT}# edited", study=ONE_ARM)


def test_commands_load_neither_torch_nor_vitcore(tmp_path: Path) -> None:
    runs, _ = planned(tmp_path, study=ONE_ARM)
    done = subprocess.run([sys.executable, "-c", TRAIN, str(runs)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


TRAIN = """
import sys
from pathlib import Path
from unittest.mock import Mock
from ablations.execution import runner, worker
from ablations.execution.launch import Place
from ablations.jobs import jobs
from results import store
runs = Path(sys.argv[1])
todo = jobs(store.read_plans(runs).readable)
place = Place(runs, None, trainable=todo[0].trainable)
worker.Worker(place, Mock()).serve(todo[0])
assert store.trial(runs, todo[0].id).state().status == "finished"
loaded = {"torch", "vitcore"} & sys.modules.keys()
assert not loaded, loaded
"""
