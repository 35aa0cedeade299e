"""Augmentation operations on batches of uint8 images: torchvision's functions with an amount for each image.

No operation changes its input. images: (B, C, H, W), uint8, C = 1 or 3. amount: the operation's magnitude for each
image (B,), such as pixels, degrees, bits or a factor, on the images' device.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Operation = Callable[[Tensor, Tensor], Tensor]
LEVELS = 256  # values of a byte
ONE = 2**24  # the sum of a box filter's weights, which are integers as in PIL
GRAY = (0.2989, 0.587, 0.114)  # weights of red, green and blue, as in PIL and torchvision


class Geometric:
    """An operation that moves pixels by affine matrices (B, 2, 3) from output to input, from the image's center.

    It samples the nearest pixel, or black outside the image. With `fill`, it interpolates bilinearly, as PIL does.
    """

    def __init__(self, matrix: Operation, fill: int | None = None) -> None:
        self.matrix = matrix
        self.fill = fill

    def __call__(self, images: Tensor, amount: Tensor) -> Tensor:
        return sample(images, self.matrix(images, amount), self.fill)


def identity(images: Tensor, amount: Tensor) -> Tensor:
    return images


@Geometric
def shear_x(images: Tensor, amount: Tensor) -> Tensor:
    """Move each row left by `amount` pixels more than the row above."""
    return affine(x=[torch.ones_like(amount), amount, amount * (images.shape[-2] / 2)])


@Geometric
def shear_y(images: Tensor, amount: Tensor) -> Tensor:
    """Move each column up by `amount` pixels more than its left neighbor."""
    return affine(y=[amount, torch.ones_like(amount), amount * (images.shape[-1] / 2)])


@Geometric
def translate_x(images: Tensor, amount: Tensor) -> Tensor:
    """Move images right by `amount` pixels, rounded toward 0."""
    return slide_x(images, -amount.trunc())


@Geometric
def translate_y(images: Tensor, amount: Tensor) -> Tensor:
    """Move images down by `amount` pixels, rounded toward 0."""
    return slide_y(images, -amount.trunc())


def slide_x(images: Tensor, amount: Tensor) -> Tensor:
    """Return matrices that move images left by `amount` pixels, which need not be whole."""
    return affine(x=[torch.ones_like(amount), 0 * amount, amount])


def slide_y(images: Tensor, amount: Tensor) -> Tensor:
    """Return matrices that move images up by `amount` pixels, which need not be whole."""
    return affine(y=[0 * amount, torch.ones_like(amount), amount])


@Geometric
def rotate(images: Tensor, amount: Tensor) -> Tensor:
    """Rotate images counterclockwise about their centers by `amount` degrees."""
    cos = amount.deg2rad().cos()
    sin = amount.deg2rad().sin()
    return affine(x=[cos, -sin, 0 * cos], y=[sin, cos, 0 * cos])


def affine(x: Sequence[Tensor] = (), y: Sequence[Tensor] = ()) -> Tensor:
    """Return affine matrices (B, 2, 3). x, y: their rows, each as three tensors (B,), or () for the identity's row."""
    (some, *_) = x or y
    zeros = torch.zeros_like(some)
    ones = torch.ones_like(some)
    return torch.stack([*(x or (ones, zeros, zeros)), *(y or (zeros, ones, zeros))], dim=1).view(-1, 2, 3)


def sample(images: Tensor, matrix: Tensor, fill: int | None) -> Tensor:
    """Resample images by affine matrices (B, 2, 3) from output to input coordinates, as `Geometric` does."""
    rows, columns = images.shape[-2:]
    y, x = (torch.arange(size, device=images.device) + 0.5 - size / 2 for size in (rows, columns))
    points = torch.stack([x.expand(rows, -1), y[:, None].expand(-1, columns), x.new_ones(rows, columns)], dim=-1)
    sides = torch.linspace(columns / 2, rows / 2, 2, device=images.device)  # made on the device: nothing is copied
    scaled = matrix / sides[:, None]  # to coordinates with the image's sides at -1 and 1
    grid = (points.view(1, -1, 3) @ scaled.transpose(1, 2)).view(-1, rows, columns, 2)
    if fill is None:
        return F.grid_sample(images.float(), grid, mode="nearest", align_corners=False).to(torch.uint8)
    inside = ((grid >= -1) & (grid < 1)).all(dim=3)[:, None]
    smooth = F.grid_sample(images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return smooth.to(torch.uint8).where(inside, fill)


def brightness(images: Tensor, amount: Tensor) -> Tensor:
    """Scale each pixel's difference from black by 1 + `amount`."""
    return scale_difference(images.new_zeros(()), images, amount)


def contrast(images: Tensor, amount: Tensor) -> Tensor:
    """Scale each pixel's difference from the image's mean gray value by 1 + `amount`."""
    return scale_difference(mean_gray(images), images, amount)


def color(images: Tensor, amount: Tensor) -> Tensor:
    """Scale each pixel's difference from its gray value by 1 + `amount`. Grayscale images stay unchanged."""
    return images if images.shape[1] == 1 else scale_difference(grayscale(images), images, amount)


def sharpness(images: Tensor, amount: Tensor) -> Tensor:
    """Scale each pixel's difference from the blurred image by 1 + `amount`. Border pixels are not blurred."""
    if min(images.shape[-2:]) <= 2:
        return images
    wide = images.to(torch.int16)
    across = wide[..., :-2] + wide[..., 1:-1] + wide[..., 2:]
    total = across[..., :-2, :] + across[..., 1:-1, :] + across[..., 2:, :] + 4 * wide[..., 1:-1, 1:-1]
    blurred = images.clone()
    blurred[..., 1:-1, 1:-1] = (total / 13).round_().to(torch.uint8)  # weight 5 for the pixel, 1 for each neighbor
    return scale_difference(blurred, images, amount)


def scale_difference(origin: Tensor, images: Tensor, amount: Tensor) -> Tensor:
    """Scale the images' difference from the broadcast `origin` by 1 + `amount`; clamp the result and round down."""
    amount = amount.view(-1, 1, 1, 1)
    return images.float().mul_(1 + amount).sub_(amount * origin).clamp_(0, 255).to(torch.uint8)


def mean_gray(images: Tensor) -> Tensor:
    """Return the mean gray value of each image (B, 1, 1, 1), float."""
    return grayscale(images).float().mean(dim=(1, 2, 3), keepdim=True)


def grayscale(images: Tensor) -> Tensor:
    """Convert images to grayscale (B, 1, H, W)."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(dim=1)
    return (GRAY[0] * red + GRAY[1] * green + GRAY[2] * blue).to(torch.uint8)[:, None]


def posterize(images: Tensor, amount: Tensor) -> Tensor:
    """Set the lowest `amount` bits of every value to 0."""
    return images & (256 - 2**amount).to(torch.uint8).view(-1, 1, 1, 1)


def solarize(images: Tensor, amount: Tensor) -> Tensor:
    """Invert all values that are at least `amount`, from 0 to 256."""
    inverted = images >= amount.ceil().to(torch.int16).view(-1, 1, 1, 1)
    return images ^ inverted.to(torch.uint8).neg()


def solarize_add(images: Tensor, amount: Tensor) -> Tensor:
    """Add `amount`, at most 127, to all values below 128."""
    return (images + amount.to(torch.uint8).view(-1, 1, 1, 1)).where(images < 128, images)


def invert(images: Tensor, amount: Tensor) -> Tensor:
    """Invert all values, regardless of the amount."""
    return 255 - images


def gray(images: Tensor, amount: Tensor) -> Tensor:
    """Replace every channel by the grayscale image, regardless of the amount."""
    return grayscale(images).expand_as(images)


def gaussian_blur(images: Tensor, amount: Tensor) -> Tensor:
    """Blur like PIL's GaussianBlur of radius `amount`, at most 2, by three box filters per axis.

    Their radii are fractions (Gwosdek et al., https://www.mia.uni-saarland.de/Publications/gwosdek-ssvm11.pdf).
    """
    variance = amount.view(-1, 1, 1, 1) ** 2 / 3
    whole = (((12 * variance + 1).sqrt() - 1) / 2).floor()  # 0 or 1 for radii up to 2
    rest = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance) / (6 * (variance - (whole + 1) ** 2))
    center = (ONE / (2 * (whole + rest) + 1)).long()  # weight of the pixel; below, of pixels at distances 1 and 2
    end = (ONE - (2 * whole.long() + 1) * center) // 2
    near = center.where(whole > 0, end)
    far = end.where(whole > 0, 0)
    blurred = images.long()
    for columns in (images.shape[3], images.shape[2]):
        for _ in range(3):
            wide = torch.cat([blurred[..., :1]] * 2 + [blurred] + [blurred[..., -1:]] * 2, dim=3)  # repeats the edges
            left, right, before, after = (wide[..., start : start + columns] for start in (1, 3, 0, 4))
            blurred = center * blurred + near * (left + right) + far * (before + after) + ONE // 2 >> 24
        blurred = blurred.transpose(2, 3)
    return blurred.to(torch.uint8)


def color_jitter(images: Tensor, order: Tensor, amounts: Tensor) -> Tensor:
    """Scale brightness, contrast and color by 1 + `amounts` (B, 3), in each image's `order`.

    order: permutation (B, 3) of the columns of `amounts`: 0 for brightness, 1 for contrast and 2 for color.
    """
    for kind, amount in zip(order.unbind(1), amounts.gather(1, order).unbind(1), strict=True):
        plain = grayscale(images)
        chosen = kind.view(-1, 1, 1, 1)
        origin = mean_gray(plain).where(chosen == 1, 0).where(chosen != 2, plain)
        if images.shape[1] == 1:
            amount = amount.where(kind != 2, 0)
        images = scale_difference(origin, images, amount)
    return images


def autocontrast(images: Tensor, amount: Tensor) -> Tensor:
    """Stretch each channel to the range 0 to 255, regardless of the amount. A channel of one value stays unchanged."""
    low = images.amin(dim=(2, 3), keepdim=True).float()
    high = images.amax(dim=(2, 3), keepdim=True).float()
    flat = high == low
    scale = 255 / torch.where(flat, 1, high - low)
    return torch.where(flat, images, ((images - low) * scale).clamp(0, 255).to(torch.uint8))


def equalize(images: Tensor, amount: Tensor) -> Tensor:
    """Equalize the histogram of each channel as PIL does, regardless of the amount."""
    flat = images.flatten(2).long()  # (B, C, HW)
    counts = torch.zeros(*flat.shape[:2], LEVELS, dtype=torch.int32, device=flat.device)
    counts.scatter_add_(2, flat, counts.new_ones(()).expand_as(flat))
    brightest = counts.gather(2, flat.amax(dim=2, keepdim=True))
    step = (flat.shape[2] - brightest) // 255  # (B, C, 1)
    below = counts.cumsum(dim=2) - counts
    equalized = ((below + step // 2) // step.clamp(min=1)).clamp(max=255).to(torch.uint8)  # (B, C, 256)
    return torch.where(step[..., None] == 0, images, equalized.gather(2, flat).view(images.shape))


def apply_batched(images: Tensor, operations: Sequence[Operation], choices: Tensor, amount: Tensor) -> Tensor:
    """Return each image after its operation `choices` (B,), by kernel launches that a CUDA graph can hold."""
    matrix = translate_x.matrix(images, 0 * amount)  # (B, 2, 3), the identity
    moved = torch.zeros_like(choices, dtype=torch.bool)
    changed = images
    for number, operation in enumerate(operations):
        chosen = choices == number  # (B,)
        amounts = amount.where(chosen, 0)
        if isinstance(operation, Geometric):
            matrix = operation.matrix(images, amounts).where(chosen.view(-1, 1, 1), matrix)
            moved = moved | chosen
        elif operation is not identity:
            changed = operation(images, amounts).where(chosen.view(-1, 1, 1, 1), changed)
    geometric = [operation for operation in operations if isinstance(operation, Geometric)]
    if geometric:  # all with the same fill
        changed = sample(images, matrix, geometric[0].fill).where(moved.view(-1, 1, 1, 1), changed)
    return changed
