"""The fifteen corruptions of arXiv 1903.12261 in five strengths, on batches of images, on the images' device.

Definitions and constants are those of https://github.com/hendrycks/robustness: ImageNet-C's, and CIFAR-10-C's for
images below 96 pixels. Two things differ. Frost is fractal noise with the brightness, contrast and spectrum of the
photographs that the published code lays over images. ImageNet-C's images are stored as JPEG of quality 85.
"""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from vitcore.keyed_random import site_code, uniforms

STRENGTHS = range(1, 6)
SMALL = 96  # pixels, below which constants are CIFAR's
GRAY = (0.299, 0.587, 0.114)  # weights of red, green and blue in OpenCV
TINT = (-0.09, 0.02, 0.07)  # of frost, in red, green and blue
BELOW_ONE = 1e-3  # of 255, so that float32 values of whole numbers are not truncated to the number below


@dataclass(frozen=True)
class Draws:
    """Random numbers of one corruption for a batch of images with the keys `rng_keys` (B,)."""

    rng_keys: Tensor
    corruption: str

    def uniform(self, name: str, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Return uniform numbers (B, *shape) in float64."""
        drawn = uniforms(self.rng_keys, site_code(f"{self.corruption}/{name}"), math.prod(shape))
        return low + (high - low) * drawn.view(-1, *shape)

    def normal(self, name: str, *shape: int) -> Tensor:
        """Return standard normal numbers (B, *shape) in float32, by the transform of Box and Muller."""
        radius = (-2 * (1 - self.uniform(f"{name} radius", *shape)).log()).sqrt()
        return (radius * (2 * math.pi * self.uniform(f"{name} angle", *shape)).cos()).float()


def corrupt(images: Tensor, kind: str, strength: int, rng_keys: Tensor) -> Tensor:
    """Return corrupted images as uint8. images: uint8 (B, C, H, W), C = 1 or 3. strength: 1 to 5. rng_keys: (B,)."""
    corruption = CORRUPTIONS[kind]
    constants = corruption.small if max(images.shape[-2:]) < SMALL else corruption.large
    changed = corruption.function(images.float() / 255, constants[strength - 1], Draws(rng_keys, kind))
    return (changed.clamp(0, 1) * 255 + BELOW_ONE).to(torch.uint8)


# The functions take x (B, C, H, W) from 0 to 1, the constants of a strength, and random numbers. Results are clamped.


def gaussian_noise(x: Tensor, deviation: float, draws: Draws) -> Tensor:
    return x + deviation * draws.normal("noise", *x.shape[1:])


def shot_noise(x: Tensor, photons: float, draws: Draws) -> Tensor:
    """Return Poisson numbers of mean x * photons, divided by `photons`. They invert a table of each byte's CDF."""
    table = poisson_table(photons).to(x.device)
    byte = (x * 255).round().double()
    place = torch.searchsorted(table.flatten(), byte + draws.uniform("photons", *x.shape[1:]), right=True)
    return (place - byte * table.shape[1]).float() / photons


@cache
def poisson_table(photons: float) -> Tensor:
    """Return byte + P(number <= count) for each byte and count (256, counts), which ascends over all bytes."""
    counts = torch.arange(photons + 12 * math.sqrt(photons) + 20, dtype=torch.float64)
    byte = torch.arange(256, dtype=torch.float64)[:, None]
    return byte + torch.special.gammaincc(counts + 1, byte / 255 * photons)


def impulse_noise(x: Tensor, amount: float, draws: Draws) -> Tensor:
    salt = draws.uniform("salt", *x.shape[1:]) < 0.5
    return salt.float().where(draws.uniform("pixels", *x.shape[1:]) < amount, x)


def defocus_blur(x: Tensor, constants: Sequence[float], draws: Draws) -> Tensor:
    kernel = torch.from_numpy(disk(*constants)).to(x)  # (2 margin + 1, 2 margin + 1)
    margin = len(kernel) // 2
    rows, columns = (np.pad(np.arange(size), margin, mode="reflect") for size in x.shape[-2:])
    wide = x[:, :, rows][..., columns]
    return F.conv2d(wide.flatten(0, 1)[:, None], kernel[None, None]).view_as(x)


@cache
def disk(radius: float, blur: float) -> np.ndarray[Any, Any]:
    """Return a disk of sum 1, blurred by a Gaussian of deviation `blur` against aliasing, without rows of zeros."""
    most = max(8, math.ceil(radius))
    span = np.arange(-most, most + 1)
    inside = (span[:, None] ** 2 + span**2 <= radius**2).astype(np.float32)
    smooth = blur_matrix(len(span), blur, 1 if radius <= 8 else 2, "reflect")
    kernel = smooth @ (inside / inside.sum()) @ smooth.T
    (used,) = np.nonzero(kernel.sum(axis=1))
    return kernel[used[0] : used[-1] + 1, used[0] : used[-1] + 1]


def glass_blur(x: Tensor, constants: tuple[float, int, int], draws: Draws) -> Tensor:
    """Blur, let pixels trade places within `reach` pixels in some rounds, and blur again."""
    deviation, reach, rounds = constants
    pixels = (gaussian_blur(x, deviation) * 255 + BELOW_ONE).floor().flatten(2)  # (B, C, HW)
    for number in range(rounds):
        moves = draws.uniform(f"moves {number}", 2, *x.shape[-2:], low=-reach, high=reach).floor().long()
        pixels = pixels.gather(2, glass_sources(moves, reach)[:, None].expand_as(pixels))
    return gaussian_blur(pixels.view_as(x) / 255, deviation)


def glass_sources(moves: Tensor, reach: int) -> Tensor:
    """Return which pixel ends at each place (B, HW). moves: rows and columns (B, 2, H, W) from a place to its source.

    Places are filled from the last to the first, so that a copy from a later place is what that place has already got.
    (The published swap of two pixels copies one, as NumPy's rows are views.)
    """
    rows, columns = moves.shape[-2:]
    row = torch.arange(rows, device=moves.device)[:, None]
    column = torch.arange(columns, device=moves.device)
    filled = (row > reach) & (row <= rows - reach) & (column > reach) & (column <= columns - reach)  # (H, W)
    place = row * columns + column
    source = (place + moves[:, 0] * columns + moves[:, 1]).where(filled, place).flatten(1)  # (B, HW)
    end = place.flatten().expand_as(source)
    going = torch.ones_like(end, dtype=torch.bool)
    while going.any():
        following = source.gather(1, end).where(going, end)
        going = going & (following > end) & filled.flatten()[following]
        end = following
    return end


def motion_blur(x: Tensor, constants: tuple[int, float], draws: Draws) -> Tensor:
    return blur_along(x, *constants, draws.uniform("degrees", low=-45, high=45))


def blur_along(x: Tensor, radius: int, deviation: float, degrees: Tensor) -> Tensor:
    """Average x (B, C, H, W) along a line from each pixel, as ImageMagick's MotionBlurImage. degrees: (B,)."""
    steps = torch.arange(2 * radius + 1, device=x.device)
    weights = torch.exp(-((steps / deviation) ** 2) / 2)
    weights = weights / weights.sum()
    angle = degrees.view(-1, 1).deg2rad()
    down = (steps * angle.sin() - 0.5).ceil().long()  # (B, steps)
    right = (steps * angle.cos() - 0.5).ceil().long()
    rows, columns = (torch.arange(size, device=x.device) for size in x.shape[-2:])
    blurred = torch.zeros_like(x)
    for step, weight in enumerate(weights.tolist()):
        row = (rows + down[:, step, None]).clamp(0, len(rows) - 1)  # (B, H)
        column = (columns + right[:, step, None]).clamp(0, len(columns) - 1)  # (B, W)
        place = (row[:, :, None] * len(columns) + column[:, None]).view(len(x), 1, -1)  # (B, 1, HW)
        blurred += weight * x.flatten(2).gather(2, place.expand(-1, x.shape[1], -1)).view_as(x)
    return (blurred * 255 + BELOW_ONE).floor() / 255  # as ImageMagick 6.9


def zoom_blur(x: Tensor, constants: tuple[float, float], draws: Draws) -> Tensor:
    zooms = np.arange(1, *constants)
    return (x + sum(zoomed(x, zoom) for zoom in zooms.tolist())) / (len(zooms) + 1)


def zoomed(x: Tensor, zoom: float) -> Tensor:
    """Enlarge the center of x, of the same size, as scipy.ndimage.zoom of order 1."""
    for dimension in (-2, -1):
        size = x.shape[dimension]
        cut = math.ceil(size / zoom)
        x = x.narrow(dimension, (size - cut) // 2, cut)
        wide = list(x.shape[-2:])
        wide[dimension] = round(cut * zoom)
        x = F.interpolate(x, wide, mode="bilinear", align_corners=True)
        x = x.narrow(dimension, (wide[dimension] - size) // 2, size)
    return x


def snow(x: Tensor, constants: tuple[float, float, float, float, int, float, float], draws: Draws) -> Tensor:
    mean, deviation, zoom, threshold, radius, blur, weight = constants
    layer = zoomed(mean + deviation * draws.normal("flakes", 1, *x.shape[-2:]), zoom)
    layer = layer.where(layer >= threshold, 0)
    layer = (layer.clamp(0, 1) * 255 + BELOW_ONE).floor() / 255
    layer = blur_along(layer, radius, blur, draws.uniform("degrees", low=-135, high=-45))
    gray = x if x.shape[1] == 1 else (x * x.new_tensor(GRAY).view(3, 1, 1)).sum(dim=1, keepdim=True)
    whiter = weight * x + (1 - weight) * x.maximum(gray * 1.5 + 0.5)
    return whiter + layer + layer.flip(-1, -2)


def frost(x: Tensor, constants: tuple[float, float], draws: Draws) -> Tensor:
    texture = plasma(draws, x.shape[-2:], 1.3)
    texture = (texture - texture.mean(dim=(2, 3), keepdim=True)) / texture.std(dim=(2, 3), keepdim=True)
    brightness = draws.uniform("brightness", 1, 1, 1, low=0.43, high=0.86)
    contrast = draws.uniform("contrast", 1, 1, 1, low=0.06, high=0.14)
    ice = (brightness + contrast * texture).float()
    if x.shape[1] == 3:
        ice = ice + x.new_tensor(TINT).view(3, 1, 1)
    return constants[0] * x + constants[1] * ice.clamp(0, 1)


def fog(x: Tensor, constants: tuple[float, float], draws: Draws) -> Tensor:
    amount, decay = constants
    brightest = x.amax(dim=(1, 2, 3), keepdim=True)
    return (x + amount * plasma(draws, x.shape[-2:], decay)) * brightest / (brightest + amount)


def plasma(draws: Draws, size: Sequence[int], decay: float) -> Tensor:
    """Return a fractal from 0 to 1 by the diamond-square algorithm (B, 1, rows, columns)."""
    rows, columns = size
    side = max(2, 1 << (max(size) - 1).bit_length())
    heights = torch.zeros(len(draws.rng_keys), side, side, device=draws.rng_keys.device)
    step = side
    wobble = 100.0

    def between(total: Tensor, name: str) -> Tensor:
        """Return the mean of four points, given their sum, and noise."""
        noise = draws.uniform(f"{name} {step}", *total.shape[1:], low=-wobble, high=wobble)
        return (total / 4 + wobble * noise).float()

    while step >= 2:
        half = step // 2
        corners = heights[:, ::step, ::step]
        pairs = corners + corners.roll(-1, dims=1)
        centers = between(pairs + pairs.roll(-1, dims=2), "centers")
        heights[:, half::step, half::step] = centers
        heights[:, ::step, half::step] = between(
            centers + centers.roll(1, dims=1) + corners + corners.roll(-1, dims=2), "rows"
        )
        heights[:, half::step, ::step] = between(
            centers + centers.roll(1, dims=2) + corners + corners.roll(-1, dims=1), "columns"
        )
        step = half
        wobble /= decay
    heights = heights - heights.amin(dim=(1, 2), keepdim=True)
    return (heights / heights.amax(dim=(1, 2), keepdim=True))[:, None, :rows, :columns]


def brightness(x: Tensor, amount: float, draws: Draws) -> Tensor:
    """Raise the value, which is the largest channel, of the hue, saturation and value of each pixel."""
    value = x.amax(dim=1, keepdim=True)
    raised = (value + amount).clamp(max=1)
    return torch.where(value > 0, x * raised / value, raised)


def contrast(x: Tensor, factor: float, draws: Draws) -> Tensor:
    mean = x.mean(dim=(2, 3), keepdim=True)
    return (x - mean) * factor + mean


def elastic_transform(x: Tensor, constants: tuple[float, float, float], draws: Draws) -> Tensor:
    """Move three points at random, with all pixels by the affine map of these, and then each pixel a little more."""
    rows, columns = x.shape[-2:]
    side = min(rows, columns)
    amount, deviation, jitter = (side * constant for constant in constants)
    middle = torch.tensor([rows // 2, columns // 2], dtype=torch.float64, device=x.device)
    points = middle + side // 3 * middle.new_tensor([[1, 1], [1, -1], [-1, -1]])  # (3, 2)
    moved = points + draws.uniform("points", 3, 2, low=-jitter, high=jitter)  # (B, 3, 2)
    ones = torch.ones_like(moved[..., :1])
    back = torch.linalg.solve(torch.cat([moved, ones], dim=2), points)  # (B, 3, 2)
    row, column = torch.meshgrid(*(torch.arange(size, device=x.device) for size in (rows, columns)), indexing="ij")
    place = torch.stack([column, row, torch.ones_like(row)], dim=-1).double()  # (H, W, 3)
    sides = middle.new_tensor([columns, rows])
    grid = 2 * (place @ back[:, None]) / (sides - 1) - 1  # (B, H, W, 2): from -1 to 1 between centers of pixels
    x = F.grid_sample(x, grid.float(), padding_mode="reflection", align_corners=True)
    field = draws.uniform("shifts", 2, rows, columns, low=-1, high=1).float()
    shifts = amount * gaussian_blur(field, deviation, truncate=3, mode="symmetric")
    grid = (2 * (place[..., :2] + shifts.permute(0, 2, 3, 1)) + 1) / sides - 1  # from -1 to 1 between the edges
    return F.grid_sample(x, grid.float(), padding_mode="reflection", align_corners=False)


def pixelate(x: Tensor, factor: float, draws: Draws) -> Tensor:
    rows, columns = x.shape[-2:]
    few_rows, few_columns = max(1, int(rows * factor)), max(1, int(columns * factor))
    return resized_in_boxes(resized_in_boxes(x, few_rows, few_columns), rows, columns)


def resized_in_boxes(x: Tensor, rows: int, columns: int) -> Tensor:
    """Resize by Pillow's BOX filter, which rounds to bytes after the columns and after the rows."""
    across = (x @ box_matrix(x.shape[-1], columns).to(x).T * 255 + 0.5).floor() / 255
    return (box_matrix(x.shape[-2], rows).to(x) @ across * 255 + 0.5).floor() / 255


@cache
def box_matrix(size: int, new: int) -> Tensor:
    """Return the weights (new, size) of Pillow's BOX filter: what it makes of the unit vectors."""
    units = Image.fromarray(np.eye(size, dtype=np.float32))
    return torch.from_numpy(np.array(units.resize((size, new), Image.Resampling.BOX)))


def jpeg_compression(x: Tensor, quality: int, draws: Draws) -> Tensor:
    images = (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).squeeze(3).cpu().numpy()
    decoded = []
    for pixels in images:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=quality)
        decoded.append(np.asarray(Image.open(file, formats=["JPEG"])))
    return torch.from_numpy(np.stack(decoded)).view(len(x), *x.shape[-2:], -1).permute(0, 3, 1, 2).to(x) / 255


def gaussian_blur(x: Tensor, deviation: float, truncate: float = 4, mode: str = "edge") -> Tensor:
    """Blur as scipy.ndimage.gaussian_filter. mode: of np.pad."""
    radius = int(truncate * deviation + 0.5)
    rows, columns = (torch.from_numpy(blur_matrix(size, deviation, radius, mode)).to(x) for size in x.shape[-2:])
    return rows @ x @ columns.T


@cache
def blur_matrix(size: int, deviation: float, radius: int, mode: Any) -> np.ndarray[Any, Any]:
    """Return the matrix (size, size) that blurs a column by a Gaussian cut at `radius`. mode: of np.pad."""
    steps = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (steps / max(deviation, 1e-9)) ** 2)
    sources = np.pad(np.arange(size), radius, mode=mode)
    matrix = np.zeros((size, size))
    for start, weight in enumerate(weights / weights.sum()):
        matrix[np.arange(size), sources[start : start + size]] += weight
    return matrix


@dataclass(frozen=True)
class Corruption:
    """A corruption, with its constants in five strengths: for large images, and for small ones.

    alexnet_error: AlexNet's mean error on ImageNet-C (https://github.com/google-research/augmix).
    """

    function: Callable[[Tensor, Any, Draws], Tensor]
    alexnet_error: float
    large: Sequence[Any]
    small: Sequence[Any]


OF_244 = 244 / 224  # ImageNet-C's elastic transform counts on images of 244 pixels
CORRUPTIONS = {
    "gaussian-noise": Corruption(
        gaussian_noise, 0.886428, (0.08, 0.12, 0.18, 0.26, 0.38), (0.04, 0.06, 0.08, 0.09, 0.10)
    ),
    "shot-noise": Corruption(shot_noise, 0.894468, (60, 25, 12, 5, 3), (500, 250, 100, 75, 50)),
    "impulse-noise": Corruption(
        impulse_noise, 0.922640, (0.03, 0.06, 0.09, 0.17, 0.27), (0.01, 0.02, 0.03, 0.05, 0.07)
    ),
    "defocus-blur": Corruption(  # radius, and deviation of the kernel's own blur
        defocus_blur,
        0.819880,
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    ),
    "glass-blur": Corruption(  # deviation, reach, rounds
        glass_blur,
        0.826268,
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    ),
    "motion-blur": Corruption(  # radius, deviation
        motion_blur,
        0.785948,
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    ),
    "zoom-blur": Corruption(  # end of the zooms, step
        zoom_blur,
        0.798360,
        ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
        ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    ),
    "snow": Corruption(  # flakes: mean, deviation, zoom, threshold; their motion: radius, deviation; the image's weight
        snow,
        0.866816,
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    "frost": Corruption(  # weights of image and ice
        frost,
        0.826572,
        ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
        ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    ),
    "fog": Corruption(  # amount, decay of the fractal
        fog,
        0.819324,
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    ),
    "brightness": Corruption(brightness, 0.564592, (0.1, 0.2, 0.3, 0.4, 0.5), (0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": Corruption(contrast, 0.853204, (0.4, 0.3, 0.2, 0.1, 0.05), (0.75, 0.5, 0.4, 0.3, 0.15)),
    "elastic-transform": Corruption(  # amount and smoothness of shifts, and how far points move, in sides of the image
        elastic_transform,
        0.646056,
        (
            (2 * OF_244, 0.7 * OF_244, 0.1 * OF_244),
            (2 * OF_244, 0.08 * OF_244, 0.2 * OF_244),
            (0.05 * OF_244, 0.01 * OF_244, 0.02 * OF_244),
            (0.07 * OF_244, 0.01 * OF_244, 0.02 * OF_244),
            (0.12 * OF_244, 0.01 * OF_244, 0.02 * OF_244),
        ),
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ),
    "pixelate": Corruption(pixelate, 0.717840, (0.6, 0.5, 0.4, 0.3, 0.25), (0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg-compression": Corruption(jpeg_compression, 0.606500, (25, 18, 15, 10, 7), (80, 65, 58, 50, 40)),
}
