"""Random resized crops: torchvision's resampling, and torchvision's distribution of boxes."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.functional import resized_crop
from trainings import keys

from vitcore import Config
from vitcore.data.augmentation.geometry import BoxOptions, RandomBox
from vitcore.data.crops import Window

SIDE = 64


def stage(size: int, area: float = 0.05, ratio: float = 4 / 3) -> RandomBox:
    return RandomBox(Config(image_size=size, patch=2), BoxOptions(area=area, ratio=ratio))


def images(count: int, channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, channels, SIDE, SIDE), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("size", [16, 56, 64, 96])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("fixed", [False, True])
def test_a_box_is_resampled_as_torchvision_does(fixed: bool, channels: int, size: int) -> None:
    """No byte of noise is off by more than one level, for smaller and larger pieces."""
    boxes, some = stage(size).choices(keys(24), SIDE), images(24, channels)
    ours = stage(size).apply(some, boxes, fixed)
    assert ours.dtype == torch.uint8
    for image, (top, left, height, width), piece in zip(some, boxes.tolist(), ours, strict=True):
        theirs = resized_crop(image, top, left, height, width, [size, size], antialias=True)
        assert (piece.int() - theirs.int()).abs().max() <= 1


def test_how_stored_images_lie_in_memory_changes_no_bit() -> None:
    boxes, some = stage(40).choices(keys(9), SIDE), images(9)
    last = some.contiguous(memory_format=torch.channels_last)
    boxed = [partial(stage(40).apply, choices=boxes, fixed=fixed) for fixed in (False, True)]
    for piece in (*boxed, Window(SIDE, 40), Window(40, 40)):
        assert torch.equal(piece(some), piece(last))
        assert piece(last).is_contiguous()


def test_boxes_are_distributed_as_torchvisions() -> None:
    """Edges, alone and in pairs, pass the test of Kolmogorov and Smirnov against torchvision's draws."""
    torch.manual_seed(0)
    one = torch.zeros(1, SIDE, SIDE)
    theirs = np.array([RandomResizedCrop.get_params(one, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(4000)])
    ours = stage(SIDE, 0.08).choices(keys(4000), SIDE).numpy()
    for weights in (*np.eye(4), [0, 0, 1, 1], [0, 0, 1, -1], [1, 0, 1, 0], [0, 1, 0, 1], [1, -1, 0, 0]):
        assert stats.ks_2samp(ours @ weights, theirs @ weights).pvalue > 1e-3
    assert (ours[:, 0] + ours[:, 2]).max() <= SIDE
    assert (ours[:, 1] + ours[:, 3]).max() <= SIDE


def test_no_box_that_fits_is_all_of_the_image() -> None:
    """Nearly all boxes of extreme shapes are the whole image, torchvision's fallback after ten tries."""
    boxes = stage(SIDE, 0.999, 1e6).choices(keys(200), SIDE)
    assert (boxes == torch.tensor([0, 0, SIDE, SIDE])).all(dim=1).float().mean() > 0.9
