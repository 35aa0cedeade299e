"""What RandAugment does to an image, on a batch of bytes at once: torchvision's functions, by an amount an image.

images (B, C, H, W), uint8, C = 1 or 3; amount (B,), float, on the same device. Geometry takes the nearest pixel, black
outside. In grayscale images `colour` changes nothing, as in torchvision.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

GRAY = (0.2989, 0.587, 0.114)  # of red, green, blue, as PIL and torchvision have it


def identity(images: Tensor, amount: Tensor) -> Tensor:
    return images


def shear_x(images: Tensor, amount: Tensor) -> Tensor:
    """Rows move left, by `amount` pixels a row further down."""
    return warp(images, 0, [one(amount), amount, amount * (images.shape[-2] / 2)])


def shear_y(images: Tensor, amount: Tensor) -> Tensor:
    """Columns move up, by `amount` pixels a column further right."""
    return warp(images, 1, [amount, one(amount), amount * (images.shape[-1] / 2)])


def translate_x(images: Tensor, amount: Tensor) -> Tensor:
    """To the right, by whole pixels."""
    return warp(images, 0, [one(amount), 0 * amount, -amount.trunc()])


def translate_y(images: Tensor, amount: Tensor) -> Tensor:
    """Down, by whole pixels."""
    return warp(images, 1, [0 * amount, one(amount), -amount.trunc()])


def rotate(images: Tensor, amount: Tensor) -> Tensor:
    """About the centre, anticlockwise, in degrees."""
    cos, sin = amount.deg2rad().cos(), amount.deg2rad().sin()
    return sample(images, torch.stack([cos, -sin, 0 * cos, sin, cos, 0 * cos], dim=1).view(-1, 2, 3))


def one(amount: Tensor) -> Tensor:
    return torch.ones_like(amount)


def warp(images: Tensor, axis: int, row: list[Tensor]) -> Tensor:
    """By a map that moves pixels along x (0) or y (1) alone: its row of the matrix."""
    matrix = torch.eye(2, 3, device=images.device).repeat(len(images), 1, 1)  # (B, 2, 3)
    matrix[:, axis] = torch.stack(row, dim=1)
    return sample(images, matrix)


def sample(images: Tensor, matrix: Tensor) -> Tensor:
    """Each pixel from where its `matrix` (B, 2, 3) says, in pixels from the centre of the image."""
    rows, columns = images.shape[-2:]
    y, x = (torch.arange(size, device=images.device) + 0.5 - size / 2 for size in (rows, columns))
    points = torch.stack([x.expand(rows, -1), y[:, None].expand(-1, columns), x.new_ones(rows, columns)], dim=-1)
    sides = torch.linspace(columns / 2, rows / 2, 2, device=images.device)  # made there: nothing is copied
    scaled = matrix / sides[:, None]  # to the sides at -1 and 1
    grid = (points.view(1, -1, 3) @ scaled.transpose(1, 2)).view(-1, rows, columns, 2)
    return F.grid_sample(images.float(), grid, mode="nearest", align_corners=False).to(torch.uint8)


def brightness(images: Tensor, amount: Tensor) -> Tensor:
    """Away from black."""
    return away_from(torch.zeros_like(images[:, :1, :1, :1]), images, amount)


def colour(images: Tensor, amount: Tensor) -> Tensor:
    """Away from the grayscale image."""
    return images if images.shape[1] == 1 else away_from(grayscale(images), images, amount)


def contrast(images: Tensor, amount: Tensor) -> Tensor:
    """Away from the mean gray."""
    gray = images if images.shape[1] == 1 else grayscale(images)
    return away_from(gray.float().mean(dim=(1, 2, 3), keepdim=True), images, amount)


def sharpness(images: Tensor, amount: Tensor) -> Tensor:
    """Away from the blurred image, whose border is the image's own."""
    if min(images.shape[-2:]) <= 2:
        return images
    wide = images.to(torch.int16)
    across = wide[..., :-2] + wide[..., 1:-1] + wide[..., 2:]
    total = across[..., :-2, :] + across[..., 1:-1, :] + across[..., 2:, :] + 4 * wide[..., 1:-1, 1:-1]
    blurred = images.clone()
    blurred[..., 1:-1, 1:-1] = (total / 13).round_().to(torch.uint8)  # the pixel counts 5 times, those around it once
    return away_from(blurred, images, amount)


def away_from(origin: Tensor, images: Tensor, amount: Tensor) -> Tensor:
    """From `origin` through the images and `amount` of the way further; back where it is below 0."""
    amount = amount.view(-1, 1, 1, 1)
    return images.float().mul_(1 + amount).sub_(amount * origin).clamp_(0, 255).to(torch.uint8)


def grayscale(images: Tensor) -> Tensor:
    """(B, 3, H, W) to (B, 1, H, W)."""
    red, green, blue = images.unbind(dim=1)
    return (GRAY[0] * red + GRAY[1] * green + GRAY[2] * blue).to(torch.uint8)[:, None]


def posterize(images: Tensor, amount: Tensor) -> Tensor:
    """The lowest `amount` bits of every byte are 0."""
    return images & (256 - 2**amount).to(torch.uint8).view(-1, 1, 1, 1)


def solarize(images: Tensor, amount: Tensor) -> Tensor:
    """Bytes from `amount` on are inverted."""
    inverted = images >= amount.ceil().to(torch.uint8).view(-1, 1, 1, 1)
    return images ^ inverted.to(torch.uint8).neg()


def autocontrast(images: Tensor, amount: Tensor) -> Tensor:
    """Each channel from its darkest at 0 to its brightest at 255."""
    low, high = (
        ends.float() for ends in (images.amin(dim=(2, 3), keepdim=True), images.amax(dim=(2, 3), keepdim=True))
    )
    flat = high == low
    scale = 255 / torch.where(flat, 1, high - low)
    stretched = ((images - low) * scale).clamp(0, 255).to(torch.uint8)
    return torch.where(flat, images, stretched)


def equalize(images: Tensor, amount: Tensor) -> Tensor:
    """Each channel's levels spread so that all are about as frequent, as PIL does."""
    flat = images.flatten(2).long()  # (B, C, HW)
    counts = torch.zeros(*flat.shape[:2], 256, dtype=torch.int32, device=images.device)
    counts.scatter_add_(2, flat, counts.new_ones(()).expand_as(flat))
    brightest = counts.gather(2, flat.amax(dim=2, keepdim=True))
    step = (flat.shape[2] - brightest) // 255  # (B, C, 1)
    below = counts.cumsum(dim=2) - counts
    levels = ((below + step // 2) // step.clamp(min=1)).clamp(max=255).to(torch.uint8)
    return torch.where(step[..., None] == 0, images, levels.gather(2, flat).view(images.shape))
