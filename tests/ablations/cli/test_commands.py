"""Commands: bad input is one line and status 2, results are read without torch, plans and tables have their keys."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from in_process import Ablate
from rich.console import Console
from run_trials import called_serially

from ablations import cli
from ablations.cli import check
from ablations.execution import runner
from ablations.planning.jobs import Job
from ablations.reporting.progress import Live
from vitcore.config import Config
from vitcore.variants import VARIANTS

RECIPE = """
    description: Small. For tests.
    config: {data: digits, width: 16, depth: 1, heads: 2, patch: 2, pool: gap, steps: 30, batch: 16, lr: 2e-3, evaluations: 3}
    seeds: 3
    axes: {patch: [2, 4], lr: [1e-3, 2e-3], data_fraction: [0.5, 1.0]}
    margin: 0.03
"""  # noqa: E501 - one line of YAML
STUDY = """
    question: Does position matter?
    baseline: {position: 1d}
    factors: {position: [none, 1d]}
    published: {position=none: 0.6}
    claims: [position=none < position=1d]
"""


@pytest.fixture
def ablate(ablate: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ablate:
    monkeypatch.delenv("ABLATE_DATA", raising=False)
    (tmp_path / "r.yaml").write_text(dedent(RECIPE))
    (tmp_path / "s.yaml").write_text(dedent(STUDY))
    (tmp_path / "both.yaml").write_text(dedent(STUDY) + "config: {steps: 20}")
    return ablate


def refusal(ablate: Ablate, *words: str) -> str:
    """Return the line in which a command refuses its input. Raises AssertionError if it does or prints more."""
    status, output, errors = ablate(*words)
    assert (status, output, errors.count("\n")) == (2, "", 1), errors
    return errors


def test_a_trial_that_compiles_says_so_and_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    job, file = Job("id", {"seed": 0, "steps": 9}, "arm", ""), io.StringIO()
    Live(Console(file=file), 2).show_compiling(0, job)
    assert "arm seed 0: compiling" in file.getvalue()
    now, display = 100.0, Live(Console(file=io.StringIO(), force_terminal=True, width=120), 2)
    monkeypatch.setattr(display.progress, "get_time", lambda: now)

    def drawn() -> str:
        with display.console.capture() as capture:
            display.console.print(display.progress.get_renderable())
        return capture.get()

    display.show_running(0, job, None, None)
    now = 200.0
    display.show_running(0, job, None, None)  # the next trial
    display.show_compiling(0, job)
    now = 242.0
    assert re.search(r"arm seed 0 .*compiling.*0:00:42", drawn())
    display.show_running(0, job, 1, None)
    assert re.search(r"arm seed 0 .*step 1/9", drawn())
    assert "compiling" not in drawn()


BAD = [
    ("run positon-embedding", "unknown study 'positon-embedding'; did you mean 'position-embedding'?"),
    ("run digits", "digits: is one of the recipes, not a study"),
    ("plan s.yaml --recipe s.yaml", "s.yaml: is a study, not a recipe"),
    ("run r.yaml", "r.yaml: is a recipe, not a study"),
    ("run both.yaml", "both.yaml: unknown key 'config'"),
    ("plan s.yaml --recipe r.yaml compile=5", "compile=5: 'auto', true or false"),
    ("compare a b --margin 0.03", "--margin 0.03: needs --fail-on worse"),
    ("run s.yaml --recipe digitz", "unknown recipe 'digitz'"),
    ("run missing.yaml --recipe r.yaml", "missing.yaml: no such file"),
    ("run s.yaml --recipe r.yaml widht=8", "unknown key 'widht'; did you mean 'width'?"),
    ("run s.yaml --recipe r.yaml pool=max", "did you mean 'map'?; a plug-in's needs --plugin FILE"),
    ("run s.yaml --recipe r.yaml patch=3", "patch=3 does not divide image_size=8: one of 1, 2, 4, 8"),
    ("plan s.yaml --recipe r.yaml classes=7", "position=none: classes=7: data=digits has 10"),
    ("train --recipe r.yaml channels=3", "channels=3: data=digits has 1"),
    ("run s.yaml recipe=r.yaml", "recipe=r.yaml: is an option: --recipe r.yaml"),
    ("plan s.yaml --recipe r.yaml seeds=3", "seeds=3: is an option: --seeds 3"),
    ("table max_hours=3 data_dir=x format=csv", "format=csv: is an option: --format csv"),
    ("run s.yaml --recipe r.yaml lr=1 lr=2", "lr is set twice"),
    ("run s.yaml --recipe r.yaml position=2d", "position is what the study 's' varies"),
    ("run s.yaml --recipe r.yaml seed=3", "--seeds"),
    ("run s.yaml --recipe r.yaml data=imagefolder:nowhere", "nowhere"),
    ("run s.yaml --recipe r.yaml data=cifar10", "data=cifar10: say where it is with --data-dir or ABLATE_DATA"),
    ("run s.yaml --recipe r.yaml --arm x*", "--arm x*: s@r has the arms position=none, position=1d"),
    ("run s.yaml --recipe r.yaml --runs s.yaml", "--runs s.yaml: is a file, not a run directory"),
    ("run s.yaml --recipe r.yaml --plugin none.py", "none.py: cannot be read (No such file or directory)"),
    ("run", "Missing argument 'STUDY"),
    ("run --recipe r.yaml lr=1", "name a study"),
    ("run s.yaml --seeds 0", "Invalid value for '--seeds'"),
    ("submit s.yaml", "ablate submit: Missing option '--profile' / '-p' (see ablate submit -h)"),
    ("pln s.yaml", "ablate: No such command 'pln'"),
    ("train s.yaml", "'s.yaml' is not key=value"),
    ("bench step --rounds 1", "Invalid value for '--rounds'"),
    ("run s", "unknown name 's'; did you mean the file 's.yaml'?"),
    ("plan ss.yml", "ss.yml: no such file; did you mean 's.yaml'?"),
    ("run s.yaml --recipe .", "--recipe .: is a folder: `ablate init .` writes a recipe"),
    ("table", "runs: no such run directory"),
    ("plot", "run a study first (`ablate run STUDY`), or give --runs"),
    ("table --out t.tex", "redirect what it prints with > FILE"),
    ("report --out rep.txt", "--out rep.txt: a report is a page: give a file that ends in .html"),
    ("init r.yaml", "r.yaml: is a file: a folder of class folders is needed"),
    ("table --format pdf", "format=pdf: one of md, latex"),
    ("compare a b", "a: no such run directory"),
    ("compare r.yaml r.yaml", "r.yaml"),
    ("compare a b --fail-on better", "--fail-on better: must be 'worse'"),
    ("compare a published --fail-on worse", "--fail-on worse: published numbers are from another setting"),
    ("check r.txt", "r.txt"),
    ("data download digits", "say where: --data-dir DIR, or set ABLATE_DATA"),
    ("data download digits --data-dir x", "digits"),
]


@pytest.mark.parametrize(("words", "message"), BAD, ids=[words for words, _ in BAD])
def test_bad_input_is_one_line_and_writes_nothing(ablate: Ablate, tmp_path: Path, words: str, message: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    errors = refusal(ablate, *words.split())
    assert errors.startswith("ablate")
    assert message in errors
    assert not re.search("Traceback|Errno", errors)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("words", ["run s.yaml --recipe r.yaml device=cuda", "train --recipe r.yaml device=cuda"])
def test_a_missing_gpu_is_refused_before_a_trial_fails(
    ablate: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "no usable GPU" in refusal(ablate, *words.split())
    assert not list((tmp_path / "runs").rglob("trials/*"))


def test_a_study_for_a_gpu_is_planned_where_there_is_none(ablate: Ablate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    words = ("plan", "s.yaml", "--recipe", "r.yaml", "device=cuda")
    assert "GPU-hours on any GPU, from" in ablate(*words)[1]
    assert "no usable GPU" in refusal(ablate, *words, "--probe")


@pytest.mark.parametrize("words", ["", "data", "profile"])
def test_without_a_command_there_is_the_help(ablate: Ablate, words: str) -> None:
    status, output, errors = ablate(*words.split())
    assert (status, output) == (2, "")
    assert errors == ablate(*words.split(), "-h")[1]


def test_bad_plugin_is_refused(ablate: Ablate, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import nothing_of_this_name")
    message = "does not import: ModuleNotFoundError: No module named 'nothing_of_this_name'"
    assert message in refusal(ablate, "run", "s.yaml", "--recipe", "r.yaml", "--plugin", "mine.py")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [("run = 'here'", "ablate.toml: unknown key 'run'; did you mean 'runs'?"), ("runs = ", "ablate.toml: ")],
)
def test_settings_file_is_checked(ablate: Ablate, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "ablate.toml").write_text(text)
    assert message in refusal(ablate, "table")


def test_list_names_every_study_and_recipe(ablate: Ablate) -> None:
    (status, output, _), listing = ablate("list"), json.loads(ablate("list", "--json")[1])
    assert status == 0
    assert all(f"  {one['name']} " in output for one in [*listing["studies"], *listing["recipes"]])


MINE = """
from vitcore.config import Options
from vitcore.training.optimization.schedules import SCHEDULE, Schedule
class Mine(Schedule):
    'Goes down.'
    class Options(Options):
        by: float
        to: int = 3
SCHEDULE['mine'] = Mine
"""


def test_list_names_every_variant_and_option(ablate: Ablate, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    request.addfinalizer(lambda: VARIANTS["schedule"].pop("mine", None))
    slots = json.loads(ablate("list", "--variants", "--json", "--plugin", "mine.py")[1])["variants"]
    output = ablate("list", "--variants")[1]
    named = {slot["slot"]: [one["name"] for one in slot["entries"]] for slot in slots}
    assert named == {slot: list(variants) for slot, variants in VARIANTS.items()}
    found = {f"{slot['slot']}={one['name']}": one for slot in slots for one in slot["entries"]}
    assert found["schedule=mine"] == {"name": "mine", "about": "Goes down.", "options": {"by": None, "to": 3}}
    assert found["optimizer=sgd"]["options"] == {"momentum": 0.9, "nesterov": False}
    assert all(one["about"] and one["about"] in output for one in found.values())
    assert "optimizer.momentum=0.9  optimizer.nesterov=False" in output


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    (folder / "r.yaml").write_text(dedent(RECIPE))
    (folder / "s.yaml").write_text(dedent(STUDY))
    with pytest.MonkeyPatch.context() as there:
        there.chdir(folder)
        for words in (["run", "s.yaml", "--recipe", "r.yaml"], ["export", "--out", "all.parquet"]):
            assert called_serially(there, *words)[0] == 0
    return folder


@pytest.fixture
def there(finished: Path, monkeypatch: pytest.MonkeyPatch) -> Ablate:
    monkeypatch.chdir(finished)
    return lambda *words: called_serially(monkeypatch, *words)


UNPLANNED = [
    ("table s lr=3", "lr=3: 's' was not run with it in runs"),
    ("table s position=2d", "position=2d: 's' was not run with it in runs: position is what the study varies"),
    ("status s lr=3", "lr=3: 's' was not run with it in runs"),
    ("table pooling", "pooling@r: was not run in runs (there: s@r)"),
    ("status pooling lr=3", "pooling@r: was not run with lr=3 in runs (there: s@r)"),
    ("plot s extra.yaml", "extra.yaml: no such file, and no study 'extra' in runs (there: s@r)"),
    ("compare runs publishd", "publishd: no such run directory or exported file (did you mean 'published'?)"),
    ("report --out /proc/x.html", "/proc/x.html: No such file or directory"),
    ("export --out s.yaml/a.csv", "s.yaml: File exists"),
    ("table s --columns ,", "columns=: one of arm, n, "),
    ("table s --columns arm,arm", "columns=arm,arm: arm is there twice"),
]


@pytest.mark.parametrize(("words", "message"), UNPLANNED, ids=[words for words, _ in UNPLANNED])
def test_what_was_not_run_is_named_as_it_was_written(there: Ablate, words: str, message: str) -> None:
    """Neither hashes nor temporary names appear."""
    recipe = ("--recipe", "r.yaml") if words.split()[0] in ("table", "status", "plot", "report") else ()
    errors = refusal(there, *words.split(), *recipe)
    assert message in errors
    assert not re.search("[0-9a-f]{32}|@r\\+|Errno", errors)


READING = [
    "table s --recipe r.yaml --runs all.parquet --format latex",
    "plot --runs all.parquet --out figures --format svg --x epoch",
    "report --runs all.parquet --out report.html",
    "compare all.parquet all.parquet",
    "compare all.parquet published",
    "export --runs all.parquet --out again.parquet",
    "table s --recipe r.yaml",
    "list",
]
EACH = """
import sys
from ablations.extras import EXTRAS
sys.modules.update(dict.fromkeys(EXTRAS))  # as if they were not installed
from ablations.cli import main
for words in sys.stdin.read().splitlines():
    sys.argv = ["ablate", *words.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, words
    print(f"END OF {words}")
"""


def test_reading_needs_no_extra(finished: Path) -> None:
    words = {"input": "\n".join(READING), "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", EACH], cwd=finished, **words)
    assert done.returncode == 0, done.stderr
    for command in READING:
        printed, done.stdout = done.stdout.split(f"END OF {command}\n")
        assert printed.strip(), command


def test_commands_that_print_paths_and_logs_print_json_too(finished: Path, tmp_path: Path, ablate: Ablate) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(finished / "runs", runs)
    for words, key in ((["report"], "report"), (["export", "--out", "r.csv"], "export")):
        path = ablate(*words)[1].strip()
        assert json.loads(ablate(*words, "--json")[1]) == {key: path, "studies": ["s@r"]}
        assert Path(path).stat().st_size
    logs = json.loads(ablate("logs", "s", "--recipe", "r.yaml", "--lines", "2", "--json")[1])["logs"]
    assert {(log["arm"], log["seed"]) for log in logs} == {
        (f"position={at}", seed) for at in ("none", "1d") for seed in range(3)
    }
    assert all(len(log["lines"]) <= 2 and log["status"] == "finished" for log in logs)
    assert ablate("logs", "s", "--recipe", "r.yaml", "--failed", "--json") == (0, '{\n "logs": []\n}\n', "")
    clean = json.loads(ablate("clean", "--keep-weights", "none", "--json")[1])
    assert clean["bytes"] == sum(Path(one["path"]).stat().st_size for one in clean["files"]) > 0
    assert clean["removed"] is False
    assert json.loads(ablate("clean", "--keep-weights", "none", "--yes", "--json")[1]) == {**clean, "removed": True}
    assert not any(Path(one["path"]).exists() for one in clean["files"])
    assert ablate("clean", "--runs", "none") == (2, "", "ablate: --runs none: no such run directory\n")


def test_plan_has_the_keys_that_others_rely_on(finished: Path, ablate: Ablate) -> None:
    words = ["plan", "s.yaml", "--recipe", "r.yaml", "--seeds", "4", "--json", "--runs", str(finished / "runs")]
    plan = json.loads(ablate(*words)[1])
    assert plan["trials"] == {"planned": 8, "finished": 6, "shared": 0, "todo": 2}
    assert " ".join(sorted(plan)) == (
        "confounds disk disk_bytes hours hours_from recipe resolution resolvable_difference study trials wall"
    )
    assert plan["disk_bytes"] == sum(plan["disk"].values())
    assert plan["disk"].keys() == {"weights", "checkpoints", "files"}
    assert min(plan["hours"], plan["resolvable_difference"]) > 0
    for workers, turns in ((1, 2), (2, 1)):
        took = json.loads(ablate(*words, "--jobs", str(workers))[1])["wall"]
        assert took == {"seconds": pytest.approx(3600 * plan["hours"] / 2 * turns), "devices": workers}
    assert "(under a minute on 2 cores here), from past" in ablate(*words[:6], *words[7:], "--jobs", "2")[1]


def test_an_edited_result_is_missing_until_it_is_trained_again_and_a_newer_one_is_refused(
    finished: Path, ablate: Ablate, tmp_path: Path
) -> None:
    shutil.copytree(finished / "runs", tmp_path / "runs")
    path = next((tmp_path / "runs/trials").glob("*/result.json"))
    text, (table, run) = path.read_text(), ([one, "s.yaml", "--recipe", "r.yaml"] for one in ("table", "run"))
    path.write_text(json.dumps(json.loads(text) | {"steps": 7}))
    status, output, _ = ablate(*table)
    assert (status, "its checksum differs" in output) == (0, True)
    assert ablate(*table, "--strict")[0] == 1
    assert ablate(*run)[0] == 0
    assert json.loads(path.read_text())["weights_sha256"] == json.loads(text)["weights_sha256"]
    assert ablate(*table, "--strict")[0] == 0
    path.write_text(text.replace('"schema": 1', '"schema": 9'))
    for words in (table, run):
        assert "schema 9 is newer than this version reads (1): upgrade" in refusal(ablate, *words)


@pytest.mark.parametrize(("job", "workers"), [("", 2), ("1", 4)])
def test_a_login_node_gets_two_processes_and_is_told_why(
    ablate: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, workers: int
) -> None:
    """On a login node there is sbatch, and SLURM_JOB_ID shows no job. --jobs counts only inside a job."""
    (tmp_path / "sbatch").write_text("#!/bin/sh\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", job)
    asked: list[int] = []
    monkeypatch.setattr(runner, "run", lambda *some: asked.append(some[3]) or runner.RunSummary())
    errors = ablate("run", "s.yaml", "--recipe", "r.yaml", "--jobs", "4")[2]
    assert asked == [workers]
    said = "(there is sbatch, and no allocation): 2 trials at a time instead of 4; for more: `ablate submit`"
    assert (said in errors) == (workers == 2)


def test_check_all_is_every_packaged_part_study_and_recipe(ablate: Ablate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "contracts", lambda slot, name: [("is tried", lambda slot, name: None)])
    few = {"studies": ["pooling"], "recipes": ["digits", "imagenet"]}
    assert "unknown recipe 'nowhere'" in refusal(ablate, "check", "all", "--recipe", "nowhere")
    monkeypatch.setattr(check, "packaged_names", few.__getitem__)
    status, output, _ = ablate("check", "all")
    lines = [f"ok      {slot}={name}: is tried" for slot, parts in VARIANTS.items() for name in parts]
    for line in (*lines, "\npooling on recipe digits", ": baseline\n", "\ndigits\n  ok", "\nimagenet\n  skipped"):
        assert line in output
    assert status == 0
    few["studies"] = ["nothing"]
    status, output, _ = ablate("check", "all")
    assert status == 1
    assert all(line in output for line in ("nothing\n  FAILED  unknown study 'nothing'", "digits\n  ok"))


def test_a_mistake_of_ours_is_one_line_and_a_log(
    ablate: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**words: object) -> None:
        raise KeyError("a field\nof something")

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("ABLATE_TRACEBACK", raising=False)
    monkeypatch.setattr(cli, "app", broken)
    status, _, errors = ablate()
    (log,) = tmp_path.glob("ablate-*.log")
    assert (status, errors.count("\n")) == (1, 1)
    assert all(text in errors for text in ("unexpected KeyError", str(log)))
    assert "in broken" in log.read_text()


def test_one_estimate_of_the_time_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    file = io.StringIO()
    display = Live(Console(file=file), 4, workers=2)
    for step, now in ((None, 100.0), (1, 103.0), (11, 105.0), (21, 107.0)):  # noqa: B007 - the clock reads it
        display.show_running(0, Job("id", {"seed": 0, "steps": 100}, "arm", ""), step, None)
    (line,) = file.getvalue().splitlines()
    assert "first step after 3.0 s" in line
    assert line.endswith("200 ms per step: 0:23 per trial, about 0:44 left")  # (4 - 0.1) * 22.8 s / 2
    assert display.time_left() == ", about 0:43 left"


@pytest.mark.parametrize(
    "command", ["table s", "table s.yaml", "status s", "logs s", "plot s --out OUT.png", "export s --out OUT.csv"]
)
def test_the_only_recipe_of_a_study_is_inferred(there: Ablate, command: str, tmp_path: Path) -> None:
    assert there(*command.replace("OUT", str(tmp_path / "out")).split())[0] == 0


def test_several_recipes_of_a_study_are_named(there: Ablate, tmp_path: Path) -> None:
    shutil.copytree("runs", tmp_path / "runs")
    where = ["--runs", str(tmp_path / "runs")]
    words = ["run", "s.yaml", "--recipe", "r.yaml", *where, "steps=2", "--seeds", "1"]
    assert there(*words)[0] == 0
    (offered,) = re.findall(r"(s@r\+\w+) \(steps=2\)", refusal(there, "table", "s", *where))
    assert there("table", offered, *where)[0] == 0
    assert there("table", "s", "steps=2", *where)[0] == 0


def test_a_margin_may_be_declared_on_the_command_line(there: Ablate, tmp_path: Path) -> None:
    shutil.copytree("runs", tmp_path / "runs")
    where = ["--runs", str(tmp_path / "runs")]
    assert there("run", "s.yaml", "margin=0.25", "--recipe", "r.yaml", *where)[0] == 0
    assert [path.name for path in (tmp_path / "runs" / "studies").iterdir()] == ["s@r"]
    assert json.loads(there("table", "s", "--json", *where)[1])["margin"] == 0.25
    assert there("report", *where)[0] == 0
    assert "margin=0.25" in (tmp_path / "runs" / "report.html").read_text()
    for words in (["run", "s.yaml", "margin=-1"], ["table", "s", "margin=0.1"], ["train", "margin=0.1"]):
        assert "margin=" in refusal(there, *words, *where)


def test_a_plan_of_some_arms_counts_those(there: Ablate) -> None:
    words = ["plan", "s.yaml", "--recipe", "r.yaml", "--seeds", "5", "--arm", "position=none"]
    view = json.loads(there(*words, "--json")[1])
    assert view["trials"] == {"planned": 5, "finished": 3, "shared": 0, "todo": 2}
    assert list(view["confounds"]) == ["position=none"]
    assert "1 arm x 5 seeds = 5 trials" in there(*words)[1]
    both = json.loads(there(*words, "--arm", "position=1*", "--json")[1])
    assert (both["trials"]["planned"], both["trials"]["todo"]) == (10, 4), "given again: the union"


def test_every_setting_is_listed_with_its_meaning(ablate: Ablate) -> None:
    lines = dict(re.split(r"  +", line, maxsplit=1) for line in ablate("list", "--settings")[1].splitlines())
    assert list(lines) == list(Config.model_fields)
    assert all(text.endswith((".", ")")) for text in lines.values())
    assert lines["depth"] == "[12] Blocks of the encoder."
    assert json.loads(ablate("list", "--settings", "--json")[1])["settings"] == lines


def test_a_forgotten_recipe_is_named(there: Ablate) -> None:
    for words, expected in ((["plan", "s.yaml"], 0), (["run", "s.yaml", "steps=30", "--max-hours", "0"], 2)):
        status, _, errors = there(*words)
        assert status == expected
        assert errors.startswith("recipe digits; ")
        assert " has s with --recipe r" in errors.splitlines()[0]


def test_settings_that_make_no_difference_are_named(there: Ablate) -> None:
    for setting, named in (("steps=30", True), ("dropout=0.0", True), ("device=cpu", False), ("steps=31", False)):
        errors = there("plan", "s.yaml", "--recipe", "r.yaml", setting)[2]
        assert errors == (f"{setting}: makes no difference: leave it out to continue s@r\n" if named else "")


def test_a_run_ends_with_the_commands_that_come_next(there: Ablate) -> None:
    words = ["run", "s.yaml", "--recipe", "r.yaml"]
    status, output, errors = there(*words)
    assert (status, "recipe digits" in errors) == (0, False)
    *_, table, others = output.splitlines()
    assert table == "next    ablate table s@r"
    assert others.split("; ") == ["        ablate plot s@r", "ablate report s@r"]
    plan = json.loads(Path("runs/studies/s@r/plan.json").read_text())
    trial = Path("runs/trials") / plan["arms"][0]["trials"][0]["id"]
    trial.rename("gone")
    status, output, errors = there(*words, "--arm", "position=1d")
    assert (status, "next    ablate table s@r --interim   verdicts so far: 1 of 6" in output) == (0, True)
    assert "5 of 6 planned trials" in there("table", "s@r", "--interim")[1]
    Path("gone").rename(trial)


def test_a_study_is_shown_with_its_last_answer(there: Ablate) -> None:
    output = there("show", "s.yaml", "--recipe", "r.yaml")[1]
    for text in ("matter?", "none, 1d", "position=none: 60.00%", "position=none < position=1d", "s@r: On "):
        assert text in output
    assert "results   none in " in there("show", "model-shape")[1]
    shown = json.loads(there("show", "s.yaml", "--recipe", "r.yaml", "--json")[1])
    assert (shown["recipe"], list(shown["answers"])) == ("r", ["s@r"])
