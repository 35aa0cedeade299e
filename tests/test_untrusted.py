"""Files of others run no program, and write and delete nothing outside their own folder."""

import copy
import dataclasses
import hashlib
import io
import itertools
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
import torch
import torchvision
from in_process import called, refused
from PIL import EpsImagePlugin, Image
from torch._inductor.runtime.cache_dir_utils import default_cache_dir
from torchvision.datasets import CIFAR10

from ablations.cli import figures
from ablations.execution import launch
from ablations.execution.launch import Place
from ablations.planning import jobs
from ablations.study.reading import read_recipe
from results import export, store
from results.load import load_studies
from results.store import eval_files, lease
from vitcore.data import datasets
from vitcore.data.imagefolder import read_folder
from vitcore.data.pack_sources import find_source
from vitcore.options import ConfigError
from vitcore.runtime import compile_cache

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


@pytest.fixture
def eps_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write two classes of PNGs, one of which holds EPS, and a Ghostscript that leaves a file when it is started."""
    for label in ("cat", "dog"):
        for split in ("train", "validation"):
            (tmp_path / "images" / split / label).mkdir(parents=True)
            for name in "acde":
                Image.new("RGB", (8, 8)).save(tmp_path / "images" / split / label / f"{name}.png")
    (tmp_path / "images" / "train" / "dog" / "b.png").write_bytes(EPS)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gs").write_text(f"#!/bin/sh\ntouch '{tmp_path}/started'\n")
    (tmp_path / "bin" / "gs").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/bin:/usr/bin")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    return tmp_path / "images"


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # timm's
def test_eps_named_png_starts_no_ghostscript(eps_folder: Path) -> None:
    """Folders, tars and timm's data sets open only an allow-list of formats, and replace no damaged image."""
    refused = r"cannot be read as an image \(none of BMP, GIF"
    with pytest.raises(ValueError, match=refused):
        find_source("timm:", eps_folder).open(5)  # after four cats and a dog
    (eps_folder / "validation").rename(eps_folder / "test")
    with pytest.raises(ConfigError, match=r"b.png: cannot be read as an image"):
        read_folder(eps_folder, 8, 3)
    with tarfile.open(eps_folder.parent / "images.tar", "w") as tar:
        tar.add(eps_folder, "")
    source = find_source(str(eps_folder.parent / "images.tar"), None)
    for place, name in enumerate(source.names):
        if "dog/b.png" not in name:
            source.open(place).load()
            continue
        with pytest.raises(ValueError, match=refused):
            source.open(place).load()
    assert not (eps_folder.parent / "started").exists()


def test_allowed_formats_are_read_whatever_their_suffix(tmp_path: Path) -> None:
    for number, form in enumerate(("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP", "MPO")):
        (tmp_path / f"class{number}").mkdir()
        for name in "abcde":
            content = io.BytesIO()
            Image.new("RGB", (8, 8), (200, 100, 50)).save(content, form)
            (tmp_path / f"class{number}" / f"{name}.png").write_bytes(content.getvalue())
    images = read_folder(tmp_path, 8, 3).images
    assert len(images) == 40
    assert np.ptp(images.astype(int), axis=0).max() <= 3  # JPEG and WebP lose a little


class Touch:
    """An object whose pickle creates a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


def as_python_2(pixels: np.ndarray, key: str, labels: list[int]) -> bytes:
    """Return a pickle as CIFAR's authors wrote theirs: protocol 2, text for bytes, and NumPy's names of that time."""
    content, (rows, columns) = pixels.tobytes(), pixels.shape
    size = b"(J%bJ%bt" % (struct.pack("<i", rows), struct.pack("<i", columns))
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    state = b"(K\x01%b%b\x89T%b%bt" % (size, dtype, struct.pack("<i", len(content)), content)
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R%bb" % state
    items = b"U\x04data%bU%c%b](%be" % (array, len(key), key.encode(), b"".join(b"K%c" % label for label in labels))
    return b"\x80\x02}(%bu." % items


def write_batches(kind: type[CIFAR10], home: Path, contents: Iterator[bytes]) -> None:
    """Write files in torchvision's layout, and set the names and sums of `kind` to theirs."""
    (home / kind.base_folder).mkdir(parents=True)
    for entry, content in zip(itertools.chain(kind.train_list, kind.test_list), contents, strict=False):
        (home / kind.base_folder / entry[0]).write_bytes(content)
        entry[1] = hashlib.md5(content).hexdigest()


@pytest.fixture(params=["cifar10", "cifar100"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[CIFAR10]:
    """Return torchvision's class for files of 20 images, whose sums a test may change."""
    name = request.param
    kind: type[CIFAR10] = getattr(torchvision.datasets, datasets.TORCHVISION[name])
    for files in ("train_list", "test_list"):
        monkeypatch.setattr(kind, files, copy.deepcopy(getattr(kind, files)))
    about = dataclasses.replace(datasets.BUILT_IN[name], train_size=20 * len(kind.train_list), test_size=20)
    monkeypatch.setitem(datasets.BUILT_IN, name, about)
    return kind


def test_cifar_is_read_as_torchvision_reads_it(
    kind: type[CIFAR10], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images, labels and order are equal, although only arrays of the pickles are read."""
    random, key = np.random.default_rng(0), "labels" if kind is CIFAR10 else "fine_labels"
    batches = (
        as_python_2(random.integers(0, 256, (20, 3072), np.uint8), key, random.integers(0, 10, 20).tolist())
        for _ in itertools.count()
    )
    write_batches(kind, tmp_path, batches)
    found = datasets.read_torchvision(kind.__name__.lower(), tmp_path)
    monkeypatch.setattr(kind, "_check_integrity", lambda self: True)  # which asks for a file with the names of classes
    monkeypatch.setattr(kind, "_load_meta", lambda self: None)
    for train, places in ((True, found.train), (False, found.test)):
        theirs = kind(tmp_path, train=train)
        assert np.array_equal(found.images[places], theirs.data.transpose(0, 3, 1, 2))
        assert found.labels[places].tolist() == theirs.targets


def test_cifar_pickle_calls_nothing(kind: type[CIFAR10], tmp_path: Path) -> None:
    """Nothing runs, whether the md5 sum matches or not."""
    write_batches(kind, tmp_path, itertools.repeat(pickle.dumps({"data": Touch(tmp_path / "ran")})))
    with pytest.raises(ValueError, match=r"holds .*, which is no part of an array"):
        datasets.read_torchvision(kind.__name__.lower(), tmp_path)
    with open(tmp_path / kind.base_folder / kind.train_list[0][0], "ab") as file:
        file.write(b" ")
    with pytest.raises(ValueError, match=f"{kind.train_list[0][0]}: damaged"):
        datasets.read_torchvision(kind.__name__.lower(), tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set the user's cache folder, and unset the compiler's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv(compile_cache.CACHE, "")  # so that it is as before afterwards
    monkeypatch.delenv(compile_cache.CACHE)
    return tmp_path / "caches"


def test_no_worker_takes_compiled_code_from_a_run_directory(
    tmp_path: Path, caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch unpickles its cache, so the cache lies in the user's folder with mode 0700."""
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    started_with = launch.worker_environment(Place(tmp_path, None), {})
    for name in (compile_cache.CACHE, "TRITON_CACHE_DIR"):
        assert str(tmp_path) not in started_with.get(name, "")
    compile_cache.compiled(torch.nn.Linear(2, 2), backend="eager")
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


OF_PROFILES = ("setup", "environment", "container", "extra", "srun", "checkpoints", "data_dir", "stage", "account")


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
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = load_studies(published)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("../../escaped", str(tmp_path / "escaped")):
        plan = found.plan.model_copy(update={"name": name})
        export.write([dataclasses.replace(found, plan=plan)], tmp_path / "theirs.parquet")
        before = sorted(tmp_path.rglob("*"))
        said = refused(monkeypatch, "plot", "--runs", "../theirs.parquet")
        assert "is not the name of a file or folder" in said
        assert sorted(tmp_path.rglob("*")) == before


def test_plan_of_another_name_than_its_folder_is_broken(published: Path) -> None:
    """Commands write to the folder that a plan names."""
    (path,) = published.glob("studies/*/plan.json")
    store.write_json(path, store.read_json(path) | {"name": "../../escaped"})
    with pytest.raises(store.Broken, match=r"is the plan of '\.\./\.\./escaped', not of its folder"):
        list(store.read_plans(published))


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
def test_clean_removes_nothing_through_a_link(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: str
) -> None:
    moved = sorted(published.glob(linked))[0]
    moved.rename(tmp_path / "mine")
    moved.symlink_to(tmp_path / "mine")
    for trial in published.glob("trials/*"):
        (trial / "attempts/0001/checkpoints").mkdir()
        (trial / "attempts/0001/checkpoints/000000001-00.safetensors").write_text("")
    before = sorted(tmp_path.rglob("*"))
    ended, _, said = called(monkeypatch, "clean", "--yes", "--keep-weights", "none", "--runs", str(published))
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
    ):
        with pytest.raises(ValueError, match=f"{linked}: is a link"):
            act()
    assert not list((tmp_path / "mine").iterdir())


def test_figures_are_not_drawn_over_what_a_link_names(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link in the place of a file is replaced, and a link in the place of a folder refused."""
    (folder,) = published.glob("studies/*")
    (folder / "figures").mkdir()
    (tmp_path / "mine").write_text("mine")
    (folder / "figures" / f"{folder.name}.png").symlink_to(tmp_path / "mine")
    assert called(monkeypatch, "plot", "--runs", str(published))[0] == 0
    assert (tmp_path / "mine").read_text() == "mine"
    shutil.rmtree(folder / "figures")
    (folder / "figures").symlink_to(tmp_path)
    assert "figures: is a link" in refused(monkeypatch, "plot", "--runs", str(published))


def test_turns_are_not_swept_through_a_link(published: Path, tmp_path: Path) -> None:
    """Past locks are removed by their numbers, and a user's folder may have such names."""
    (folder,) = published.glob("studies/*")
    (tmp_path / "years" / "2023").mkdir(parents=True)
    (folder / "turns").symlink_to(tmp_path / "years")
    with pytest.raises(ValueError, match="turns: is a link"):
        jobs.write(published, store.read_plan(folder / "plan.json"))
    assert (tmp_path / "years" / "2023").exists()
