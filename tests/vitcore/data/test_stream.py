"""Packs in training: streamed images give the results of images in memory."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from in_process import Ablate, refusal
from photographs import cut_short, flip_byte, packed, photographs
from run_trials import called_serially
from torchvision.transforms.functional import center_crop
from trainings import assert_same, finished

from ablations.study.reading import read_recipe
from vitcore import Config, train
from vitcore.analysis.eval import restore_model
from vitcore.analysis.frozen_features import FewShot
from vitcore.analysis.interpret import inspect
from vitcore.analysis.other_images import OtherImages
from vitcore.config import merge
from vitcore.data import splits
from vitcore.data.splits import load
from vitcore.data.stream import Stored
from vitcore.runtime import host, memory
from vitcore.runtime.memory import evaluation_batch
from vitcore.training.run import Memory
from vitcore.training.state import Training

COUNTS = {"train/cat": 40, "train/dog": 41, "test/cat": 9, "test/dog": 8}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the packs `photos`, 24 x 24 pixels of which evaluation sees 21, and `small`, as JPEG."""
    root = tmp_path_factory.mktemp("stream")
    source = photographs(root / "source", COUNTS, (32, 24))
    packed(source, root, size=24)
    packed(source, root, "small", size=24, format="jpeg")
    return root


@pytest.fixture(autouse=True)
def at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATE_DATA", str(home))
    monkeypatch.delenv("ABLATE_PACKS", raising=False)


def tiny(**settings: Any) -> Config:
    defaults = {"data": "photos", "width": 8, "depth": 1, "heads": 2, "patch": 7, "steps": 12, "batch": 16}
    return Config(**(defaults | {"evaluations": 2, "augment": "flip-random-resized-crop", "dropout": 0.1} | settings))


def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "image_memory", lambda device: 0.0)


@pytest.mark.parametrize("name", ["photos", "small"])
@pytest.mark.parametrize("augment", ["none", "flip-crop", "random-resized-crop"])
def test_streamed_batches_are_the_resident_ones(augment: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(data=name, augment=augment)
    resident = Training(config, load(config).to(CPU))
    no_room(monkeypatch)
    streamed = Training(config, load(config).to(CPU))
    assert not isinstance(resident.data.train.pixels, Stored)
    assert isinstance(streamed.data.train.pixels, Stored)
    for step in (*range(12), 3, 3, 9):
        resident.step = streamed.step = step
        one, other = resident.batch(), streamed.batch()
        assert one.images.shape == (16, 3, 21, 21)
        assert one.images.is_contiguous()  # as images of other data, so that the rounding is equal
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.targets, other.targets)
    for part in ("val", "test"):
        whole, stored = (getattr(training.data, part) for training in (resident, streamed))
        assert torch.equal(torch.cat(list(whole.batches(5))), torch.cat(list(stored.batches(5))))
        assert whole.index.tolist() == stored.index.tolist()


def test_evaluation_sees_the_middle() -> None:
    """Evaluation sees torchvision's center crop, resampled for another size."""
    for size in (21, 14, 28):
        test = load(tiny(image_size=size)).to(CPU).test
        middle = center_crop(test.pixels, [21, 21])
        expected = F.interpolate(middle.float(), (size, size), mode="bilinear", antialias=True)
        seen = torch.cat(list(test.batches(100)))
        assert seen.dtype == torch.uint8
        assert (seen.float() - expected).abs().max() <= 1


def test_a_streamed_training_is_the_resident_one(monkeypatch: pytest.MonkeyPatch) -> None:
    resident = finished(tiny())
    no_room(monkeypatch)
    assert_same(finished(tiny()), resident)
    assert_same(finished(tiny(), 3, 4), resident)


def test_what_is_computed_later_is_the_same_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(position="sincos2d", pool="gap", dropout=0.0)
    model, found = restore_model(config, finished(config).weights), []
    for _ in range(2):
        seen = load(config).to(CPU)
        arrays, _ = inspect(model, seen, 7)
        found.append(
            (FewShot().compute(model).metrics, OtherImages("28").compute(model).metrics, arrays["images"].tolist())
        )
        no_room(monkeypatch)
    assert found[0] == found[1]
    assert found[0][0]["fewshot5_accuracy"] >= 0


def test_a_flipped_byte_ends_a_trial_without_result(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(home / "photos", tmp_path / "data" / "photos")
    path = tmp_path / "data" / "photos" / "shard-00004.bytes"
    flip_byte(path, 7)
    words = ["data=photos", "width=8", "depth=1", "heads=2", "patch=7", "steps=3", "batch=80"]
    places = ("--runs", str(tmp_path / "runs"), "--data-dir", str(tmp_path / "data"))
    status, _, errors = called_serially(monkeypatch, "train", *words, *places)
    assert (status, "damaged" in errors) == (1, True)
    assert not list((tmp_path / "runs").glob("trials/*/result.json"))
    (failure,) = (tmp_path / "runs").glob("trials/*/attempts/*/failure.json")
    assert str(path) in failure.read_text()
    assert json.loads(failure.read_text())["kind"] == "input"


def test_a_shard_cut_short_is_refused_before_anything_runs(home: Path, tmp_path: Path, ablate: Ablate) -> None:
    shutil.copytree(home / "photos", tmp_path / "photos")
    path = tmp_path / "photos" / "shard-00004.bytes"
    cut_short(path)
    places = ("--runs", str(tmp_path / "runs"), "--data-dir", str(tmp_path))
    assert f"{path}: damaged or half copied" in refusal(ablate, "train", "data=photos", "patch=7", *places)
    assert not (tmp_path / "runs").exists()


def test_evaluations_on_a_cpu_hold_as_many_images_as_64_mib_take() -> None:
    """A batch of evaluation takes 64 MiB of floats on a CPU, at most 512 images and at least 1; on a GPU 512."""
    sizes = {size: Config(data="digits", image_size=size, channels=3, patch=16) for size in (32, 224, 4096)}
    assert {size: evaluation_batch(one, CPU) for size, one in sizes.items()} == {32: 512, 224: 111, 4096: 1}
    assert evaluation_batch(sizes[224], torch.device("cuda")) == 512


@pytest.mark.slow
@pytest.mark.parametrize("name", ["imagenet", "imagenet100"])
def test_recipes_of_packs_train_on_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe's ViT-S/16 at 224 pixels trains on a streamed pack."""
    recipe = read_recipe(name)
    folder = photographs(tmp_path / "photos", {"train/a": 8, "train/b": 8, "val/a": 2, "val/b": 2}, (300, 260))
    packed(folder, tmp_path, recipe.config["data"], size=256)
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    no_room(monkeypatch)
    few = {"batch": 4, "steps": 3, "evaluations": 1, "val_fraction": 0.25, "device": "cpu"}
    config, run = Config(**merge(recipe.config, few)), Memory()
    outcome = train(config, run)
    assert (config.image_size, config.precision, outcome.status) == (224, "bf16", "finished")
    assert 0.3 < run.lines[-1]["train_loss"] < 1.5  # of two classes: log 2 to begin with


def test_room_is_a_quarter_of_what_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the narrowest limit, control groups included, is shared by a worker per core."""
    monkeypatch.setattr(memory, "host_limits", lambda: iter([64e9, 16e9]))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert memory.image_memory(CPU) == 1e9
    (tmp_path / "slurm" / "job").mkdir(parents=True)
    (tmp_path / "slurm" / "memory.max").write_text("1000\n")
    (tmp_path / "slurm" / "job" / "memory.max").write_text("max\n")
    assert list(host.group_limits(tmp_path, Path("/slurm/job"))) == [1000]
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    monkeypatch.setattr(memory, "host_limits", lambda: iter([16e9]))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert memory.image_memory(CPU) == 2e9
