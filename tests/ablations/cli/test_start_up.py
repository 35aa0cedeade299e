"""Commands and workers import no heavy package that they do not need, and say what to install if one is missing."""

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path

import commands
import pytest
import synthetic
from designs import write

from ablations.cli.app import EXTRAS, install_hint
from ablations.jobs import Job
from results import export
from results.load import load_studies
from vitcore.analysis.cost import measure
from vitcore.config import Config
from vitcore.identity import trial_id
from vitcore.training.optimizers import OPTIMIZER

# what takes a tenth of a second or more to import
HEAVY = {
    *("jinja2", "matplotlib", "numpy", "pandas", "pyarrow", "rich", "safetensors", "scipy", "sklearn", "submitit"),
    *("sympy", "timm", "torch", "torchvision", "triton"),
}
COMMAND = """
import sys
from ablations.cli import main
try:
    main()
finally:
    print(*sorted(name for name in sys.modules if "." not in name), file=sys.stderr)
"""
WORKER = """
import sys
from ablations.execution.launch import PLACE
from ablations.execution.messages import read_job
from ablations.execution.worker import Worker
worker = Worker(PLACE.validate_json(sys.argv[1]), sys.stdout)
for job in sys.argv[2:]:
    worker.serve(read_job(job))
print(*sorted(name for name in sys.modules if "." not in name), file=sys.stderr)
"""


def imported(folder: Path, code: str, *words: str) -> set[str]:
    """Return the heavy packages that a process has imported by its end."""
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {*done.stderr.splitlines()[-1].split()} & HEAVY


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folder")
    synthetic.write(folder / "runs", synthetic.position(seeds=2))
    export.write(load_studies(folder / "runs"), folder / "results.parquet")
    return folder


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        ("-h", {"rich"}),
        ("list", set()),
        ("status", {"rich"}),
        ("logs position-embedding", {"rich"}),
        ("table position-embedding --json", {"numpy", "scipy"}),
        ("table --runs results.parquet", {"numpy", "pyarrow", "scipy"}),
        ("compare runs runs position-embedding.yaml", {"numpy", "scipy"}),
        ("export --out all.csv", {"numpy", "pandas", "pyarrow", "scipy"}),
    ],
)
def test_command_imports_no_more_than_it_needs(folder: Path, words: str, needed: set[str]) -> None:
    assert imported(folder, COMMAND, *words.split()) <= needed


def test_worker_imports_no_more_than_its_trials_need(tmp_path: Path) -> None:
    small = {"width": 16, "depth": 1, "heads": 2, "patch": 4, "steps": 2, "batch": 16, "device": "cpu"}
    settings = [{"position": "relative"}]
    of_timm = ("lamb", "lion", "adan", "adabelief")
    settings += [{"optimizer": name} for name in OPTIMIZER if name not in of_timm]
    configs = [Config(**small, **own) for own in settings]
    jobs = [Job(trial_id(one), one.model_dump(), "arm", "study", description=asdict(measure(one))) for one in configs]
    order = {"runs": str(tmp_path), "data_dir": None, "plugins": {}, "gpu": False, "checkpoints": None}
    words = [json.dumps(order | {"keep_weights": "all"}), *(json.dumps(asdict(job)) for job in jobs)]
    found = imported(tmp_path, WORKER, *words)
    assert all((tmp_path / "trials" / job.id / "result.json").exists() for job in jobs)
    assert "torch" in found
    assert found <= {"torch", "numpy", "safetensors", "sympy", "triton"}


OF_USERS = """
import contextlib, io, sys
from ablations import cli
for line in sys.stdin.read().splitlines():
    sys.argv = ["ablate", *line.split()]
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            cli.main()
    except SystemExit as end:
        assert not end.code, (line, end.code)
    assert output.getvalue(), line
"""
OF_EACH = """
check s.yaml --recipe {0}.yaml
plan s.yaml --recipe {0}.yaml --runs {0}
run s.yaml --recipe {0}.yaml --runs {0} --seeds 1 --jobs 1
status s --runs {0}
logs s --runs {0}
export --runs {0} --out {0}.parquet
run s.yaml --recipe f.yaml --runs merged --plan-only
import {0}.parquet --runs merged
plan s.yaml --recipe {0}.yaml --from {0}.parquet
run s.yaml --recipe {0}.yaml --runs taken --seeds 1 --from {0}
verify {0}.parquet --sample 1 --recipe {0}.yaml
"""
OF_A_TABLE = """
import runs.csv --arm model --metric acc --baseline 1
table --runs runs.parquet
plot --runs runs.parquet
report --runs runs.parquet
compare runs.parquet runs.parquet
export --runs runs.parquet --out all.csv
table --runs merged
"""


def test_code_and_results_of_users_need_neither_torch_nor_vitcore(tmp_path: Path) -> None:
    """Neither can be imported in this process or in its workers."""
    train = [name for name, extra in EXTRAS.items() if extra == "train"]
    blocked = [*train, "vitcore"]
    (tmp_path / "sitecustomize.py").write_text(f"import sys; sys.modules.update(dict.fromkeys({blocked}))")
    own = tmp_path / "here"
    commands.planned(own)
    (own / "fit.py").write_text("def fit(lr=0.5): return {'score': lr}")
    write(own, "f", "{description: d, train: 'fit.py:fit', metrics: {score: {better: higher}}}")
    write(own, "s", commands.ONE_ARM)
    rows = [f"{model},{seed},0.{seed}{model}" for model in (1, 2) for seed in range(2)]
    (own / "runs.csv").write_text("\n".join(["model,seed,acc", *rows]))
    lines = OF_EACH.format("r") + OF_EACH.format("f") + OF_A_TABLE
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])])
    done = subprocess.run(
        [sys.executable, "-c", OF_USERS],
        cwd=own,
        env=os.environ | {"PYTHONPATH": path},
        input=lines.strip().replace("\n\n", "\n"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", ["run s.yaml", "plan s.yaml", "train steps=2", "check s.yaml"])
def test_what_trains_says_that_torch_is_missing(words: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "s.yaml").write_text("{question: q, baseline: {pool: cls}, factors: {pool: [gap]}}")
    train = [name for name, extra in EXTRAS.items() if extra == "train"]
    hidden = f"import sys; sys.modules.update(dict.fromkeys({train}))"
    (tmp_path / "sitecustomize.py").write_text(hidden)  # run by every Python, those of workers too
    command = [sys.executable, "-m", "ablations.cli", *words.split()]
    own = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path / "here", env=own, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "pip install 'vit-ablations[train]'" in done.stderr
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["s.yaml"]


def test_every_optional_package_is_known() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    extras = {key: names for key, names in project["optional-dependencies"].items() if key not in ("dev", "docs")}
    said = {name.partition(">")[0]: extra for extra, names in extras.items() for name in names}
    said["sklearn"] = said.pop("scikit-learn")
    assert said == EXTRAS
    assert install_hint(ModuleNotFoundError(name="nothing_of_this_name")) == ""
