"""Commands say in one line what they refuse, and write nothing."""

import os
import re
from pathlib import Path

import pytest
from in_process import Ablate, refusal

from ablations.execution import runner

BAD = [
    ("run positon-embedding", "unknown study 'positon-embedding'; did you mean 'position-embedding'?"),
    ("run digits", "digits: is one of the recipes, not a study: name a study, with --recipe digits"),
    ("plan s.yaml --recipe s.yaml", "s.yaml: is a study, not a recipe"),
    ("run r.yaml", "r.yaml: is a recipe, not a study"),
    ("run both.yaml", "both.yaml: unknown key 'config'"),
    ("plan s.yaml --recipe r.yaml compile=5", "compile=5: 'auto', true or false"),
    ("compare a b --margin 0.03", "--margin 0.03: needs --fail-on worse"),
    ("run s.yaml --recipe digitz", "unknown recipe 'digitz'"),
    ("run missing.yaml --recipe r.yaml", "missing.yaml: no such file"),
    ("run s.yaml --recipe r.yaml widht=8", "unknown key 'widht'; did you mean 'width'?"),
    ("run s.yaml --recipe r.yaml pool=max", "did you mean 'map'?; a plug-in's needs --plugin FILE"),
    ("plan s.yaml --recipe r.yaml classes=7", "position=none: classes=7: data=digits has 10"),
    ("train --recipe r.yaml channels=3", "channels=3: data=digits has 1"),
    ("run s.yaml recipe=r.yaml", "recipe=r.yaml: is an option: --recipe r.yaml"),
    ("table max_hours=3 data_dir=x format=csv", "format=csv: is an option: --format csv"),
    ("run s.yaml --recipe r.yaml lr=1 lr=2", "lr is set twice"),
    ("run s.yaml --recipe r.yaml position=2d", "position is what the study 's' varies"),
    ("run s.yaml --recipe r.yaml seed=3", "--seeds"),
    ("run s.yaml --recipe r.yaml data=cifar10", "data=cifar10: say where it is with --data-dir or ABLATE_DATA"),
    ("run s.yaml --recipe r.yaml --arm x*", "--arm x*: s@r has the arms position=none, position=1d"),
    ("run s.yaml --recipe r.yaml --runs s.yaml", "--runs s.yaml: is a file, not a run directory"),
    ("run s.yaml --recipe r.yaml --plugin none.py", "none.py: cannot be read (No such file or directory)"),
    ("run", "Missing argument 'STUDY"),
    ("run --recipe r.yaml lr=1", "name a study"),
    ("run s.yaml --seeds 0", "'--seeds' / '-s': Input should be greater than or equal to 1 (see ablate run -h)"),
    ("run s.yaml --max-hours nan", "'--max-hours': Input should be greater than or equal to 0"),
    ("run s.yaml --recipe r.yaml device=cuda", "no usable GPU"),
    ("plan s.yaml --recipe r.yaml device=cuda --probe", "no usable GPU"),
    ("run s.yaml --recipe r.yaml --plugin torn.py", "does not import: ModuleNotFoundError: No module named 'nowhere'"),
    ("submit s.yaml", "name a SLURM profile: --profile NAME|FILE, or `profile` in ablate.toml"),
    ("submit s.yaml --profile many.yaml", "many.yaml: gpus=many: a whole number from 0 to 1,000"),
    ("check points.yaml", "points.yaml: margin=3: below 1, as a share of the images (0.03 is 3 points)"),
    ("check unasked.yaml", "unasked.yaml: 'question' is missing"),
    ("check fast.yaml", "fast.yaml: config: lr=fast: a finite number above 0"),
    ("check axis.yaml", "axis.yaml: axes: patch: patch=3 does not divide image_size=8"),
    ("plan head.yaml --recipe r.yaml", "study 'head', baseline: head=2: one of linear, mlp"),
    ("plan part.yaml --recipe r.yaml", "claims=pool=cls: is the baseline, whose name is position=1d,pool=cls"),
    ("plan pair.yaml", "key 4 is not a word; several values are a list, such as [2, 4]"),
    ("plan accuracy.yaml", "did you mean 'test_accuracy'?"),
    ("run s.yaml --recipe r.yaml data=cifar10 --plan-only", "data=cifar10: say where it is"),
    (
        "plan colon.yaml",
        "are not allowed in this context (quote a value that contains ': ')",
    ),
    (
        "plan alike.yaml",
        "same trial: they differ only in threads, which is how a trial runs, not what it learns",
    ),
    ("run s.yaml --recipe r.yaml device=auto gpus=2", "gpus=2: no GPU here; device=cpu runs 2 processes without a GPU"),
    ("pln s.yaml", "ablate: No such command 'pln'"),
    ("train s.yaml", "'s.yaml' is not key=value"),
    ("run s", "unknown name 's'; did you mean the file 's.yaml'?"),
    ("plan ss.yml", "ss.yml: no such file; did you mean 's.yaml'?"),
    ("run s.yaml --recipe .", "--recipe .: is a folder: `ablate init .` writes a recipe"),
    ("table", "runs: no such run directory"),
    ("plot", "run a study first (`ablate run STUDY`), or give --runs"),
    ("table --out t.tex", "redirect what it prints with > FILE"),
    ("report --out rep.txt", "--out rep.txt: a report is a page: give a file that ends in .html"),
    ("init r.yaml", "r.yaml: is a file: a folder of class folders is needed"),
    ("init . --out x/y.yaml", "--out x/y.yaml: no such folder: x"),
    ("table --format pdf", "'pdf' is not one of 'md', 'latex'"),
    ("compare a b --fail-on better", "'--fail-on': 'better' is not one of 'worse'"),
    ("compare a published --fail-on worse", "--fail-on worse: published numbers are from another setting"),
    ("clean --runs none", "--runs none: no such run directory"),
    ("data download mnist", "say where: --data-dir DIR, or set ABLATE_DATA"),
    ("data download mnist --data-dir s.yaml/new", "s.yaml/new: Not a directory"),
    ("data download digits", "nothing to download for 'digits'"),
    ("verify missing.zip", "missing.zip: no such bundle, export or run directory"),
    ("gate lr=1 lr=2 --margin 1 --stream ../x", "--stream ../x: must start with a letter or digit"),
    ("data pack x y --size abc", "'--size': Input should be a valid integer"),
]
FILES = {
    "pair.yaml": "{question: q, baseline: {heads: 2}, factors: {heads: 2, 4}}",
    "accuracy.yaml": "{question: q, baseline: {position: 1d}, factors: {position: [none, 1d]}, metric: accuracy}",
    "both.yaml": "{question: q, baseline: {position: 1d}, factors: {position: [none, 1d]}, config: {steps: 20}}",
    "torn.py": "import nowhere",
    "many.yaml": "gpus: many",
    "points.yaml": "{description: d, config: {data: digits, steps: 9}, margin: 3}",
    "axis.yaml": "{description: d, config: {data: digits, steps: 9}, axes: {patch: [1, 2, 3]}}",
    "fast.yaml": "{description: d, config: {data: digits, steps: 9, lr: fast}}",
    "unasked.yaml": "{baseline: {position: 1d}, factors: {position: [none, 1d]}}",
    "head.yaml": "{question: q, baseline: {head: 2}, factors: {position: [none, 1d]}}",
    "part.yaml": "{question: q, baseline: {position: 1d, pool: cls}, factors: {position: [none], pool: [gap]}, "
    "claims: [pool=cls < pool=gap]}",
    "colon.yaml": "question: Heads: how many?",
    "alike.yaml": "{question: q, baseline: {position: 1d}, arms: {a: {threads: 2}}}",
}


@pytest.mark.parametrize(("words", "message"), BAD, ids=[words for words, _ in BAD])
def test_bad_input_is_one_line_and_writes_nothing(
    ablate: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, message: str
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    before = sorted(tmp_path.rglob("*"))
    errors = refusal(ablate, *words.split())
    assert errors.startswith("ablate")
    assert message in errors
    assert not re.search("Traceback|Errno", errors)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_study_for_a_gpu_is_planned_where_there_is_none(ablate: Ablate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    words = ("plan", "s.yaml", "--recipe", "r.yaml", "device=cuda")
    assert "GPU-hours on any GPU, from" in ablate(*words)[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [("run = 'here'", "ablate.toml: unknown key 'run'; did you mean 'runs'?"), ("runs = ", "ablate.toml: ")],
)
def test_settings_file_is_checked(ablate: Ablate, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "ablate.toml").write_text(text)
    assert message in refusal(ablate, "table")


def test_submit_takes_the_profile_of_the_settings_file(ablate: Ablate, tmp_path: Path) -> None:
    (tmp_path / "ablate.toml").write_text("profile = 'mine.yaml'")
    assert "profile mine.yaml: there is no such file" in refusal(ablate, "submit", "s.yaml")
    assert "profile other.yaml: there is no" in refusal(ablate, "submit", "s.yaml", "--profile", "other.yaml")


UNPLANNED = [
    ("table s lr=3", "s@r with lr=3: was not run in runs (there: s@r): `ablate run s lr=3 --recipe r.yaml` first"),
    (
        "table s position=2d",
        "was not run in runs: the study varies position: its table has every value",
    ),
    ("status s lr=3", "s@r with lr=3: was not run in runs (there: s@r): `ablate run s lr=3 --recipe r.yaml` first"),
    ("table pooling", "pooling@r: was not run in runs (there: s@r)"),
    ("status pooling lr=3", "pooling@r with lr=3: was not run in runs (there: s@r)"),
    ("plot s extra.yaml", "extra.yaml: no such file"),
    ("compare runs publishd", "publishd: no such run directory or exported file; did you mean 'published'?"),
    ("report --out /proc/x.html", "/proc/x.html: No such file or directory"),
    ("export --out s.yaml/a.csv", "s.yaml: File exists"),
    ("table s --columns ,", "columns=: one of arm, n, "),
]


@pytest.mark.parametrize(("words", "message"), UNPLANNED, ids=[words for words, _ in UNPLANNED])
def test_what_was_not_run_is_named_as_it_was_written(there: Ablate, words: str, message: str) -> None:
    """Neither hashes nor temporary names appear."""
    recipe = ("--recipe", "r.yaml") if words.split()[0] in ("table", "status", "plot", "report") else ()
    errors = refusal(there, *words.split(), *recipe)
    assert message in errors
    assert not re.search("[0-9a-f]{32}|@r\\+|Errno", errors)


@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_a_failed_download_is_not_bad_input_and_leaves_nothing(
    ablate: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("torchvision.datasets.utils._get_redirect_url", lambda url, **_: url)
    monkeypatch.setattr("torchvision.datasets.utils._urlretrieve", lambda _, file: Path(file).write_text("other"))
    before = sorted(tmp_path.rglob("*"))
    status, _, errors = ablate("data", "download", name, "--data-dir", "new/data")
    assert (status, errors.count("\n")) == (1, 1)
    assert "corrupted" in errors
    assert sorted(tmp_path.rglob("*")) == before


def test_a_download_is_whole_or_leaves_only_what_another_made(
    ablate: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Archives that are there are handed on, and what a killed download left is removed after a day."""
    theirs, words = tmp_path / "new" / "cifar-10-python.tar.gz", ("data", "download", "cifar10", "--data-dir", "new")
    archives: list[bool] = []

    def fetch(dataset: object, folder: Path) -> None:
        archives.append((folder / theirs.name).exists())
        (folder / "batches").mkdir()
        (folder / "batches" / "one").write_text("mine")
        theirs.write_text("theirs")
        if not online:
            raise OSError("no network")

    monkeypatch.setattr("vitcore.data.builtin.Cifar.fetch", fetch)
    online = False
    assert ablate(*words)[0] == 1
    assert {path.name for path in theirs.parent.rglob("*")} == {theirs.name}
    online, killed = True, theirs.parent / ".download-1"
    (killed / "batches").mkdir(parents=True)
    os.utime(killed, (0, 0))
    assert ablate(*words)[0] == 0
    assert archives == [False, True]
    assert {path.name for path in theirs.parent.rglob("*")} == {theirs.name, "batches", "one"}


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
    monkeypatch.setattr(runner, "run", lambda *some, **_: asked.append(some[3]) or runner.RunSummary())
    errors = ablate("run", "s.yaml", "--recipe", "r.yaml", "--jobs", "4")[2]
    assert asked == [workers]
    said = "(there is sbatch, and no allocation): 2 trials at a time instead of 4; for more: `ablate submit`"
    assert (said in errors) == (workers == 2)


def test_a_bug_of_ours_is_one_line_and_a_log(ablate: Ablate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**words: object) -> None:
        raise KeyError("a field\nof something")

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("ABLATE_TRACEBACK", raising=False)
    monkeypatch.setattr("ablations.cli.app.app", broken)
    status, _, errors = ablate()
    (log,) = tmp_path.glob("ablate-*.log")
    assert (status, errors.count("\n")) == (1, 1)
    assert all(text in errors for text in ("unexpected KeyError", str(log)))
    assert "in broken" in log.read_text()
