"""Splits, fractions, order, folders of images, and errors for missing data."""

from pathlib import Path

import numpy as np
import pytest
import torch
from photographs import photographs
from PIL import Image
from sklearn.datasets import load_digits

from commonfloor.options import ConfigError
from vitcore import Config
from vitcore.data.builtin import BUILT_IN
from vitcore.data.dataset import moments
from vitcore.data.imagefolder import check_images, list_images
from vitcore.data.splits import Order, load


def test_five_seeds_test_every_digit_once() -> None:
    tested = [load(Config(seed=seed)).test.index for seed in range(10)]
    for repetition in (tested[:5], tested[5:]):
        assert np.array_equal(np.sort(np.concatenate(repetition)), np.arange(1797))
        assert {len(fold) for fold in repetition} == {359, 360}
    assert not np.array_equal(tested[0], tested[5])


def test_parts_of_a_trial_are_disjoint_and_complete() -> None:
    data = load(Config(seed=3))
    places = np.concatenate([part.index for part in (data.train, data.val, data.test)])
    assert np.array_equal(np.sort(places), np.arange(1797))
    assert len(data.val) == pytest.approx(0.1 * 1437, abs=5)
    images, labels = load_digits(return_X_y=True)
    assert np.array_equal(data.train.pixels.flatten(1).numpy(), images[data.train.index])
    assert np.array_equal(data.test.labels.numpy(), labels[data.test.index])


def test_fractions_are_nested_and_balanced() -> None:
    small, medium, full = (load(Config(data_fraction=f)) for f in (0.1, 0.3, 1.0))
    assert set(small.train.index) < set(medium.train.index) < set(full.train.index)
    for part, share in ((small, 0.1), (medium, 0.3)):
        classes = torch.bincount(part.train.labels)
        assert (classes - share * torch.bincount(full.train.labels)).abs().max() <= 0.5
        assert np.array_equal(part.val.index, full.val.index)
        assert np.array_equal(part.test.index, full.test.index)


def test_data_seed_alone_chooses_the_images() -> None:
    seeds = ({"seed": 1, "data_seed": 4}, {"seed": 2, "data_seed": 4}, {"seed": 1})
    one, two, other = (load(Config(data_fraction=0.3, **own)) for own in seeds)
    for part in ("train", "val", "test"):
        assert np.array_equal(getattr(one, part).index, getattr(two, part).index)
        assert not np.array_equal(getattr(one, part).index, getattr(other, part).index)


def test_standardized_images_have_unit_variance() -> None:
    data = load(Config())
    images = data.standardize(data.train.pixels)
    assert images.mean().item() == pytest.approx(0, abs=0.02)
    assert images.std().item() == pytest.approx(1, abs=0.02)
    assert load(Config(image_size=12)).train.pixels.shape[1:] == (1, 12, 12)


def test_order_is_a_permutation_an_epoch_wherever_it_is_entered() -> None:
    """Batches span epochs, and do not depend on the batches asked for before; the order of a seed never changes."""
    assert Order(n=8, seed=0).indices(0, 8).tolist() == [6, 2, 3, 7, 1, 0, 4, 5]
    order = Order(n=10, seed=0)
    seen = np.concatenate([order.indices(start, 4) for start in range(0, 40, 4)])
    for epoch in range(4):
        assert np.array_equal(np.sort(seen[10 * epoch : 10 * epoch + 10]), np.arange(10))
    assert not np.array_equal(seen[:10], seen[10:20])
    assert np.array_equal(Order(n=10, seed=0).indices(36, 4), seen[36:40])
    assert not np.array_equal(Order(n=10, seed=1).indices(0, 10), seen[:10])


def test_repeated_augmentation_is_deits_sampler() -> None:
    """An epoch has the places of DeiT's RASampler, and no two views of an image share a key."""
    plain, repeated = Order(n=10, seed=0), Order(n=10, seed=0, repeats=3)
    seen = np.concatenate([repeated.indices(start, 4) for start in range(0, 40, 4)])
    for epoch in range(4):
        permutation = torch.from_numpy(plain.indices(10 * epoch, 10))
        theirs = torch.repeat_interleave(permutation, repeats=3)[:10]  # RASampler's lines
        assert seen[10 * epoch : 10 * epoch + 10].tolist() == theirs.tolist()
    views = list(zip(seen.tolist(), repeated.epochs(0, 40).tolist(), strict=True))
    assert len(set(views)) == 40
    assert np.array_equal(Order(n=10, seed=0, repeats=3).epochs(7, 9), repeated.epochs(0, 16)[7:])
    assert np.array_equal(plain.epochs(0, 40), np.arange(40) // 10)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "fashion-mnist"])
def test_missing_data_say_how_to_get_them(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ABLATE_DATA", raising=False)
    for data_dir in (None, tmp_path):
        with pytest.raises(ValueError, match=f"--data-dir or ABLATE_DATA.*ablate data download {name}"):
            load(Config(data=name), data_dir)
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=str(tmp_path)):
        load(Config(data=name))


def test_mnist_is_read_from_the_files_torchvision_keeps(tmp_path: Path) -> None:
    """Files in torchvision's layout are read in order; a damaged archive beside them is refused."""
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for prefix, count in (("train", 60_000), ("t10k", 10_000)):
        pixels, labels = np.zeros((count, 28, 28), np.uint8), (np.arange(count) % 10).astype(np.uint8)
        pixels[:, 0, 0] = np.arange(count) % 251
        for name, magic, values in (("images-idx3", 0x0803, pixels), ("labels-idx1", 0x0801, labels)):
            header = np.array([magic, *values.shape], ">i4").tobytes()
            (raw / f"{prefix}-{name}-ubyte").write_bytes(header + values.tobytes())
    data = load(Config(data="mnist", data_fraction=0.01), tmp_path)
    assert data.test.index.tolist() == list(range(60_000, 70_000))
    assert data.train.pixels[:, 0, 0, 0].numpy().tolist() == (data.train.index % 251).tolist()
    (raw / "train-images-idx3-ubyte.gz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="damaged"):
        BUILT_IN["mnist"].read(tmp_path)
    for content in (b"no header at all", b""):
        (raw / "train-images-idx3-ubyte").write_bytes(content)
        with pytest.raises(ValueError, match="damaged"):
            BUILT_IN["mnist"].read(tmp_path)


def test_imagefolder_with_its_own_test_set(tmp_path: Path) -> None:
    """PATH/train and PATH/val are read in sorted order; sizes come from the images."""
    root = photographs(tmp_path, {"train/cat": 10, "train/dog": 10, "val/cat": 2, "val/dog": 3}, (8, 6))
    for file in (root / "val" / "cat").iterdir():
        Image.new("RGB", (8, 6), (100, 0, 0)).save(file)
    config = Config(data=f"imagefolder:{root}", patch=2)
    assert (config.image_size, config.channels, config.classes) == (6, 3, 2)
    data = load(config)
    assert (data.test.index.tolist(), data.test.labels.tolist()) == ([20, 21, 22, 23, 24], [0, 0, 1, 1, 1])
    assert (len(data.val), len(data.train)) == (2, 18)
    assert (data.test.pixels[:2, 0] == 100).all()
    pixels = torch.cat([data.train.pixels, data.val.pixels]).double()
    assert data.mean.flatten().tolist() == pytest.approx(pixels.mean(dim=(0, 2, 3)).tolist())
    assert data.std.flatten().tolist() == pytest.approx(pixels.std(dim=(0, 2, 3), correction=0).tolist())
    assert moments(np.eye(1, 256)) == ([0], [1]), "a constant channel is divided by 1"


def test_flat_imagefolder_is_split_alike_for_every_seed(tmp_path: Path) -> None:
    """Without train/, a fifth of each class is the test set for every seed; a class of three is in each part."""
    root = photographs(tmp_path, {"cat": 10, "dog": 15, "fox": 3}, (8, 6))
    (root / "cat" / "0000.png").rename(root / "cat" / "0000.jpg")
    one, two = (load(Config(data=f"imagefolder:{root}", patch=2, seed=seed)) for seed in (0, 1))
    assert torch.bincount(one.test.labels).tolist() == [2, 3, 1]
    assert np.array_equal(one.test.index, two.test.index)
    assert not np.array_equal(one.val.index, two.val.index)
    assert [part.labels.unique().tolist() for part in (one.train, one.val)] == [[0, 1, 2]] * 2


def test_all_broken_images_are_found_at_once(tmp_path: Path) -> None:
    root = photographs(tmp_path, {"cat": 5, "dog": 5}, (8, 6))
    check_images(list_images(root), 3)
    for name in ("cat/0004.png", "dog/0002.png"):
        (root / name).write_bytes((root / name).read_bytes()[:45])
    with pytest.raises(ConfigError, match=r"cat/0004\.png: cannot be read .*\(1 more file is"):
        check_images(list_images(root), 3)
