"""What the packages `datasets` and `webdataset` themselves write and read, where they are installed.

`make test-frameworks` installs them and runs this file.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from other_formats import CLASSES, images
from photographs import packed, stored_images

from vitcore.data.formats import list_stored
from vitcore.data.formats.layout import Selection, braces
from vitcore.data.formats.tars import read_samples

pytestmark = pytest.mark.filterwarnings("default")  # of packages that are not ours


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package, with an empty cache and without a network or progress bars."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    package = pytest.importorskip("datasets", reason="make test-frameworks installs it")
    monkeypatch.setattr(package.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    package.disable_progress_bars()
    return package


@pytest.fixture
def saved(datasets: Any, folder: Path) -> Any:
    """The folder as a DatasetDict, its columns renamed and its rows shuffled with seed 3."""
    splits = {}
    for split in ("train", "test"):
        rows = images(folder, split)
        table = {
            "picture": [{"bytes": content, "path": path} for path, content, _ in rows],
            "label": [label for *_, label in rows],
        }
        kinds = {"picture": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))}
        made = datasets.Dataset.from_dict(table, features=datasets.Features(kinds))
        splits[split] = made.shuffle(seed=3).rename_column("label", "fine_label")
    return datasets.DatasetDict(splits)


def rows_of(saved: Any, datasets: Any) -> list[tuple[bytes, int]]:
    found = []
    for split in ("train", "test"):
        for row in saved[split].cast_column("picture", datasets.Image(decode=False)):
            found.append((row["picture"]["bytes"], row["fine_label"]))
    return found


def ours(name: str) -> list[tuple[bytes, int]]:
    listing = list_stored(name)
    assert listing.classes == CLASSES
    assert (len(listing.train), len(listing.test)) == (17, 7)
    return [(image.read(), int(label)) for image, label in zip(listing.files, listing.labels, strict=True)]


def test_saved_datasets_are_read_as_they_read_themselves(saved: Any, datasets: Any, tmp_path: Path) -> None:
    """Bytes, labels, order and names are equal: from disk in several files, and from Parquet shards."""
    saved.save_to_disk(tmp_path / "saved", num_shards={"train": 4, "test": 1})
    wanted = rows_of(datasets.load_from_disk(tmp_path / "saved"), datasets)
    assert ours(f"hf:{tmp_path}/saved") == wanted
    (tmp_path / "hub").mkdir()
    for number in range(3):
        part = saved["train"].shard(3, number, contiguous=True)
        part.to_parquet(tmp_path / "hub" / f"train-{number:05}-of-00003.parquet")
    saved["test"].to_parquet(tmp_path / "hub" / "test-00000-of-00001.parquet", batch_size=2)
    hub = datasets.load_dataset(str(tmp_path / "hub"))
    assert ours(f"parquet:{tmp_path}/hub") == rows_of(hub, datasets) == wanted


def test_files_of_an_imagefolder_are_embedded(datasets: Any, folder: Path, tmp_path: Path) -> None:
    """`datasets` reads a folder of images by paths and saves their bytes: the pack is the folder's."""
    loaded = datasets.load_dataset("imagefolder", data_dir=str(folder), drop_labels=False)
    loaded.save_to_disk(tmp_path / "saved")
    theirs = stored_images(packed(f"hf:{tmp_path}/saved", tmp_path))
    assert np.array_equal(theirs, stored_images(packed(folder, tmp_path / "other")))


def test_tars_are_read_as_webdataset_reads_them(folder: Path, tmp_path: Path) -> None:
    """Samples of its writer, with pickles among them: keys, bytes and labels in its order."""
    webdataset = pytest.importorskip("webdataset", reason="make test-frameworks installs it")
    pattern = f"{tmp_path}/shard-{{000..001}}.tar"
    with webdataset.ShardWriter(f"{tmp_path}/shard-%03d.tar", maxcount=9, verbose=0) as writer:
        for number, (path, content, label) in enumerate(images(folder, "train")):
            writer.write(
                {"__key__": f"{path[:3]}/{number:04}", "png": content, "cls": label, "meta.pyd": {"n": number}}
            )
    theirs = []
    for sample in webdataset.WebDataset(pattern, shardshuffle=False).decode(only=["cls"]):
        theirs.append((sample["png"], sample["cls"]))
    files = [(Path(name), name) for name in braces(pattern)]
    part = read_samples(files, Selection())
    assert [(image.read(), label) for image, label in zip(part.images, part.labels, strict=True)] == theirs
    expanded = webdataset.shardlists.expand_urls("{a,b{8..10}}-{00..01}")
    assert sorted(set(braces("{a,b{8..10}}-{00..01}"))) == sorted(expanded)
