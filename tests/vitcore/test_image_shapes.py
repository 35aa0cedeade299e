"""Images that are not square: the setting, the windows of stored images, the model, training and starting weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from photographs import packed, photographs
from PIL import Image
from scipy import stats
from timm.models.vision_transformer import VisionTransformer
from torchvision.transforms import AutoAugment, RandomResizedCrop, functional
from trainings import assert_same, finished

from commonfloor.options import ConfigError
from vitcore import Config, ViT
from vitcore.analysis.evals import find
from vitcore.data import image_ops
from vitcore.data.augment import AUGMENT, Staged
from vitcore.data.augment_stages import BoxOptions, RandomBox
from vitcore.data.splits import load
from vitcore.identity import trial_id
from vitcore.interop.timm_vit import from_timm, to_timm
from vitcore.interop.torchvision_vit import to_torchvision
from vitcore.training.pretrained import check_start, copy_weights

SMALL: dict[str, Any] = {"width": 16, "depth": 2, "heads": 2, "patch": 4, "steps": 4, "batch": 24, "evaluations": 2}


def wide(**settings: Any) -> Config:
    return Config(**(SMALL | {"image_size": "8x16"} | settings))


def test_a_square_is_one_trial_however_it_is_spelled() -> None:
    assert wide(image_size="8x8").image_size == 8
    assert trial_id(wide(image_size="8x8")) == trial_id(wide(image_size=8))
    assert len({trial_id(wide(image_size=size)) for size in (8, "8x16", "16x8")}) == 3
    assert (wide().image_shape, wide().grid) == ((8, 16), (2, 4))


@pytest.mark.parametrize("size", ["224", "8x", "0x8", "8x70000", 70_000, 8.0, [8, 16], True])
def test_another_size_is_refused(size: object) -> None:
    with pytest.raises(ConfigError, match=r"^image_size=.*: a whole number from 1 to 65,536, or height x width, such"):
        wide(image_size=size)


def test_a_patch_divides_both_sides() -> None:
    with pytest.raises(ConfigError, match=r"patch=4 does not divide image_size=8x18: one of 1, 2$"):
        wide(image_size="8x18")


@pytest.mark.parametrize("shape", [(8, 16), (16, 8)])
def test_logits_and_gradients_are_those_of_timm(shape: tuple[int, int]) -> None:
    sizes = {"embed_dim": 16, "depth": 2, "num_heads": 2, "num_classes": 10}
    theirs = VisionTransformer(img_size=shape, patch_size=4, **sizes).double().eval()
    torch.nn.init.normal_(theirs.pos_embed)
    ours = from_timm(theirs)
    assert ours.config.image_shape == shape
    for model, again in ((ours, theirs), (to_timm(ours), theirs)):
        images = torch.randn(3, 3, *shape, dtype=torch.float64, requires_grad=True)
        logits, expected = model(images), again(images)
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-6)
        gradient, wanted = (torch.autograd.grad(output.square().sum(), images)[0] for output in (logits, expected))
        torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "box"), [((8, 16), (0, 2, 24, 14)), ((12, 6), (8, 0, 16, 16)), ((6, 9), (0, 0, 24, 16))]
)
def test_a_file_gives_its_largest_centered_window(shape: tuple[int, int], box: tuple[int, ...], tmp_path: Path) -> None:
    """box: left, top, right and bottom of the window, in an image of 24 x 16 pixels."""
    folder = photographs(tmp_path, {"train/cat": 2, "train/dog": 2, "test/cat": 1, "test/dog": 1})
    data = load(wide(data=f"imagefolder:{folder}", image_size=f"{shape[0]}x{shape[1]}", patch=1))
    files = sorted((folder / "test").rglob("*.png"))
    for pixels, file in zip(data.test.pixels, files, strict=True):
        with Image.open(file) as image:
            expected = image.convert("RGB").resize((shape[1], shape[0]), Image.Resampling.BILINEAR, box=box)
        assert np.array_equal(pixels.permute(1, 2, 0).numpy(), np.asarray(expected))


def test_digits_and_packs_give_the_largest_window_of_their_square(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_DATA", str(tmp_path))
    folder = photographs(tmp_path / "files", {"train/cat": 4, "train/dog": 4, "test/cat": 2, "test/dog": 2})
    packed(folder, tmp_path)  # 12 pixels, of which evaluation sees 10
    for data, margin, side in (("digits", 0, 8), ("photos", 1, 10)):
        square, other = (load(wide(data=data, image_size=size, patch=1)).test for size in (side, "6x12"))
        stored = next(square.batches(2)) if margin == 0 else next(iter(square.pixels.split(2)))
        top = round((stored.shape[2] - side // 2) / 2)
        window = stored[:, :, top : top + side // 2, margin : margin + side]
        for image, piece in zip(next(other.batches(2)), window, strict=True):
            pillows = functional.resize(functional.to_pil_image(piece), [6, 12])
            assert torch.equal(image, functional.pil_to_tensor(pillows))


@pytest.mark.parametrize("name", AUGMENT)
def test_every_augmentation_gives_the_shape_on_every_path(name: str) -> None:
    config = wide(augment=name)
    augment = AUGMENT[name](config)
    stored = (10, 10) if augment.cuts else (8, 16)
    images = torch.randint(17, (6, 1, *stored), dtype=torch.uint8)
    rng_keys = torch.arange(6)
    augmented = augment(images, rng_keys)
    assert augmented.shape == (6, 1, 8, 16)
    if isinstance(augment, Staged):
        fixed = augment.apply(images, augment.choices(rng_keys, stored), True)
        assert fixed.shape == (6, 1, 8, 16)
        if not augment.cuts:  # boxes differ by rounding, which equalizing enlarges
            assert (fixed.int() - augmented.int()).abs().max() <= 1


@pytest.mark.parametrize(("stored", "size"), [((32, 32), "8x16"), ((24, 48), "8x16"), ((40, 20), "16x8")])
def test_random_boxes_are_those_of_torchvision_with_the_aspect_of_the_model(stored: tuple[int, int], size: str) -> None:
    config = wide(image_size=size)
    aspect = config.image_shape[1] / config.image_shape[0]
    torch.manual_seed(0)
    ratios = [aspect * 3 / 4, aspect * 4 / 3]
    theirs = np.array([RandomResizedCrop.get_params(torch.zeros(1, *stored), [0.2, 1.0], ratios) for _ in range(3000)])
    ours = RandomBox(config, BoxOptions(area=0.2)).choices(torch.arange(3000), stored).numpy()
    for weights in (*np.eye(4), [0, 0, 1, 1], [0, 0, 1, -1], [1, 0, 1, 0], [0, 1, 0, 1]):
        assert stats.ks_2samp(ours @ weights, theirs @ weights).pvalue > 1e-3


def test_translations_are_those_of_torchvision_along_each_axis() -> None:
    ours = {operation.apply: operation.amounts for operation in AUGMENT["randaugment"](wide()).parts[0].operations}
    theirs = AutoAugment()._augmentation_space(10, (8, 16))
    assert ours[image_ops.translate_x].max() == pytest.approx(theirs["TranslateX"][0].max())
    assert ours[image_ops.translate_y].max() == pytest.approx(theirs["TranslateY"][0].max())


EVERYTHING = {"augment": "flip-crop-randaugment", "augment.pad": 1, "mixup": 0.5, "cutmix": 1.0, "random_erasing": 0.5}


@pytest.mark.parametrize(
    "settings",
    [EVERYTHING, {"objective": "mae"}, {"augment": "flip-random-resized-crop", "position": "2d"}],
    ids=["classification", "masked autoencoder", "random boxes"],
)
def test_training_resumes_bit_exactly(settings: dict[str, Any]) -> None:
    config = wide(**settings)
    assert_same(finished(config, 2, 1), finished(config))


def test_a_start_from_a_square_resamples_its_table_as_pytorch_does() -> None:
    parent, child = (wide(**{"image_size": size, "position.antialias": False}) for size in (12, "8x16"))
    weights = ViT(parent).state_dict()
    check_start(child, parent)
    model = ViT(child)
    copy_weights(model, weights, "parent")
    image = weights["position.table"].T.view(1, 16, 3, 3)
    expected = F.interpolate(image, (2, 4), mode="bicubic")[0].flatten(1).T
    torch.testing.assert_close(model.position.table, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("old", "new"), [("8x16", 8), ("8x32", 16), (16, "8x32"), ("8x16", "16x8")])
def test_a_start_is_refused_where_the_old_grid_is_not_certain(old: Any, new: Any) -> None:
    with pytest.raises(
        ConfigError, match=rf"positions of patch=4 of image_size={old} do not fit patch=4 of image_size={new}:"
    ):
        check_start(wide(image_size=new), wide(image_size=old))
    check_start(wide(image_size=new, position="rope2d"), wide(image_size=old, position="rope2d"))
    check_start(wide(image_size=old), wide(image_size=old))


def test_what_takes_squares_only_says_so() -> None:
    refused = r"^image_size=8x16: .* takes square images only: a whole number$"
    with pytest.raises(ConfigError, match=refused):
        wide(objective="dino")
    with pytest.raises(ConfigError, match=refused):
        to_torchvision(ViT(wide(channels=3)))
    with pytest.raises(ConfigError, match=refused):
        find("dense@shapes").check(wide())


def test_an_eval_tests_at_another_shape() -> None:
    config = wide(image_size=8)
    entry = find("test@16x8")
    entry.check(config)
    model = ViT(config).eval()
    metrics = entry.compute(model).metrics
    other = load(wide(image_size="16x8"))
    with torch.no_grad():
        right = (model(other.standardize(other.test.pixels)).argmax(dim=1) == other.test.labels).double().mean()
    assert metrics["test_accuracy@16x8"] == pytest.approx(right.item())
    with pytest.raises(ConfigError, match="images of 8x18 pixels: patch=4 does not divide them"):
        find("test@8x18").check(config)


def test_evals_of_squares_keep_their_size_a_number() -> None:
    assert (find("test@16").size, find("test@16x8").size, find("test@patch2").size) == (16, "16x8", 0)
