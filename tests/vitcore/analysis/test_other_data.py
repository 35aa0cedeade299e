"""test@DATA: the trained model on the test images of other data, whose classes are matched by name."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from in_process import Ablate, refusal
from photographs import packed, photographs

from ablations.trainables.vit.commands.data_folders import data_folders
from commonfloor.options import ConfigError
from vitcore.analysis.evals import find
from vitcore.config import Config
from vitcore.data.builtin import BUILT_IN
from vitcore.data.decode import middle_window, open_image
from vitcore.data.lookup import describe
from vitcore.data.pack import find_pack, manifest
from vitcore.data.pack_sources import find_source
from vitcore.data.pack_writer import PackOptions, pack
from vitcore.data.splits import load
from vitcore.data.test_sets import find_test_set
from vitcore.model.vit import ViT

TINY = {"width": 16, "depth": 1, "heads": 2, "patch": 4, "image_size": 12}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory with the pack `pets` of three classes, and the folder `new` with two of them in other order."""
    home = tmp_path / "data"
    photographs(home / "new", {"dog": 3, "ant": 2})
    source = photographs(
        tmp_path / "pets", {f"{part}/{name}": 3 for part in ("train", "test") for name in ("ant", "cat", "dog")}
    )
    packed(source, home, "pets")
    monkeypatch.setenv("ABLATE_DATA", str(home))
    return home


@pytest.fixture
def model(home: Path) -> ViT:
    return ViT(Config(data="pets", **TINY)).eval()


def logits_of(model: ViT, files: list[Path]) -> torch.Tensor:
    """Return the logits (n, classes) of image files, standardized as the pack of its training."""
    content = manifest(find_pack("pets") or Path(), "pets")
    images = np.stack([middle_window(open_image(file), (12, 12), 3).transpose(2, 0, 1) for file in files]).astype(
        np.float64
    )
    mean, std = (np.reshape(values, (1, 3, 1, 1)) for values in (content.mean, content.std))
    with torch.no_grad():
        return model(torch.from_numpy((images - mean) / std).float())


def test_only_the_classes_of_the_other_data_compete(home: Path, model: ViT) -> None:
    files = sorted((home / "new" / "ant").iterdir()) + sorted((home / "new" / "dog").iterdir())
    logits = logits_of(model, files)[:, [0, 2]]  # ant and dog, without cat
    labels = torch.tensor([0, 0, 1, 1, 1])
    found = find("test@new").compute(model)
    assert found.metrics["test_accuracy@new"] == pytest.approx((logits.argmax(1) == labels).double().mean().item())
    loss = -logits.log_softmax(1)[range(5), labels].mean().item()
    assert found.metrics["test_loss@new"] == pytest.approx(loss, rel=1e-4)
    assert (found.details["images"], found.details["classes"]) == (5, 2)


def test_the_images_behind_a_name_are_identified_by_their_content(home: Path, model: ViT) -> None:
    before = find("test@new").compute(model).details["data_sha256"]
    image = min((home / "new" / "ant").iterdir())
    image.touch()
    assert find("test@new").compute(model).details["data_sha256"] == before
    image.write_bytes(max((home / "new" / "dog").iterdir()).read_bytes())
    assert find("test@new").compute(model).details["data_sha256"] != before


def test_the_pack_of_training_itself_gives_the_test_metrics(model: ViT) -> None:
    assert find("test@pets").compute(model).metrics["test_accuracy@pets"] == pytest.approx(accuracy_of(model))


def test_a_folder_of_training_itself_gives_the_test_metrics(home: Path) -> None:
    """Neither digits nor a folder without test/ has a test set of its own: the others are what the trial has seen."""
    photographs(home / "flat", {"ant": 5, "dog": 5})
    for name, config in {
        "flat": Config(data=f"imagefolder:{home / 'flat'}", **TINY),
        "digits": Config(data="digits", **TINY | {"image_size": 8}),
    }.items():
        model = ViT(config).eval()
        found = find(f"test@{name}").compute(model)
        assert found.details["images"] == len(load(config).test)
        assert found.metrics[f"test_accuracy@{name}"] == pytest.approx(accuracy_of(model))


def accuracy_of(model: ViT) -> float:
    data = load(model.config)
    with torch.no_grad():
        logits = model(torch.cat([data.standardize(some) for some in data.test.batches(4)]))
    return (logits.argmax(1) == data.test.labels).double().mean().item()


def test_images_may_have_several_labels_or_none(home: Path, model: ViT, tmp_path: Path) -> None:
    """The lists follow the file names, not the classes; an image without labels is left out."""
    source = photographs(tmp_path / "val", {"ant": 2, "cat": 2, "dog": 2})
    files = [
        source / folder / name
        for folder, name in zip(("ant", "ant", "cat", "cat", "dog", "dog"), "ebdfac", strict=True)
    ]
    for old, new in zip(sorted(source.glob("*/*")), files, strict=True):
        old.rename(new.with_suffix(".png"))
    files = sorted((file.with_suffix(".png") for file in files), key=lambda file: file.name)
    predicted = logits_of(model, files).argmax(1).tolist()
    label_sets = [[label, (label + 1) % 3] for label in predicted]  # of a, b, c ...
    label_sets[1:4] = [[], [(predicted[2] + 1) % 3], [(predicted[3] + 1) % 3, (predicted[3] + 2) % 3]]
    (tmp_path / "real.json").write_text(json.dumps(label_sets))
    plain = find_source(str(source), None, tests_alone=True)
    pack("real", plain.with_label_sets(tmp_path / "real.json"), home, PackOptions(size=12))
    found = find("test@real").compute(model)
    assert found.metrics == {"test_accuracy@real": pytest.approx(3 / 5)}
    assert found.details["images"] == 5
    assert "no loss" in found.notes[0]


def test_a_pack_of_test_images_alone_trains_nothing(home: Path, ablate: Ablate, tmp_path: Path) -> None:
    photographs(tmp_path / "v2", {"ant": 1, "cat": 1})
    assert ablate("data", "pack", "v2", str(tmp_path / "v2"), "--test-only")[0] == 0
    assert len(find_test_set("v2").load(12, 3)) == 2
    assert "data=v2: has test images alone" in refusal(
        ablate, "train", "data=v2", "image_size=12", "patch=4", "steps=1"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[0]]", "labels: of 1 images, not of the 2 test images"),
        ("[[0, 1], 1]", "a JSON list with a list of labels for each test image"),
        ("[[0], [7]]", "labels: 7: 0 to 1, the places of the 2 sorted classes"),
        ("{}", "a JSON list with a list of labels for each test image"),
    ],
)
def test_a_wrong_file_of_labels_is_refused(home: Path, ablate: Ablate, tmp_path: Path, text: str, message: str) -> None:
    photographs(tmp_path / "v2", {"ant": 1, "cat": 1})
    labels = tmp_path / "labels.json"
    labels.write_text(text)
    words = ("data", "pack", "v2", str(tmp_path / "v2"), "--test-only", "--labels", str(labels))
    assert f"{labels}: {message}" in refusal(ablate, *words)
    assert not (home / "v2").exists()


def test_labels_need_a_file_name_for_each_image(home: Path, ablate: Ablate, tmp_path: Path) -> None:
    """They are sorted by it, so images that share one, or have none, would get labels of others."""
    source = photographs(tmp_path / "v2", {"ant": 1, "cat": 1})
    (tmp_path / "labels.json").write_text("[[0], [1]]")
    words = ("--test-only", "--labels", str(tmp_path / "labels.json"))
    assert "no file names" in refusal(ablate, "data", "pack", "v2", f"timm:{source}", *words)
    for file in source.glob("*/*"):
        file.rename(file.with_name("same.png"))
    assert "two test images are called same.png" in refusal(ablate, "data", "pack", "v2", str(source), *words)


def test_other_classes_are_refused_with_what_to_do(home: Path, model: ViT) -> None:
    photographs(home / "numbers", {"0": 2, "1": 2})
    with pytest.raises(ConfigError, match=r"eval test@numbers: class '0' is none of the 3 .*\(ant, cat, dog .*rename"):
        find("test@numbers").check(model.config)
    with pytest.raises(ConfigError, match="test@mnist: images of 1 channels"):
        find("test@mnist").check(model.config)
    with pytest.raises(ConfigError, match="nothing: one of digits"):
        find("test@nothing").check(model.config)


def test_ablate_toml_may_name_a_folder_elsewhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATE_PACKS", "")  # restored after the test
    (home / "new").rename(home.parent / "elsewhere")
    data_folders(None, named={"New": str(home.parent / "elsewhere")}).use()
    assert find_test_set("New").class_names == ("ant", "dog")


def test_images_of_more_levels_are_scaled_to_those_of_training() -> None:
    """Digits have 17 levels: an image of 255 counts as their 16."""
    data = load(Config(data="digits"))
    scaled = data.with_levels(17, 256)
    full = torch.full((1, 1, 8, 8), 255, dtype=torch.uint8)
    torch.testing.assert_close(scaled.standardize(full), data.standardize(full // 255 * 16))


def test_built_in_data_have_a_name_for_each_class() -> None:
    for name, built_in in BUILT_IN.items():
        assert len(set(built_in.about.class_names)) == describe(name).classes
