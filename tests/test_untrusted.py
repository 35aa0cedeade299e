"""Files of others run no program, and write and delete nothing outside their own folder."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import synthetic
import torch
from in_process import Ablate, refusal
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from ablations.cli import figures
from ablations.execution import launch
from ablations.execution.launch import Place
from ablations.planning.saved_plans import save_plan
from ablations.study.reading import read_recipe
from results import export, store
from results.load import load_studies
from results.store import eval_files, lease
from vitcore.runtime import compile_cache


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set the user's cache folder, and unset the compiler's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv(compile_cache.CACHE, "")  # so that it is as before afterwards
    monkeypatch.delenv(compile_cache.CACHE)
    return tmp_path / "caches"


def test_workers_take_no_compiled_code_from_runs(tmp_path: Path, caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch unpickles its cache, so the cache lies in the user's folder with mode 0700."""
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    started_with = launch.worker_environment(Place(tmp_path, None), {})
    for name in (compile_cache.CACHE, "TRITON_CACHE_DIR"):
        assert str(tmp_path) not in started_with.get(name, "")
    compile_cache.compile_model(torch.nn.Linear(2, 2), backend="eager")
    cache = Path(os.environ[compile_cache.CACHE])
    assert cache == caches / "vit-ablations" / "compiled" / compile_cache.instruction_set()
    assert (caches / "vit-ablations").stat().st_mode & 0o777 == 0o700
    # PyTorch writes its guessable default in /tmp into the environment, where it looks like the user's.
    for given, used in (("/mine", "/mine"), (default_cache_dir(), str(caches))):
        monkeypatch.setenv(compile_cache.CACHE, given)
        compile_cache.use_private_cache()
        assert os.environ[compile_cache.CACHE].startswith(used)


def test_compiled_code_is_not_taken_from_a_folder_of_others(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another owner, a link, or a folder writable by others is refused in one line."""
    folder = caches / "vit-ablations"
    folder.mkdir(parents=True)

    def refused() -> None:
        with pytest.raises(ValueError, match="vit-ablations: holds code to run"):
            compile_cache.use_private_cache()
        assert compile_cache.CACHE not in os.environ

    folder.chmod(0o770)
    refused()
    folder.chmod(0o700)
    folder.rename(caches / "elsewhere")
    folder.symlink_to(caches / "elsewhere")
    refused()
    folder.unlink()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    refused()


HOOK = """
import os, sys
def record(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg"):
        if not (event == "socket.connect" and isinstance(arguments[1], (str, bytes))):  # of this machine, by a path
            note(event)
            raise PermissionError(f"{event} {arguments}")
def note(text):
    with open(os.environ["NETWORK_LOG"], "a") as file:
        file.write(f"{os.getpid()} {text}\\n")
note("started")
sys.addaudithook(record)
"""
OFFLINE = """
import socket, sys
from ablations import cli
for line in sys.stdin.read().splitlines():
    sys.argv = ["ablate", *line.split()]
    try:
        cli.main()
    except SystemExit as end:
        assert not end.code, (line, end.code)
try:
    socket.create_connection(("127.0.0.1", 9))
except PermissionError:
    pass
"""
COMMANDS_OFFLINE = (
    *("plan s.yaml -r r.yaml", "run s.yaml -r r.yaml --jobs 1", "status", "logs s", "table", "report"),
    *("export --out a.parquet", "compare runs a.parquet", "list", "clean"),
)


def test_training_and_reading_use_no_network(tmp_path: Path) -> None:
    config = {"data": "digits", "width": 16, "depth": 1, "heads": 2, "patch": 4, "pool": "gap", "steps": 2, "batch": 16}
    (tmp_path / "r.yaml").write_text(json.dumps({"description": "Small.", "config": config, "seeds": 1}))
    study = {"question": "Which?", "baseline": {"position": "1d"}, "factors": {"position": ["1d", "none"]}}
    (tmp_path / "s.yaml").write_text(json.dumps(study))
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(HOOK)
    log = tmp_path / "network"
    own = {"PYTHONPATH": str(tmp_path / "hook"), "NETWORK_LOG": str(log)}
    words = "\n".join(COMMANDS_OFFLINE)
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE], cwd=tmp_path, env=os.environ | own, input=words, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in log.read_text().splitlines()]
    command = lines[0][0]
    assert [line for line in lines if line[1] != "started"] == [[command, "socket.getaddrinfo"]]  # our own, the last
    assert len({pid for pid, _ in lines}) > 1  # the workers were watched too


OF_PROFILES = ("setup", "environment", "container", "extra", "srun", "checkpoints", "data_dir", "account")


@pytest.mark.parametrize("key", OF_PROFILES)
def test_a_recipe_adds_no_command_folder_or_account_to_a_job(tmp_path: Path, key: str) -> None:
    recipe = {"description": "d", "config": {}, "resources": {"cpus": 1, key: "CANARY"}}
    (tmp_path / "r.yaml").write_text(json.dumps(recipe))
    with pytest.raises(ValueError, match=rf"r.yaml: resources.{key}: only a profile says this"):
        read_recipe(str(tmp_path / "r.yaml"))


OUTSIDE = ("../../escaped", "/tmp/escaped", "..", ".", "", "a/b", "a\nb", "a\0b", "\u202e", None, 3)


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_is_no_name_becomes_no_path(tmp_path: Path, name: Any) -> None:
    trial = store.trial(tmp_path, "0" * 12)
    for path_of in (
        lambda: store.study_folder(tmp_path, name),
        lambda: store.trial(tmp_path, name),
        lambda: eval_files.eval_path(trial, name, ".json"),
        lambda: figures.figures_folder(tmp_path, "trials", name),
    ):
        with pytest.raises(ValueError, match="is not the name of a file or folder") as caught:
            path_of()
        assert str(caught.value).isprintable()


@pytest.fixture
def published(tmp_path: Path) -> Path:
    return synthetic.write(tmp_path / "runs", synthetic.position(seeds=1))


def test_plot_of_a_colleagues_export_stays_in_its_folder(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ablate: Ablate
) -> None:
    (found,) = load_studies(published)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("../../escaped", str(tmp_path / "escaped")):
        plan = found.plan.model_copy(update={"name": name})
        export.write([dataclasses.replace(found, plan=plan)], tmp_path / "theirs.parquet")
        before = sorted(tmp_path.rglob("*"))
        said = refusal(ablate, "plot", "--runs", "../theirs.parquet")
        assert "is not the name of a file or folder" in said
        assert sorted(tmp_path.rglob("*")) == before


def test_plan_of_another_name_than_its_folder_is_broken(published: Path) -> None:
    """Commands write to the folder that a plan names."""
    (path,) = published.glob("studies/*/plan.json")
    store.write_json(path, store.read_json(path) | {"name": "../../escaped"})
    with pytest.raises(store.Broken, match=r"is the plan of '\.\./\.\./escaped', not of its folder"):
        store.read_plans(published).all()


def test_result_that_names_no_attempt_is_broken(published: Path) -> None:
    """`clean` looks for weights in the attempt's folder."""
    path = sorted(published.glob("trials/*/result.json"))[0]
    content = store.read_json(path) | {"attempt": "../../../../outside"}
    path.unlink()
    store.write_json(path, content | {"checksum": store.checksum(content)})
    assert store.Trial(path.parent).state().reason.startswith("result.json: attempt: ")


def test_lease_adds_nothing_to_a_path(tmp_path: Path) -> None:
    """The nonce is part of the path of checkpoints in scratch space."""
    for written, read in (("../../../outside", ""), ("0123456789abcdef" * 2, "0123456789abcdef" * 2)):
        (tmp_path / "lease.json").write_text(json.dumps({**lease.own_lease().content(), "nonce": written}))
        assert lease.nonce(tmp_path) == read


@pytest.mark.parametrize("linked", ["trials", "trials/*", "trials/*/attempts", "trials/*/attempts/0001"])
def test_clean_removes_nothing_through_a_link(published: Path, tmp_path: Path, ablate: Ablate, linked: str) -> None:
    moved = sorted(published.glob(linked))[0]
    moved.rename(tmp_path / "mine")
    moved.symlink_to(tmp_path / "mine")
    for trial in published.glob("trials/*"):
        (trial / "attempts/0001/checkpoints").mkdir()
        (trial / "attempts/0001/checkpoints/000000001-00.safetensors").write_text("")
    before = sorted(tmp_path.rglob("*"))
    ended, _, said = ablate("clean", "--yes", "--keep-weights", "none", "--runs", str(published))
    assert (ended, f"{moved}: is a link" in said, said.count("\n")) == (2, True, 1)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "linked", ["trials", "trials/0", "trials/0/attempts", "trials/0/evals", "trials/0/attempts/0001"]
)
def test_no_attempt_is_made_through_a_link(tmp_path: Path, linked: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "runs" / linked).parent.mkdir(parents=True)
    (tmp_path / "runs" / linked).symlink_to(tmp_path / "mine")
    trial = store.trial(tmp_path / "runs", "0")
    for act in (
        lambda: trial.create({}),
        lambda: store.claim(trial, lease.Watch()),
        lambda: trial.reopen(lease.Watch(), None),
        trial.remove_checkpoints,
        lambda: eval_files.count_start(trial, "fewshot"),
        lambda: eval_files.write(trial, "fewshot", "", {"metrics": {}, "notes": {}}),
    ):
        with pytest.raises(ValueError, match=f"{linked}: is a link"):
            act()
    assert not list((tmp_path / "mine").iterdir())


def test_figures_are_not_drawn_over_what_a_link_names(published: Path, tmp_path: Path, ablate: Ablate) -> None:
    """A link in the place of a file is replaced, and a link in the place of a folder refused."""
    (folder,) = published.glob("studies/*")
    (folder / "figures").mkdir()
    (tmp_path / "mine").write_text("mine")
    (folder / "figures" / f"{folder.name}.png").symlink_to(tmp_path / "mine")
    assert ablate("plot", "--runs", str(published))[0] == 0
    assert (tmp_path / "mine").read_text() == "mine"
    shutil.rmtree(folder / "figures")
    (folder / "figures").symlink_to(tmp_path)
    assert "figures: is a link" in refusal(ablate, "plot", "--runs", str(published))


def test_turns_are_not_swept_through_a_link(published: Path, tmp_path: Path) -> None:
    """Past locks are removed by their numbers, and a user's folder may have such names."""
    (folder,) = published.glob("studies/*")
    (tmp_path / "years" / "2023").mkdir(parents=True)
    (folder / "turns").symlink_to(tmp_path / "years")
    with pytest.raises(ValueError, match="turns: is a link"):
        save_plan(published, store.read_plan(folder / "plan.json"))
    assert (tmp_path / "years" / "2023").exists()
