"""Corruptions against SciPy, Pillow, Matplotlib and loops from the published definitions; the evals that use them."""

import io
import math

import numpy as np
import pytest
import torch
from matplotlib.colors import hsv_to_rgb, rgb_to_hsv
from PIL import Image
from scipy import ndimage
from torch import Tensor

from vitcore.analysis import corruptions
from vitcore.analysis.corruptions import CORRUPTIONS, Draws, corrupt
from vitcore.analysis.evals import find
from vitcore.analysis.predictions import is_imagenet
from vitcore.config import Config
from vitcore.data.splits import load
from vitcore.keyed_random import image_keys
from vitcore.model.vit import ViT

SIZE = 20


def keys(count: int) -> Tensor:
    return image_keys(0, np.zeros(count, np.int64), np.arange(count))


def pictures(count: int = 2, size: int = SIZE, channels: int = 3) -> Tensor:
    """Return smooth random images with values from 0 to 1 (count, channels, size, size)."""
    noise = np.random.default_rng(size).normal(size=(count, channels, size, size))
    smooth = ndimage.gaussian_filter(noise, (0, 0, 1.5, 1.5))
    bytes_ = np.clip(127 + 200 * smooth, 0, 255).round()
    return torch.from_numpy(bytes_).float() / 255


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.parametrize(("size", "channels"), [(SIZE, 3), (7, 1)])
def test_an_image_is_corrupted_alike_in_every_batch_and_each_differently(kind: str, size: int, channels: int) -> None:
    images = (pictures(1, size, channels).expand(3, -1, -1, -1) * 255).to(torch.uint8)
    found = corrupt(images, kind, 5, keys(3))
    assert (found.shape, found.dtype) == (images.shape, torch.uint8)
    alone = corrupt(images[1:2], kind, 5, keys(3)[1:2])
    assert (found[1:2].int() - alone.int()).abs().max() <= 1  # rounding
    is_random = kind not in {"defocus-blur", "zoom-blur", "brightness", "contrast", "pixelate", "jpeg-compression"}
    assert torch.equal(found[0], found[1]) != is_random
    assert not torch.equal(found[0], images[0])


def test_noise_has_the_published_moments() -> None:
    x = torch.full((4, 3, 64, 64), 102 / 255)
    draws = Draws(keys(4), "x")
    noise = corruptions.gaussian_noise(x, 0.1, draws) - x
    assert noise.mean().item() == pytest.approx(0, abs=0.002)
    assert noise.std().item() == pytest.approx(0.1, rel=0.02)
    shot = corruptions.shot_noise(x, 5, draws) * 5
    frequency = [(shot == count).double().mean().item() for count in range(6)]
    poisson = [math.exp(-2) * 2**count / math.factorial(count) for count in range(6)]
    assert frequency == pytest.approx(poisson, abs=0.006)
    impulse = corruptions.impulse_noise(x, 0.2, draws)
    assert (impulse == 1).double().mean().item() == pytest.approx(0.1, abs=0.005)
    assert (impulse == 0).double().mean().item() == pytest.approx(0.1, abs=0.005)


@pytest.mark.parametrize(("mode", "theirs", "truncate"), [("edge", "nearest", 4), ("symmetric", "reflect", 3)])
def test_a_gaussian_blur_equals_scipy(mode: str, theirs: str, truncate: int) -> None:
    x = pictures()
    wanted = ndimage.gaussian_filter(x.double().numpy(), (0, 0, 7, 7), mode=theirs, truncate=truncate)
    np.testing.assert_allclose(corruptions.gaussian_blur(x, 7, truncate, mode).numpy(), wanted, atol=1e-6)


@pytest.mark.parametrize(("radius", "blur", "taps"), [(0.5, 0.6, 3), (8, 0.5, 3), (10, 0.5, 5)])
def test_a_defocus_blur_correlates_with_a_smooth_disk(radius: float, blur: float, taps: int) -> None:
    x = pictures()
    span = np.arange(-10, 11) if radius > 8 else np.arange(-8, 9)
    kernel = np.array([[float(i * i + j * j <= radius**2) for i in span] for j in span])
    kernel /= kernel.sum()
    weights = np.exp(-((np.arange(taps) - taps // 2) ** 2) / (2 * blur**2))
    for axis in (0, 1):
        kernel = ndimage.correlate1d(kernel, weights / weights.sum(), axis, mode="mirror")
    wanted = [ndimage.correlate(channel, kernel, mode="mirror") for channel in x[0].double().numpy()]
    found = corruptions.defocus_blur(x, (radius, blur), Draws(keys(2), "x"))[0]
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-5)


def test_pixels_behind_glass_are_copied_one_after_the_other() -> None:
    reach, size = 2, 9
    moves = torch.randint(-reach, reach, (3, 2, size, size), generator=torch.Generator().manual_seed(0))
    found = corruptions.glass_sources(moves, reach)
    for number in range(3):
        image = np.arange(size * size).reshape(size, size)
        for row in range(size - reach, reach, -1):
            for column in range(size - reach, reach, -1):
                down, right = moves[number, :, row, column].tolist()
                image[row, column] = image[row + down, column + right]
        assert found[number].tolist() == image.flatten().tolist()


@pytest.mark.parametrize("degrees", [-45.0, 30.0, -115.0])
def test_a_motion_blur_is_a_weighted_mean_along_a_line(degrees: float) -> None:
    """ImageMagick's definition, with the edge's pixels outside the image."""
    x = pictures(1)
    weights = [math.exp(-step * step / (2 * 2.5**2)) for step in range(7)]
    wanted = torch.zeros_like(x)
    for row in range(SIZE):
        for column in range(SIZE):
            for step, weight in enumerate(weights):
                down = math.ceil(step * math.sin(math.radians(degrees)) - 0.5)
                right = math.ceil(step * math.cos(math.radians(degrees)) - 0.5)
                source = x[0, :, min(max(row + down, 0), SIZE - 1), min(max(column + right, 0), SIZE - 1)]
                wanted[0, :, row, column] += weight / sum(weights) * source
    found = corruptions.blur_along(x, 3, 2.5, torch.tensor([degrees]))
    assert ((wanted * 255 + 1e-3).floor() / 255 - found).abs().max() < 1e-5


@pytest.mark.parametrize("zoom", [1.0, 1.07, 2.25])
def test_a_zoom_equals_scipy(zoom: float) -> None:
    x = pictures(1)
    cut = math.ceil(SIZE / zoom)
    top = (SIZE - cut) // 2
    wide = ndimage.zoom(x[0, :, top : top + cut, top : top + cut].double().numpy(), (1, zoom, zoom), order=1)
    trim = (wide.shape[1] - SIZE) // 2
    wanted = wide[:, trim : trim + SIZE, trim : trim + SIZE]
    np.testing.assert_allclose(corruptions.zoomed(x, zoom)[0].numpy(), wanted, atol=1e-5)


def test_brightness_raises_the_value_of_hue_saturation_and_value() -> None:
    x = pictures()
    hsv = rgb_to_hsv(x.permute(0, 2, 3, 1).double().numpy())
    hsv[..., 2] = np.clip(hsv[..., 2] + 0.4, 0, 1)
    found = corruptions.brightness(x, 0.4, Draws(keys(2), "x")).permute(0, 2, 3, 1)
    np.testing.assert_allclose(found.numpy(), hsv_to_rgb(hsv), atol=1e-5)


def test_large_pixels_and_jpeg_equal_pillow() -> None:
    images = (pictures() * 255).round().to(torch.uint8)
    pixels = Image.fromarray(images[0].permute(1, 2, 0).numpy())
    side = int(SIZE * 0.65)
    box = pixels.resize((side, side), Image.Resampling.BOX).resize((SIZE, SIZE), Image.Resampling.BOX)
    found = corrupt(images, "pixelate", 5, keys(2))[0].permute(1, 2, 0).numpy()
    assert np.abs(found.astype(int) - np.asarray(box)).max() <= 1
    file = io.BytesIO()
    pixels.save(file, "JPEG", quality=40)
    assert np.array_equal(corrupt(images, "jpeg-compression", 5, keys(2))[0].permute(1, 2, 0), Image.open(file))


class Highest(Draws):
    """Draws that are the highest possible numbers, with a small difference between them."""

    def uniform(self, name: str, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        step = torch.arange(math.prod(shape), dtype=torch.float64).view(1, *shape) % 3
        return (high - 0.1 * step).expand(len(self.rng_keys), *shape)


def test_a_fractal_is_made_of_squares_and_diamonds() -> None:
    """A loop sets each point to the mean of four neighbors; the grid wraps around at its edges."""
    size, decay = 8, 2.0
    heights = np.zeros((size, size))
    step, wobble = size, 100.0
    while step > 1:
        half = step // 2
        for start, diagonal in (((half, half), True), ((0, half), False), ((half, 0), False)):
            fresh = heights.copy()
            count = 0
            for row in range(start[0], size, step):
                for column in range(start[1], size, step):
                    around = [(-half, -half), (-half, half), (half, -half), (half, half)]
                    if not diagonal:
                        around = [(-half, 0), (half, 0), (0, -half), (0, half)]
                    mean = np.mean([heights[(row + i) % size, (column + j) % size] for i, j in around])
                    fresh[row, column] = mean + wobble * (wobble - 0.1 * (count % 3))
                    count += 1
            heights = fresh
        step, wobble = half, wobble / decay
    wanted = (heights - heights.min()) / (heights.max() - heights.min())
    found = corruptions.plasma(Highest(keys(2), "x"), (size, size), decay)
    np.testing.assert_allclose(found[1, 0].numpy(), wanted, atol=1e-5)


def test_an_elastic_transform_equals_scipy() -> None:
    """The affine map of three moved points, and then shifts of each pixel."""
    x, draws = pictures(1), Draws(keys(1), "x")
    constants = (0.1, 0.03, 0.05)
    found = corruptions.elastic_transform(x, constants, draws)
    half, third = SIZE // 2, SIZE // 3
    points = np.array([[half + third, half + third], [half + third, half - third], [half - third, half - third]], float)
    moved = points + draws.uniform("points", 3, 2, low=-0.05 * SIZE, high=0.05 * SIZE)[0].numpy()
    forward = np.linalg.solve(np.column_stack([points, np.ones(3)]), moved)  # (x, y, 1) @ forward = moved (x, y)
    row, column = np.mgrid[:SIZE, :SIZE].astype(float)
    back = (np.stack([column, row], axis=-1) - forward[2]) @ np.linalg.inv(forward[:2])
    mapped = [
        ndimage.map_coordinates(channel, back.T[::-1].transpose(0, 2, 1), order=1, mode="mirror") for channel in x[0]
    ]
    field = draws.uniform("shifts", 2, SIZE, SIZE, low=-1, high=1)[0].numpy()
    right, down = (ndimage.gaussian_filter(one, 0.03 * SIZE, mode="reflect", truncate=3) * 0.1 * SIZE for one in field)
    wanted = [ndimage.map_coordinates(one, [row + down, column + right], order=1, mode="reflect") for one in mapped]
    np.testing.assert_allclose(found[0].numpy(), wanted, atol=1e-4)


def test_snow_lies_twice_and_whitens() -> None:
    """Without flakes, an image is only whitened; flakes lie as they fall, and turned by half."""
    x = pictures()
    gray = 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]
    whiter = 0.9 * x + 0.1 * x.maximum(1.5 * gray + 0.5)
    draws = Draws(keys(2), "x")
    assert (corruptions.snow(x, (0, 0.2, 1, 9, 3, 4, 0.9), draws) - whiter).abs().max() < 1e-5
    layer = corruptions.snow(x, (0, 0.2, 1, 0.2, 3, 4, 0.9), draws) - whiter
    assert (layer - layer.flip(-1, -2)).abs().max() < 1e-5
    assert layer.max() > 0.1


def test_frost_is_bright_and_blue_and_has_the_published_weights() -> None:
    dark = torch.zeros(50, 3, 32, 32)
    ice = corruptions.frost(dark, (1, 1), Draws(keys(50), "x"))
    assert ice.mean().item() == pytest.approx(164 / 255, abs=0.03)  # of the five photographs
    assert ice[:, 2].mean() > ice[:, 0].mean() + 0.05
    assert 0.05 < ice.std(dim=(1, 2, 3)).min() < ice.std(dim=(1, 2, 3)).max() < 0.2
    half = corruptions.frost(dark + 0.4, (0.5, 0.25), Draws(keys(50), "x"))
    assert (half - (0.2 + 0.25 * ice)).abs().max() < 1e-5


TINY = {"width": 16, "depth": 1, "heads": 2, "patch": 4}


def test_the_accuracy_is_the_mean_over_strengths() -> None:
    model = ViT(Config(data="digits", **TINY)).eval()
    data = load(model.config)
    sixteenths = data.test.pixels.double().numpy()  # type: ignore[union-attr]
    bytes_ = np.round(sixteenths * 255 / 16)
    means = bytes_.mean(axis=(2, 3), keepdims=True)
    shares = []
    for factor in (0.75, 0.5, 0.4, 0.3, 0.15):
        faint = np.floor((bytes_ - means) * factor + means + 1e-3) * 16 / 255
        with torch.no_grad():
            logits = model(((torch.from_numpy(faint) - data.mean) / data.std).float())
        shares.append((logits.argmax(1) == data.test.labels).double().mean().item())
    found = find("corrupt@contrast").compute(model)
    assert found.metrics["corrupt_accuracy@contrast"] == pytest.approx(np.mean(shares), abs=2 / 360)
    assert found.metrics["corrupt_error@contrast"] == pytest.approx(1 - np.mean(shares), abs=2 / 360)
    assert "corrupt_normalized_error@contrast" not in found.metrics


def test_errors_are_normalized_for_imagenet_alone() -> None:
    config = Config(data="digits", **TINY)
    of_imagenet = config.model_copy(update={"image_size": 224})
    names = ("n01440764", *map(str, range(999)))
    assert is_imagenet(of_imagenet, names)
    assert not is_imagenet(config, names)
    assert not is_imagenet(of_imagenet, names[:100])
    assert np.mean([corruption.alexnet_error for corruption in CORRUPTIONS.values()]) == pytest.approx(0.787, abs=0.002)
