"""Commands and workers import no heavy package that they do not need, and say what to install if one is missing."""

import json
import subprocess
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path

import commands
import pytest
import synthetic
from another_process import called_without
from designs import write

from ablations.cli.app import EXTRAS, install_hint
from ablations.jobs import Job
from results import export
from results.load import load_studies
from vitcore.analysis.cost import measure
from vitcore.config import Config
from vitcore.identity import trial_id
from vitcore.training.optimizers import OPTIMIZER

TRAIN = [name for name, extra in EXTRAS.items() if extra == "train"]
# what takes a tenth of a second or more to import
HEAVY = {
    *("jinja2", "matplotlib", "numpy", "pandas", "pyarrow", "rich", "safetensors", "scipy", "sklearn", "submitit"),
    *("sympy", "timm", "torch", "torchvision", "triton"),
}
COMMANDS = """
import sys
from ablations.cli import main
for words in sys.argv[1:]:
    sys.argv = ["ablate", *words.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, words
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


def imported(folder: Path, code: str, *words: str) -> list[set[str]]:
    """Return the heavy packages that a process has imported when it prints them."""
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [{*line.split()} & HEAVY for line in done.stderr.splitlines() if " sys " in line]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folder")
    synthetic.write(folder / "runs", synthetic.position(seeds=2))
    export.write(load_studies(folder / "runs"), folder / "results.parquet")
    return folder


@pytest.mark.parametrize(
    "needed",
    [
        {"list": set(), "-h": {"rich"}, "status": {"rich"}, "logs position-embedding": {"rich"}},
        {
            "table position-embedding --json": {"numpy", "scipy"},
            "compare runs runs position-embedding.yaml": {"numpy", "scipy"},
            "table --runs results.parquet": {"numpy", "pyarrow", "scipy"},
            "export --out all.csv": {"numpy", "pandas", "pyarrow", "scipy"},
        },
    ],
    ids=["without numpy", "with numpy"],
)
def test_commands_import_no_more_than_they_need(folder: Path, needed: dict[str, set[str]]) -> None:
    """They run in one process, so that each may import what an earlier one was allowed."""
    found = imported(folder, COMMANDS, *needed)
    for (words, allowed), packages in zip(needed.items(), found, strict=True):
        assert packages <= allowed, words


def test_worker_imports_no_more_than_its_trials_need(tmp_path: Path) -> None:
    small = {"width": 16, "depth": 1, "heads": 2, "patch": 4, "steps": 2, "batch": 16, "device": "cpu"}
    settings = [{"position": "relative"}]
    of_timm = ("lamb", "lion", "adan", "adabelief")
    settings += [{"optimizer": name} for name in OPTIMIZER if name not in of_timm]
    configs = [Config(**small, **own) for own in settings]
    jobs = [Job(trial_id(one), one.model_dump(), "arm", "study", description=asdict(measure(one))) for one in configs]
    order = {"runs": str(tmp_path), "data_dir": None, "plugins": {}, "gpu": False, "checkpoints": None}
    words = [json.dumps(order | {"keep_weights": "all"}), *(json.dumps(asdict(job)) for job in jobs)]
    (found,) = imported(tmp_path, WORKER, *words)
    assert all((tmp_path / "trials" / job.id / "result.json").exists() for job in jobs)
    assert "torch" in found
    assert found <= {"torch", "numpy", "safetensors", "sympy", "triton"}


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
    own = tmp_path / "here"
    commands.planned(own)
    (own / "fit.py").write_text("def fit(lr=0.5): return {'score': lr}")
    write(own, "f", "{description: d, train: 'fit.py:fit', metrics: {score: {better: higher}}}")
    write(own, "s", commands.ONE_ARM)
    rows = [f"{model},{seed},0.{seed}{model}" for model in (1, 2) for seed in range(2)]
    (own / "runs.csv").write_text("\n".join(["model,seed,acc", *rows]))
    lines = OF_EACH.format("r") + OF_EACH.format("f") + OF_A_TABLE
    ended = called_without([*TRAIN, "vitcore"], tmp_path, own, [line for line in lines.splitlines() if line])
    for line, (status, output, errors) in ended.items():
        assert (status, bool(output)) == (0, True), (line, errors)


def test_what_trains_says_that_torch_is_missing(tmp_path: Path) -> None:
    own = tmp_path / "here"
    own.mkdir()
    (own / "s.yaml").write_text("{question: q, baseline: {pool: cls}, factors: {pool: [gap]}}")
    ended = called_without(TRAIN, tmp_path, own, ["run s.yaml", "plan s.yaml", "train steps=2", "check s.yaml"])
    for line, (status, output, errors) in ended.items():
        assert (status, output, errors.count("\n")) == (2, "", 1), line
        assert "pip install 'vit-ablations[train]'" in errors
    assert [path.name for path in own.iterdir()] == ["s.yaml"]


def test_every_optional_package_is_known() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    extras = {key: names for key, names in project["optional-dependencies"].items() if key not in ("dev", "docs")}
    said = {name.partition(">")[0]: extra for extra, names in extras.items() for name in names}
    said["sklearn"] = said.pop("scikit-learn")
    assert said == EXTRAS
    assert install_hint(ModuleNotFoundError(name="nothing_of_this_name")) == ""
