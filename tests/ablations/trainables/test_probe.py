"""Probes show whether code of the user's uses its seed and its settings, before anything is trained."""

import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from designs import write
from in_process import Ablate, refusal
from waits import left, wait_until

from ablations.execution.probe import is_time
from ablations.study.reading import read_recipe

SCRIPT = """
import argparse, json, os, random, time
parser = argparse.ArgumentParser()
for name, kind in (("lr", float), ("seed", int), ("steps", int), ("out", str), ("end", int)):
    parser.add_argument(f"--{name}", type=kind)
args = parser.parse_known_args()[0]  # swallows --momentum
open(os.environ["CALLS"], "a").write("x")
random.seed(args.seed)
loss = 1.0
with open(os.path.join(args.out, "metrics.jsonl"), "w") as curve:
    for step in range(1, args.steps + 1):
        loss -= args.lr * random.random() / (1 if step < args.end else 2)
        curve.write(json.dumps({"step": step, "loss": loss, "step_time": time.time()}) + "\\n")
        curve.flush()
        time.sleep(float(os.environ.get("PAUSE", 0)))
print(f"METRIC score={args.lr} latency={time.time()}")
"""
RECIPE = f"""
description: A script.
train: {sys.executable} train.py {{settings}} --seed {{seed}} --out {{folder}}
config: {{lr: 0.5, momentum: 0.9, end: 9, steps: 12}}
metrics: {{score: {{better: higher}}, latency: {{better: lower, unit: ms}}}}
seeds: 3
probe: {{steps: 4}}
"""
STUDY = "{question: q, baseline: {lr: 0.5, momentum: 0.9, end: 9}, factors: {FACTORS}}"
HERE = ("s.yaml", "--recipe", "r.yaml")


def prepare(folder: Path, factors: str, script: str = SCRIPT, recipe: str = RECIPE) -> None:
    """Write a script, its recipe and a study. factors: the study's, as YAML."""
    (folder / "train.py").write_text(dedent(script))
    write(folder, "r", recipe)
    write(folder, "s", STUDY.replace("{FACTORS}", f"{{{factors}}}"))


def scores_in(output: str) -> list[str]:
    """Return the numbers in the table of probes."""
    return [line.split("|")[2].strip() for line in output.splitlines() if line.startswith("| lr=")]


@pytest.fixture(autouse=True)
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that has one byte for each call of the script."""
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def test_a_setting_that_the_parser_swallows_is_refused(ablate: Ablate, tmp_path: Path, calls: Path) -> None:
    """The table says so for each arm, and nothing is trained or planned."""
    prepare(tmp_path, "lr: [0.5, 0.25], momentum: [0.9, 0.0]")
    status, output, errors = ablate("check", "r.yaml", "s.yaml")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in output.splitlines() if line.startswith("|")]
    baseline = "lr=0.5,momentum=0.9"
    assert [(row[0], row[2]) for row in cells[2:]] == [
        (f"{baseline}, once more", "the same numbers"),
        (f"{baseline}, seed 1", "differs"),
        (baseline, "baseline"),
        ("lr=0.25", "differs"),
        ("momentum=0.0", "the same numbers: no effect"),
    ]
    refused = "ablate: s@r: momentum=0.0 gave the baseline's numbers in a probe: the code ignores it, or the probe is"
    assert status == 2
    assert refused in errors
    assert refused in refusal(ablate, "run", *HERE)
    assert refused in refusal(ablate, "run", *HERE, "--plan-only")
    assert refused in refusal(ablate, "submit", *HERE, "--profile", "local")
    assert sorted(path.name for path in Path("runs").iterdir()) == ["probes"]
    assert calls.stat().st_size == 5


def test_a_script_without_the_seed_is_refused(ablate: Ablate, tmp_path: Path) -> None:
    prepare(tmp_path, "lr: [0.5, 0.25]", SCRIPT.replace("random.seed(args.seed)", "random.seed(1)"))
    status, _, errors = ablate("run", *HERE)
    assert status == 2
    assert "s@r: seed=0 and seed=1 gave the same numbers in a probe: the code ignores its seed" in errors
    assert not Path("runs/trials").exists()


def test_tables_say_that_a_script_is_not_deterministic(ablate: Ablate, tmp_path: Path) -> None:
    """It is allowed. Times, which never come twice, do not count. A setting without effect cannot be told."""
    script = SCRIPT.replace("random.seed(args.seed)", "random.seed()")
    prepare(tmp_path, "momentum: [0.9, 0.0]", script)
    status, output, _ = ablate("check", "r.yaml", "s.yaml")
    assert status == 0
    assert "differs in loss of the curve" in output
    assert output.count("cannot tell: two runs with one seed differ") == 2
    note = "not deterministic: two runs with one seed differed in loss of the curve"
    for seeds in ("1", "2"):
        assert ablate("run", *HERE, "--seeds", seeds)[0] == 0
        assert ablate("table", "s.yaml")[1].count(note) == 1
    (tmp_path / "again.yaml").write_text((tmp_path / "s.yaml").read_text())
    for words in (("margin=0.02", "--seeds", "2"), ("--no-probe", "--seeds", "3")):
        assert ablate("run", *HERE, *words)[0] == 0
        assert ablate("table", "s.yaml")[1].count(note) == 1
    assert ablate("run", "again.yaml", *HERE[1:])[0] == 0
    assert ablate("table", "again.yaml")[1].count(note) == 1


def test_times_are_known_by_whole_words_of_their_names(ablate: Ablate, tmp_path: Path) -> None:
    """`intersection` holds "sec" and `sentiment` holds "time", but they are no times."""
    script = "def train(run, lr=0.5, steps=12): return {'intersection_over_union': lr + run.seed, 'constant': 0.0}"
    metrics = "metrics: {intersection_over_union: {better: higher}, constant: {better: higher}}"
    (tmp_path / "iou.py").write_text(script)
    write(tmp_path, "r", f"{{description: d, train: 'iou.py:train', {metrics}, probe: {{steps: 4}}}}")
    write(tmp_path, "s", "{question: q, baseline: {lr: 0.5}, factors: {lr: [0.5, 0.25]}}")
    status, output, errors = ablate("check", "r.yaml", "s.yaml")
    assert status == 0, errors
    assert scores_in(output) == ["0.5000", "1.5000", "0.5000", "0.2500"]
    times = ("train_runtime", "samples_per_second", "step-time", "eval/latency", "stepTime", "FPS")
    assert all(map(is_time, times))
    assert not any(map(is_time, ("intersection", "sentiment.f1", "bisected_error")))


def test_a_setting_that_acts_later_is_declared(ablate: Ablate, tmp_path: Path, calls: Path) -> None:
    prepare(tmp_path, "end: [9, 8]")
    assert "end=8 gave the baseline's numbers" in ablate("run", *HERE)[2]
    prepare(tmp_path, "end: [9, 8]", recipe=f"{RECIPE}inert: [end]")
    status, output, _ = ablate("check", *HERE)
    assert (status, "the same numbers, as declared (inert)" in output) == (0, True)
    assert ablate("run", *HERE, "--seeds", "1")[0] == 0
    assert calls.stat().st_size == 4 + 2


def test_only_what_changed_is_probed_again(ablate: Ablate, tmp_path: Path, calls: Path) -> None:
    """A folder of code may hold the run directory."""
    (tmp_path / "code").mkdir()
    for factors, script, probes in (
        ("lr: [0.5, 0.25]", SCRIPT, 4),
        ("lr: [0.5, 0.25]", SCRIPT, 0),
        ("lr: [0.5, 0.25, 0.1]", SCRIPT, 1),
        ("lr: [0.5, 0.25, 0.1]", f"{SCRIPT}# edited", 5),
    ):
        prepare(tmp_path, factors, recipe=f"{RECIPE}folder: code\ncode: [.]")
        (tmp_path / "code/train.py").write_text(dedent(script))
        calls.write_text("")
        status, _, errors = ablate("check", "r.yaml", "s.yaml", "--runs", "code/runs")
        assert (status, calls.stat().st_size) == (0, probes), errors
    calls.write_text("")
    assert ablate("run", *HERE, "--runs", "code/runs", "--seeds", "1", "--plan-only")[2] == ""
    assert ablate("run", *HERE, "--runs", "code/runs", "--seeds", "1")[0] == 0
    assert calls.stat().st_size == 3


def test_a_probe_that_fails_names_its_arm(ablate: Ablate, tmp_path: Path, calls: Path) -> None:
    """Nothing is trained. Once the cause is gone, the same command goes on."""
    script = f"{SCRIPT}if args.lr < 0.5 and not os.path.exists('layers.txt'): raise KeyError('layers.txt')"
    prepare(tmp_path, "lr: [0.5, 0.25]", script)
    status, _, errors = ablate("run", *HERE)
    assert status == 1
    assert "ablate: probe of lr=0.25 failed: exit status 1: KeyError: 'layers.txt'; " in errors
    assert calls.stat().st_size == 3  # each once, also the one that failed
    assert not Path("runs/trials").exists()
    (tmp_path / "layers.txt").touch()
    calls.write_text("")
    assert ablate("check", "r.yaml", "s.yaml")[0] == 0
    assert calls.stat().st_size == 2


def test_a_probe_that_ends_before_the_metrics_may_be_too_short(ablate: Ablate, tmp_path: Path) -> None:
    script = SCRIPT.replace('print(f"METRIC', 'if args.steps >= 12: print(f"METRIC')
    prepare(tmp_path, "lr: [0.5, 0.25]", script)
    missing = "metric score was not reported: print METRIC score=NUMBER, or write it to metrics.json"
    advice = "`probe` (steps=4) may be too short: it must last until the metrics are reported"
    assert f" failed: {missing}; {advice}\n" in ablate("check", "r.yaml", "s.yaml")[2]
    prepare(tmp_path, "lr: [0.5, 0.25]", script, RECIPE.replace("steps: 4", "steps: 12"))
    assert ablate("check", "r.yaml", "s.yaml")[0] == 0


def test_functions_are_probed(ablate: Ablate, tmp_path: Path) -> None:
    """A baseline along a curve is compared with the main baseline."""
    script = "def train(run, lr=0.5, momentum=0.9, end=9, steps=12): return {'score': lr * steps + run.seed}"
    recipe = "{description: d, train: 'one.py:train', metrics: {score: {better: higher}}, probe: {steps: 4}}"
    study = "{question: q, baseline: {lr: 0.5}, factors: {lr: [0.5, 0.25]}, curves: {end: [9, 8]}}"
    (tmp_path / "one.py").write_text(script)
    write(tmp_path, "r", recipe)
    write(tmp_path, "s", study)
    status, output, errors = ablate("check", "r.yaml", "s.yaml")
    assert (status, "s@r: end=8 gave the baseline's numbers" in errors) == (2, True)
    assert scores_in(output) == ["2.0000", "3.0000", "2.0000", "2.0000", "1.0000", "1.0000"]


def test_without_a_probe_new_plans_are_warned_of_once(ablate: Ablate, tmp_path: Path) -> None:
    prepare(tmp_path, "lr: [0.5, 0.25]", recipe=RECIPE.replace("probe: {steps: 4}", ""))
    warning = "arms were not probed: to see that the seed and all settings count, add `probe: {steps: 20}` to "
    assert warning in ablate("check", "r.yaml", "s.yaml")[1]
    assert ablate("run", *HERE, "--plan-only")[2].count(warning) == 1
    assert warning not in ablate("run", *HERE, "--plan-only", "--seeds", "4")[2]


def test_without_a_record_submissions_are_warned_of(ablate: Ablate, tmp_path: Path) -> None:
    prepare(tmp_path, "lr: [0.5, 0.25]")
    _, _, errors = ablate("submit", *HERE, "--profile", "local", "--dry-run")
    assert errors == (
        f"ablate: s@r: its arms are not probed: `ablate check r.yaml {tmp_path}/s.yaml` runs each for a moment\n"
    )


BAD = [
    ("probe: {stepz: 4}", "probe: unknown key 'stepz'; did you mean 'steps'?"),
    ("probe: {steps: few}", "probe: steps=few: a whole number"),
    ("probe: {seed: 1}", "probe: seed: the seeds of a study are set with --seeds N"),
    ("probe: [steps]", "probe=['steps']"),
    ("inert: [stepz]", "inert: unknown key 'stepz'; did you mean 'steps'?"),
]


@pytest.mark.parametrize(("line", "message"), BAD)
def test_a_probe_that_cannot_be_is_refused_in_one_line(tmp_path: Path, line: str, message: str) -> None:
    prepare(tmp_path, "lr: [0.5, 0.25]", recipe=RECIPE.replace("probe: {steps: 4}", line))
    with pytest.raises(ValueError, match=r"r\.yaml: ") as refused:
        read_recipe(str(tmp_path / "r.yaml"))
    assert message in str(refused.value)


def test_only_code_of_the_users_has_probes(tmp_path: Path) -> None:
    recipe = "{description: d, config: {data: digits, steps: 9}, probe: {steps: 4}}"
    with pytest.raises(ValueError, match="probe: is for a command or function"):
        read_recipe(write(tmp_path, "r", recipe))


def test_a_setting_that_the_study_varies_makes_no_probe_short(ablate: Ablate, tmp_path: Path) -> None:
    prepare(tmp_path, "steps: [12, 9]")
    message = refusal(ablate, "run", *HERE)
    assert "s@r: probe: steps: the study varies it" in message
    assert "name another setting in the recipe's `probe`, or give --no-probe" in message
    assert ablate("run", *HERE, "--plan-only", "--no-probe")[0] == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_a_probe_that_was_killed(
    number: signal.Signals, ablate: Ablate, tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command begins the probe anew: with the rest of a curve, it would seem not deterministic."""
    prepare(tmp_path, "lr: [0.5, 0.25]")
    monkeypatch.setenv("PAUSE", "0.3")
    words = [sys.executable, "-m", "ablations.cli", "run", *HERE]
    curve = "runs/probes/first/trials/*/attempts/0001/folder/metrics.jsonl"
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as run:
        wait_until(lambda: any(tmp_path.glob(curve)), "a step")
        run.send_signal(number)
        _, errors = run.communicate()
    wait_until(lambda: not left(mark), "the end of all commands")
    if number is signal.SIGINT:
        assert (run.returncode, "interrupted: " in errors) == (130, True)
        return
    monkeypatch.setenv("PAUSE", "0")
    status, output, errors = ablate("check", "r.yaml", "s.yaml")
    assert (status, "not deterministic" in output) == (0, False), errors
