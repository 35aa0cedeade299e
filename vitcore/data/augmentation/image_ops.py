"""Operations of augmentations on a batch of uint8 images: torchvision's functions, with an amount for each image.

images: (B, C, H, W), uint8, C = 1 or 3. amount: the operation's magnitude for each image (B,), such as pixels, degrees,
bits or a factor, on the images' device. Geometric operations take the nearest pixel, and black outside the image. Their
matrices map output to input pixels.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Operation = Callable[[Tensor, Tensor], Tensor]
LEVELS = 256  # values of a byte
ONE = 2**24  # the sum of a box filter's weights, which are integers as in PIL
GRAY = (0.2989, 0.587, 0.114)  # weights of red, green and blue, as in PIL and torchvision


def identity(images: Tensor, amount: Tensor) -> Tensor:
    return images


def x_sheared(images: Tensor, amount: Tensor) -> Tensor:
    """Return the affine matrices (B, 2, 3) that move each row left by `amount` pixels more than the row above."""
    return affine(x=[torch.ones_like(amount), amount, amount * (images.shape[-2] / 2)])


def y_sheared(images: Tensor, amount: Tensor) -> Tensor:
    """Return the affine matrices (B, 2, 3) that move each column up by `amount` pixels more than its left neighbor."""
    return affine(y=[amount, torch.ones_like(amount), amount * (images.shape[-1] / 2)])


def x_translated(images: Tensor, amount: Tensor) -> Tensor:
    """Return the affine matrices (B, 2, 3) that move images right by `amount` (B,) pixels, rounded toward 0."""
    return affine(x=[torch.ones_like(amount), 0 * amount, -amount.trunc()])


def y_translated(images: Tensor, amount: Tensor) -> Tensor:
    """Return the affine matrices (B, 2, 3) that move images down by `amount` (B,) pixels, rounded toward 0."""
    return affine(y=[0 * amount, torch.ones_like(amount), -amount.trunc()])


def rotated(images: Tensor, amount: Tensor) -> Tensor:
    """Return the affine matrices (B, 2, 3) of a counterclockwise rotation about the center by `amount` (B,) degrees."""
    cos, sin = amount.deg2rad().cos(), amount.deg2rad().sin()
    return affine(x=[cos, -sin, 0 * cos], y=[sin, cos, 0 * cos])


def affine(x: Sequence[Tensor] = (), y: Sequence[Tensor] = ()) -> Tensor:
    """Return affine matrices (B, 2, 3) from two rows of three tensors (B,).

    x, y: the first and the second row. A row that is not given is that of the identity.
    """
    (some, *_) = x or y
    zeros, ones = torch.zeros_like(some), torch.ones_like(some)
    return torch.stack([*(x or (ones, zeros, zeros)), *(y or (zeros, ones, zeros))], dim=1).view(-1, 2, 3)


def sample(images: Tensor, matrix: Tensor) -> Tensor:
    """Return images resampled, to the nearest pixel, by affine matrices (B, 2, 3).

    These map output to input coordinates, in pixels from the image's center.
    """
    rows, columns = images.shape[-2:]
    y, x = (torch.arange(size, device=images.device) + 0.5 - size / 2 for size in (rows, columns))
    points = torch.stack([x.expand(rows, -1), y[:, None].expand(-1, columns), x.new_ones(rows, columns)], dim=-1)
    sides = torch.linspace(columns / 2, rows / 2, 2, device=images.device)  # made on the device: nothing is copied
    scaled = matrix / sides[:, None]  # to the sides at -1 and 1
    grid = (points.view(1, -1, 3) @ scaled.transpose(1, 2)).view(-1, rows, columns, 2)
    return F.grid_sample(images.float(), grid, mode="nearest", align_corners=False).to(torch.uint8)


def brightness(images: Tensor, amount: Tensor) -> Tensor:
    """Scale each pixel's difference from black by 1 + `amount`."""
    return away_from(torch.zeros_like(images[:, :1, :1, :1]), images, amount)


def colour(images: Tensor, amount: Tensor) -> Tensor:
    """Scale each pixel's difference from its gray value by 1 + `amount`. Grayscale images stay unchanged."""
    return images if images.shape[1] == 1 else away_from(grayscale(images), images, amount)


def contrast(images: Tensor, amount: Tensor) -> Tensor:
    """Scale each pixel's difference from the image's mean gray value by 1 + `amount`."""
    return away_from(mean_gray(images), images, amount)


def sharpness(images: Tensor, amount: Tensor) -> Tensor:
    """Scale each pixel's difference from the blurred image by 1 + `amount`. Border pixels stay unchanged."""
    if min(images.shape[-2:]) <= 2:
        return images
    wide = images.to(torch.int16)
    across = wide[..., :-2] + wide[..., 1:-1] + wide[..., 2:]
    total = across[..., :-2, :] + across[..., 1:-1, :] + across[..., 2:, :] + 4 * wide[..., 1:-1, 1:-1]
    blurred = images.clone()
    blurred[..., 1:-1, 1:-1] = (total / 13).round_().to(torch.uint8)  # weight 5 for the pixel, 1 for each neighbor
    return away_from(blurred, images, amount)


def away_from(origin: Tensor, images: Tensor, amount: Tensor) -> Tensor:
    """Return the images (B, C, H, W), uint8, with their difference from `origin` scaled by 1 + `amount`.

    origin: broadcast to the images. amount: one number for each image (B,); a negative one reduces the difference. The
    resulting pixel values are clamped to 0-255 and rounded down.
    """
    amount = amount.view(-1, 1, 1, 1)
    return images.float().mul_(1 + amount).sub_(amount * origin).clamp_(0, 255).to(torch.uint8)


def mean_gray(images: Tensor) -> Tensor:
    """Return the mean gray value of each image (B, 1, 1, 1), float."""
    gray = images if images.shape[1] == 1 else grayscale(images)
    return gray.float().mean(dim=(1, 2, 3), keepdim=True)


def grayscale(images: Tensor) -> Tensor:
    """Convert RGB images (B, 3, H, W) to grayscale (B, 1, H, W)."""
    red, green, blue = images.unbind(dim=1)
    return (GRAY[0] * red + GRAY[1] * green + GRAY[2] * blue).to(torch.uint8)[:, None]


def posterize(images: Tensor, amount: Tensor) -> Tensor:
    """Set the lowest `amount` bits of every value to 0."""
    return images & (256 - 2**amount).to(torch.uint8).view(-1, 1, 1, 1)


def solarize(images: Tensor, amount: Tensor) -> Tensor:
    """Invert all values that are at least `amount`."""
    inverted = images >= amount.ceil().to(torch.uint8).view(-1, 1, 1, 1)
    return images ^ inverted.to(torch.uint8).neg()


def gray(images: Tensor, amount: Tensor) -> Tensor:
    """Replace every channel by the grayscale image, whatever the amount."""
    return images if images.shape[1] == 1 else grayscale(images).expand_as(images)


def gaussian_blur(images: Tensor, amount: Tensor) -> Tensor:
    """Blur as PIL's GaussianBlur of radius `amount`, at most 2, by three box filters per axis.

    Each filter's result is rounded to uint8. A box filter weighs the pixels at its ends by the fractional part of its
    radius (Gwosdek et al., https://www.mia.uni-saarland.de/Publications/gwosdek-ssvm11.pdf).
    """
    variance = amount.view(-1, 1, 1, 1) ** 2 / 3
    whole = (((12 * variance + 1).sqrt() - 1) / 2).floor()  # 0 or 1 for radii up to 2
    rest = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance) / (6 * (variance - (whole + 1) ** 2))
    centre = (ONE / (2 * (whole + rest) + 1)).long()
    end = (ONE - (2 * whole.long() + 1) * centre) // 2
    near, far = centre.where(whole > 0, end), end.where(whole > 0, 0)
    blurred = images.long()
    for _ in range(2):  # rows, then columns
        for _ in range(3):
            blurred = box_filter(blurred, centre, near, far)
        blurred = blurred.transpose(2, 3)
    return blurred.to(torch.uint8)


def box_filter(images: Tensor, centre: Tensor, near: Tensor, far: Tensor) -> Tensor:
    """Filter rows with a kernel of five pixels, repeating the pixels at the edges.

    centre, near, far: weights (B, 1, 1, 1) of a pixel and of its neighbors at distances 1 and 2, in units of 2**-24.
    """
    columns = images.shape[3]
    wide = torch.cat([images[..., :1]] * 2 + [images] + [images[..., -1:]] * 2, dim=3)
    left, right, before, after = (wide[..., start : start + columns] for start in (1, 3, 0, 4))
    return centre * images + near * (left + right) + far * (before + after) + ONE // 2 >> 24


def colour_jitter(images: Tensor, order: Tensor, amounts: Tensor) -> Tensor:
    """Change brightness, contrast and color by `amounts` (B, 3), in each image's `order`.

    order: permutation (B, 3) of 0 for brightness, 1 for contrast and 2 for color.
    """
    for kind, amount in zip(order.unbind(1), amounts.gather(1, order).unbind(1), strict=True):
        plain = images if images.shape[1] == 1 else grayscale(images)
        mean = plain.float().mean(dim=(1, 2, 3), keepdim=True)
        chosen = kind.view(-1, 1, 1, 1)
        origin = mean.where(chosen == 1, 0).where(chosen != 2, plain)
        if images.shape[1] == 1:
            amount = amount.where(kind != 2, 0)
        images = away_from(origin, images, amount)
    return images


def autocontrast(images: Tensor, amount: Tensor) -> Tensor:
    """Stretch each channel to the range 0 to 255, whatever the amount. A channel of one value stays unchanged."""
    return stretched(images, images)


def stretched(levels: Tensor, images: Tensor) -> Tensor:
    """Map uint8 `levels` (B, C, ...) linearly so that the range of each channel of the images becomes 0 to 255.

    Levels of a channel of one value stay unchanged.
    """
    low = images.amin(dim=(2, 3), keepdim=True).float()
    high = images.amax(dim=(2, 3), keepdim=True).float()
    flat = high == low
    scale = 255 / torch.where(flat, 1, high - low)
    return torch.where(flat, levels, ((levels - low) * scale).clamp(0, 255).to(torch.uint8))


def equalize(images: Tensor, amount: Tensor) -> Tensor:
    """Equalize the histogram of each channel as PIL does, whatever the amount."""
    flat = images.flatten(2).long()  # (B, C, HW)
    return equalized(flat).gather(2, flat).view(images.shape)


def equalized(flat: Tensor) -> Tensor:
    """Return the equalized value of each level, for each channel of each image: (B, C, 256), uint8.

    flat: the pixels (B, C, HW), int64.
    """
    counts = torch.zeros(*flat.shape[:2], LEVELS, dtype=torch.int32, device=flat.device)
    counts.scatter_add_(2, flat, counts.new_ones(()).expand_as(flat))
    brightest = counts.gather(2, flat.amax(dim=2, keepdim=True))
    step = (flat.shape[2] - brightest) // 255  # (B, C, 1)
    below = counts.cumsum(dim=2) - counts
    levels = ((below + step // 2) // step.clamp(min=1)).clamp(max=255).to(torch.uint8)
    return torch.where(step == 0, every_level(flat), levels)


def every_level(images: Tensor) -> Tensor:
    """Return the levels 0 to 255 for each channel of each image: (B, C, 256), uint8."""
    levels = torch.arange(LEVELS, device=images.device, dtype=torch.int32).to(torch.uint8)
    return levels.expand(*images.shape[:2], LEVELS)


def at_once(images: Tensor, operations: Sequence[Operation], choices: Tensor, amount: Tensor) -> Tensor:
    """Return images, each after its operation (B,) by its amount (B,), without reading a value on the host.

    The kernel launches are equal for all choices, so a CUDA graph can hold the function. All resampling is one call,
    and all mappings of levels are one lookup in a table (B, C, 256). Other operations are applied to the whole batch.
    """
    B, C, H, W = images.shape
    flat = images.flatten(2).long()
    matrix = x_translated(images, 0 * amount)  # (B, 2, 3), the identity
    table = every_level(images)  # (B, C, 256)
    mapped = torch.zeros_like(choices, dtype=torch.bool)
    moved, changed = mapped, images
    for number, operation in enumerate(operations):
        mine = choices == number  # (B,)
        own = amount.where(mine, 0)
        if operation in MATRICES:
            matrix = MATRICES[operation](images, own).where(mine.view(B, 1, 1), matrix)
            moved = moved | mine
        elif operation in TABLES:
            table = TABLES[operation](images, flat, own).where(mine.view(B, 1, 1), table)
            mapped = mapped | mine
        elif operation is not identity:
            changed = operation(images, own).where(mine.view(B, 1, 1, 1), changed)
    if MATRICES.keys() & set(operations):
        changed = sample(images, matrix).where(moved.view(B, 1, 1, 1), changed)
    return table.gather(2, flat).view(B, C, H, W).where(mapped.view(B, 1, 1, 1), changed)


def over_levels(operation: Operation) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return a function that computes an operation's lookup table (B, C, 256), for operations on single values.

    It takes images (B, C, H, W), flattened images, which it ignores, and amounts (B,).
    """

    def table(images: Tensor, flat: Tensor, amount: Tensor) -> Tensor:
        return operation(every_level(images)[..., None], amount)[..., 0]

    return table


def sampled(matrix: Operation) -> Operation:
    """Return the operation that resamples images by the affine matrices that `matrix` returns."""
    return lambda images, amount: sample(images, matrix(images, amount))


shear_x, shear_y, rotate = map(sampled, (x_sheared, y_sheared, rotated))
translate_x, translate_y = map(sampled, (x_translated, y_translated))
MATRICES: dict[Operation, Operation] = {
    shear_x: x_sheared,
    shear_y: y_sheared,
    translate_x: x_translated,
    translate_y: y_translated,
    rotate: rotated,
}
TABLES: dict[Operation, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    brightness: over_levels(brightness),
    posterize: over_levels(posterize),
    solarize: over_levels(solarize),
    contrast: lambda images, flat, amount: away_from(mean_gray(images), every_level(images)[..., None], amount)[..., 0],
    autocontrast: lambda images, flat, amount: stretched(every_level(images)[..., None], images)[..., 0],
    equalize: lambda images, flat, amount: equalized(flat),
}
