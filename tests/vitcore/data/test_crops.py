"""Random resized crops: torchvision's resampling, and torchvision's distribution of boxes."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.functional import resized_crop
from trainings import keys

from vitcore.data.crops import Window, by_products, cut, random_boxes

SIDE = 64


def images(count: int, channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, channels, SIDE, SIDE), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("size", [16, 56, 64, 96])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("resample", [cut, by_products])
def test_a_box_is_resampled_as_torchvision_does(resample: object, channels: int, size: int) -> None:
    """No byte of noise is off by more than one level, for smaller and larger pieces."""
    boxes, some = random_boxes(keys(24), SIDE, 0.05, 4 / 3), images(24, channels)
    ours = resample(some, boxes, size)  # type: ignore[operator]
    assert ours.dtype == torch.uint8
    for image, (top, left, height, width), piece in zip(some, boxes.tolist(), ours, strict=True):
        theirs = resized_crop(image, top, left, height, width, [size, size], antialias=True)
        assert (piece.int() - theirs.int()).abs().max() <= 1


@pytest.mark.parametrize("middle", [SIDE, 40])
def test_how_stored_images_lie_in_memory_changes_no_bit(middle: int) -> None:
    """Images with channels first and last have equal pieces, with channels first."""
    boxes, some = random_boxes(keys(9), SIDE, 0.05, 4 / 3), images(9)
    last = some.contiguous(memory_format=torch.channels_last)
    for piece in (
        lambda stored: cut(stored, boxes, 40),
        lambda stored: by_products(stored, boxes, 40),
        Window(middle, 40),
    ):
        assert torch.equal(piece(some), piece(last))
        assert piece(last).is_contiguous()


def test_boxes_are_distributed_as_torchvisions() -> None:
    """Edges, alone and in pairs, pass the test of Kolmogorov and Smirnov against torchvision's draws."""
    torch.manual_seed(0)
    one = torch.zeros(1, SIDE, SIDE)
    theirs = np.array([RandomResizedCrop.get_params(one, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(4000)])
    ours = random_boxes(keys(4000), SIDE, 0.08, 4 / 3).numpy()
    combinations = [np.eye(4), np.array([[0, 0, 1, 1], [0, 0, 1, -1], [1, 0, 1, 0], [0, 1, 0, 1], [1, -1, 0, 0]])]
    for weights in np.concatenate(combinations):
        assert stats.ks_2samp(ours @ weights, theirs @ weights).pvalue > 1e-3
    assert (ours[:, 0] + ours[:, 2]).max() <= SIDE
    assert (ours[:, 1] + ours[:, 3]).max() <= SIDE


def test_no_box_that_fits_is_all_of_the_image() -> None:
    """Nearly all boxes of extreme shapes are the whole image, torchvision's fallback after ten tries."""
    boxes = random_boxes(keys(200), SIDE, 0.999, 1e6)
    fallback = torch.tensor([0, 0, SIDE, SIDE])
    assert (boxes == fallback).all(dim=1).float().mean() > 0.9


def test_a_box_is_a_function_of_the_key() -> None:
    """A box depends neither on the batch nor on the order, and changes with the epoch."""
    some = keys(50)
    boxes = random_boxes(some, SIDE, 0.08, 4 / 3)
    assert torch.equal(random_boxes(some.flip(0), SIDE, 0.08, 4 / 3).flip(0), boxes)
    other = random_boxes(keys(50, epoch=1), SIDE, 0.08, 4 / 3)
    assert (other != boxes).any(dim=1).float().mean() > 0.9
