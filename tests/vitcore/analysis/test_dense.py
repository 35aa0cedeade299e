"""Linear segmentation from patch tokens, against scikit-learn and naive loops, on folders and on generated shapes."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import jaccard_score

from commonfloor.options import ConfigError
from vitcore.analysis.dense import (
    IGNORED,
    TokenProbe,
    confusions_of_image,
    masked_images,
    mean_iou,
    pixel_counts,
    read_mask,
    weighted,
)
from vitcore.analysis.evals import find as find_eval
from vitcore.analysis.frozen_features import LinearClassifier
from vitcore.config import Config
from vitcore.data.shuffle import random_order
from vitcore.data.splits import load
from vitcore.model.vit import ViT

CONFIG = {"width": 16, "depth": 1, "heads": 2, "patch": 2}


def folder(root: Path, sizes: list[tuple[int, int]] | None = None) -> Path:
    """Write a dataset `halves` of images, dark on the left and bright on the right, with masks of three classes."""
    for part in ("train", "val"):
        for kind in ("images", "masks"):
            (root / "halves" / part / kind).mkdir(parents=True)
        for number, (width, height) in enumerate(sizes or [(12, 12), (16, 12), (12, 20)]):
            rng = np.random.default_rng(number)
            pixels = rng.integers(0, 60, (height, width)).astype(np.uint8)
            mask = np.zeros((height, width), np.uint8)
            mask[:, width // 2 :] = 1
            mask[: height // 4] = 2
            mask[-1] = IGNORED
            pixels += 70 * mask.clip(0, 2)
            Image.fromarray(pixels).save(root / "halves" / part / "images" / f"{number}.png")
            Image.fromarray(mask).save(root / "halves" / part / "masks" / f"{number}.png")
    return root


def test_mean_iou_equals_scikit_learn() -> None:
    """A class that neither masks nor predictions have does not count; index 255 counts nowhere."""
    rng = np.random.default_rng(0)
    logits = torch.from_numpy(rng.normal(size=(5, 4, 4)))
    logits[4] = -100
    mask = rng.integers(0, 4, (13, 13)).astype(np.uint8)
    mask[rng.random((13, 13)) < 0.1] = IGNORED
    counts = confusions_of_image(logits, mask)
    predicted = F.interpolate(logits[None], (13, 13), mode="bilinear").argmax(dim=1)[0].numpy()
    known = mask != IGNORED
    assert mean_iou(counts) == pytest.approx(jaccard_score(mask[known], predicted[known], average="macro"))


def test_the_loss_is_that_over_pixels_with_the_logits_of_their_patches() -> None:
    """Scikit-learn, with a row for each pixel; ignored pixels have none."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(16, 3, generator=generator, dtype=torch.float64)
    mask = torch.randint(3, (12, 12), generator=generator).numpy().astype(np.uint8)
    mask[:4] = np.where(mask[:4] == 2, IGNORED, mask[:4])
    layer = LinearClassifier(3, 3, x.device)
    layer.fit(x, weighted(torch.from_numpy(pixel_counts(mask, (4, 4), 3))), 1e-2)
    rows = []
    labels = []
    for row in range(12):
        for column in range(12):
            if mask[row, column] != IGNORED:
                rows.append(x[4 * (row // 3) + column // 3].numpy())
                labels.append(mask[row, column])
    theirs = LogisticRegression(C=1 / (1e-2 * len(rows)), tol=1e-10, max_iter=10_000).fit(np.array(rows), labels)
    np.testing.assert_allclose(layer.weight.detach().numpy(), theirs.coef_, atol=1e-5)


def test_counts_of_pixels_follow_a_loop_where_patches_do_not_divide_the_mask() -> None:
    mask = np.random.default_rng(4).integers(0, 3, (11, 11)).astype(np.uint8)
    expected = np.zeros((9, 3))
    for row in range(11):
        for column in range(11):
            expected[3 * int((row + 0.5) / 11 * 3) + int((column + 0.5) / 11 * 3), mask[row, column]] += 1
    assert (pixel_counts(mask, (3, 3), 3) == expected).all()


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    return folder(tmp_path)


def test_a_folder_is_segmented_as_by_a_loop(homes: Path) -> None:
    """Brightness tells the classes, so that even tokens of an untrained model do; masks have several sizes."""
    model = ViT(Config(**CONFIG)).eval()
    found = find_eval("dense@halves").compute(model, homes)
    train, val = masked_images("halves", homes, 8, 1)
    probe = TokenProbe(model, load(model.config).with_levels(17, 256), train, random_order(3, "dense").tolist())
    right = known = 0
    for number in range(3):
        with torch.no_grad():
            states = list(model.states(probe.data.standardize(torch.from_numpy(val.image(number).copy())[None])))
        tokens = model.encoder.norm(states[-1])[0, model.prefix :].double()
        scores = probe.standardized(tokens) @ probe.layer.weight.T + probe.layer.bias
        mask = val.mask(number)
        enlarged = F.interpolate(scores.T.reshape(1, 3, 4, 4), mask.shape, mode="bilinear")[0].argmax(dim=0).numpy()
        right += int((enlarged == mask)[mask != IGNORED].sum())
        known += int((mask != IGNORED).sum())
    assert found.metrics["dense_pixel_accuracy@halves"] == pytest.approx(right / known)
    assert 0.5 < found.metrics["dense_miou@halves"] < found.metrics["dense_pixel_accuracy@halves"]
    save(homes, "val/masks/0.png", 1)
    assert find_eval("dense@halves").compute(model, homes).details["data_sha256"] != found.details["data_sha256"]


def test_masks_are_cropped_like_their_images(homes: Path) -> None:
    mask = read_mask(homes / "halves/val/images/1.png", homes / "halves/val/masks/1.png")
    assert mask.shape == (12, 12)
    assert (mask[6] == [0] * 6 + [1] * 6).all()


def save(root: Path, name: str, value: int, size: tuple[int, int] = (12, 12), mode: str = "L") -> None:
    Image.new(mode, size, value).save(root / "halves" / name)


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda root: (root / "halves/val/masks/1.png").unlink(), r"images/1\.png: .*masks has no file 1\.\*"),
        (lambda root: (root / "halves/val/images/1.png").unlink(), r"masks/1\.png: .*images has no file 1\.\*"),
        (
            lambda root: save(root, "val/masks/0.png", 0, (6, 12)),
            "0.png: 6 x 12 pixels, and its image has 12 x 12",
        ),
        (lambda root: save(root, "val/masks/0.png", 7), "masks/0.png: index 7: masks of training images end at 2"),
        (lambda root: save(root, "train/masks/0.png", 7, mode="RGB"), "masks/0.png: is an image of mode RGB"),
        (lambda root: (root / "halves/train").rename(root / "halves/training"), "train/images: no such folder"),
    ],
)
def test_what_is_wrong_is_named(homes: Path, break_it: object, message: str) -> None:
    break_it(homes)  # type: ignore[operator]
    with pytest.raises(ConfigError, match=message):
        find_eval("dense@halves").compute(ViT(Config(**CONFIG)).eval(), homes)


def test_unknown_data_and_models_without_known_tokens_are_refused() -> None:
    with pytest.raises(ConfigError, match="eval dense@nowhere: shapes, or a folder beside the packs"):
        find_eval("dense@nowhere").check(Config(**CONFIG))
    with pytest.raises(ConfigError, match="eval dense@shapes: the tokens of model=timm/resnet18 are not known"):
        find_eval("dense@shapes").check(Config(model="timm/resnet18"))


def test_shapes_are_the_same_everywhere_and_larger_than_small_images() -> None:
    """A digest of the first mask, and images of the model's size."""
    train, val = masked_images("shapes", None, 8, 3)
    assert train.image(0).shape == (3, 8, 8)
    assert train.mask(0).shape == (64, 64)
    assert set(np.unique(np.concatenate([val.mask(index) for index in range(len(val.names))]))) == {0, 1, 2, 3}
    assert not (train.mask(0) == val.mask(0)).all()
