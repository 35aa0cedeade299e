"""Augmentation: each operation against torchvision's on the same bytes; choices against their distribution."""

import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torch import Tensor
from torchvision.transforms import InterpolationMode, RandAugment, TrivialAugmentWide
from torchvision.transforms.autoaugment import _apply_op
from torchvision.transforms.functional import pil_to_tensor

from vitcore import Config
from vitcore.data.augmentation.augment import AUGMENT, Staged, augments_in_graph
from vitcore.data.augmentation.distortions import LEVELS, Operation, moderate, signs, wide
from vitcore.data.augmentation.geometry import copied, gathered
from vitcore.data.augmentation.image_ops import at_once
from vitcore.data.splits import load
from vitcore.keyed_random import image_keys
from vitcore.options import ConfigError

SIZE = 32
# Of the space of torchvision, in its order.
NAMES = list(RandAugment()._augmentation_space(LEVELS, (SIZE, SIZE)))


def config(augment: str, **settings: Any) -> Config:
    return Config(data="cifar10", augment=augment, **settings)


def keys(count: int, epoch: int = 0) -> Tensor:
    return image_keys(0, np.full(count, epoch), np.arange(count))


def noise(channels: int) -> Tensor:
    """Images without any structure, one smooth, one with few levels, one of a single colour."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (8, channels, SIZE, SIZE), generator=generator, dtype=torch.uint8)
    ramp = torch.arange(SIZE, dtype=torch.uint8)
    images[1] = 3 * (ramp[:, None] + ramp) + 20
    images[2] = 100 + images[2] // 32
    images[3] = 77
    return images


def torchvisions(space: str, name: str, level: int, sign: int, image: Tensor) -> Tensor:
    """What torchvision makes of one image (C, H, W), bytes."""
    spaces = {
        "moderate": RandAugment()._augmentation_space(LEVELS, tuple(image.shape[1:])),
        "wide": TrivialAugmentWide()._augmentation_space(LEVELS),
    }
    amounts, signed = spaces[space][name]
    amount = amounts[level].item() if amounts.ndim else 0.0
    return _apply_op(image, name, amount * sign if signed else amount, InterpolationMode.NEAREST, None)


SPACES = {"moderate": moderate(SIZE), "wide": wide()}


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_operation_equals_torchvisions(space: str, channels: int, number: int) -> None:
    """On bytes, batched: none is off by more than one level, at any magnitude and sign; geometry by no pixel at all."""
    operation, images = SPACES[space][number], noise(channels)
    for level in (1, 10, 15, 30):
        for sign in (1, -1):
            amount = (operation.amounts[level] * (sign if operation.signed else 1)).expand(len(images))
            ours = operation.apply(images, amount)
            theirs = torch.stack([torchvisions(space, NAMES[number], level, sign, image) for image in images])
            assert ours.dtype == torch.uint8
            off = (ours.int() - theirs.int()).abs()
            assert off.max() <= 1, f"level {level}, sign {sign}"
            assert (off > 0).double().mean() < 0.01, f"level {level}, sign {sign}"


def test_spaces_are_torchvisions() -> None:
    """The same operations, the same ones with a sign, the same amounts."""
    theirs = RandAugment()._augmentation_space(LEVELS, (SIZE, SIZE))
    assert list(TrivialAugmentWide()._augmentation_space(LEVELS)) == NAMES
    for operation, name in zip(SPACES["moderate"], NAMES, strict=True):
        amounts, signed = theirs[name]
        assert operation.signed == signed
        if name == "Posterize":
            amounts = 8 - amounts
        assert torch.equal(operation.amounts, amounts.float().expand(LEVELS))


def test_each_image_has_its_own_amount() -> None:
    """In one batch: the same as one image at a time, for every operation."""
    images = noise(3)
    for operation in SPACES["moderate"]:
        amount = operation.amounts[torch.arange(len(images)) * 4]
        together = operation.apply(images, amount)
        for i in range(len(images)):
            assert torch.equal(operation.apply(images[i : i + 1], amount[i : i + 1])[0], together[i])


def marked(number: int) -> Operation:
    return Operation(lambda images, amount: images + number, torch.zeros(LEVELS), False)


@pytest.mark.parametrize("augment", ["randaugment", "trivial"])
def test_operations_are_chosen_alike(augment: str) -> None:
    """Each as often as the others: chi-square over 7,000 images of one byte that tells which it was."""
    augmentation = AUGMENT[augment](config(augment, **({"augment.layers": 1} if augment == "randaugment" else {})))
    augmentation.parts[0].operations = [marked(number) for number in range(14)]
    seen = augmentation(torch.zeros(7000, 3, 1, 1, dtype=torch.uint8), keys(7000))[:, 0, 0, 0]
    assert stats.chisquare(torch.bincount(seen, minlength=14).numpy()).pvalue > 1e-3


def test_layers_follow_each_other() -> None:
    """Two layers are two draws, each image's own: all 14 x 14 pairs occur, about equally."""
    augmentation = AUGMENT["randaugment"](config("randaugment"))
    augmentation.parts[0].operations = [
        Operation(lambda images, amount, number=number: images * 14 + number, torch.zeros(LEVELS), False)
        for number in range(14)
    ]
    seen = augmentation(torch.zeros(20_000, 3, 1, 1, dtype=torch.uint8), keys(20_000))[:, 0, 0, 0]
    assert stats.chisquare(torch.bincount(seen.int(), minlength=196).numpy()).pvalue > 1e-3


def test_signs_are_a_fair_coin() -> None:
    """Half of the amounts are negative."""
    augmentation = AUGMENT["trivial"](config("trivial"))
    up = Operation(lambda images, amount: images + (amount > 0)[:, None, None, None], torch.ones(LEVELS), True)
    augmentation.parts[0].operations = [up]
    share = augmentation(torch.zeros(4000, 3, 1, 1, dtype=torch.uint8), keys(4000)).double().mean().item()
    assert share == pytest.approx(0.5, abs=0.03)


def test_flip_is_a_fair_coin_and_an_exact_flip() -> None:
    """Each image is itself or its mirror image, about half of them each."""
    images = torch.randint(0, 256, (2000, 3, 4, 4), dtype=torch.uint8)
    flipped = AUGMENT["flip"](config("flip"))(images, keys(2000))
    mirrored = (flipped == images.flip(3)).flatten(1).all(dim=1)
    assert ((flipped == images).flatten(1).all(dim=1) ^ mirrored).all()
    assert mirrored.double().mean().item() == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize(("fill", "mode"), [("zeros", "constant"), ("reflect", "reflect")])
@pytest.mark.parametrize("pad", [1, 4])
def test_crop_is_a_window_of_the_padded_image(fill: str, mode: str, pad: int) -> None:
    """Every image is one of the windows of NumPy's padding, and all windows occur alike."""
    count, size = 3000, 6
    images = np.random.default_rng(0).integers(0, 256, (count, 3, size, size), dtype=np.uint8)
    chosen = config("crop", image_size=size, patch=2, **{"augment.pad": pad, "augment.fill": fill})
    cut = AUGMENT["crop"](chosen)(torch.from_numpy(images), keys(count)).numpy()
    padded = np.pad(images, [(0, 0), (0, 0), (pad, pad), (pad, pad)], mode=mode)  # type: ignore[call-overload]
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))
    equal = (windows == cut[:, :, None, None]).all(axis=(1, 4, 5))  # (count, places, places)
    assert equal.any(axis=(1, 2)).all()
    if pad == 1:
        assert stats.chisquare(equal.sum(axis=0).ravel()).pvalue > 1e-3


def test_windows_are_the_same_on_a_gpu() -> None:
    """What is gathered there is what a CPU copies, of images higher than wide too."""
    images = torch.randint(0, 256, (9, 3, 15, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    places = torch.tensor([[row, column] for row in (0, 2, 5) for column in (0, 3, 4)])
    assert torch.equal(gathered(images, places, 10, 8), copied(images, places, 10, 8))


def test_flip_and_crop_are_independent() -> None:
    """`flip-crop` flips half of the images of every shift: a contingency table."""
    ramp = torch.arange(9, dtype=torch.uint8).expand(6000, 3, 9, 9)
    chosen = config("flip-crop", image_size=9, patch=3, **{"augment.pad": 1, "augment.fill": "reflect"})
    changed = AUGMENT["flip-crop"](chosen)(ramp, keys(6000))[:, 0, 4]
    flipped = changed[:, 3] > changed[:, 5]
    shift = torch.where(flipped, changed.flip(1)[:, 4], changed[:, 4]).int() - 4
    assert shift.unique().tolist() == [-1, 0, 1]
    table = torch.bincount(3 * flipped.long() + shift + 1, minlength=6).view(2, 3).numpy()
    assert stats.chi2_contingency(table).pvalue > 1e-3


def test_flip_crop_randaugment_is_one_after_the_other() -> None:
    """With the same keys, the same choices."""
    images, some = noise(3), keys(8)
    first = AUGMENT["flip-crop"](config("flip-crop"))(images, some)
    both = AUGMENT["flip-crop-randaugment"](config("flip-crop-randaugment"))(images, some)
    assert torch.equal(both, AUGMENT["randaugment"](config("randaugment"))(first, some))


@pytest.mark.parametrize("magnitude", [10, 30])
@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_operations_on_few_levels_are_torchvisions_on_scaled_images(number: int, magnitude: int) -> None:
    """Digits go from 0 to 16: torchvision gets them scaled to 0-255, and its result is scaled back."""
    images, some = load(Config()).train.pixels[:64], keys(64)
    settings = {"augment.layers": 1, "augment.magnitude": magnitude}
    augmentation = AUGMENT["randaugment"](Config(augment="randaugment", **settings))
    augmentation.parts[0].operations = [augmentation.parts[0].operations[number]]
    scaled = (images.double() * (255 / 16)).round().to(torch.uint8)
    theirs = torch.stack(
        [
            torchvisions("moderate", NAMES[number], magnitude, int(sign), image)
            for sign, image in zip(signs(some, 1)[:, 0], scaled, strict=True)
        ]
    )
    off = augmentation(images, some).int() - (theirs.double() * (16 / 255)).round().int()
    assert off.abs().max() <= 1
    assert (off != 0).double().mean() < 0.01


@pytest.mark.parametrize("augment", ["randaugment", "flip-crop-randaugment", "trivial"])
def test_augmented_digits_stay_in_their_range(augment: str) -> None:
    """None of 17 levels becomes 255, and images that reach white still do."""
    images = load(Config()).train.pixels[:512]
    changed = AUGMENT[augment](Config(augment=augment))(images, keys(512))
    assert changed.max() == images.max() == 16


@pytest.mark.parametrize("augment", [name for name in AUGMENT if name != "none"])
def test_another_epoch_is_another_choice(augment: str) -> None:
    """An image does not become the same in every epoch."""
    images = torch.randint(0, 256, (64, 3, SIZE, SIZE), dtype=torch.uint8)
    augmentation = AUGMENT[augment](config(augment))
    assert not torch.equal(augmentation(images, keys(64)), augmentation(images, keys(64, epoch=1)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"augment": "crop", "augment.pad": 32}, "augment.pad=32: less than image_size=32"),
        ({"augment": "flip-crop", "augment.pad": 0}, "augment=flip-crop: pad=0"),
        ({"augment": "flip-crop", "augment.fill": "mean"}, "augment=flip-crop: fill=mean"),
        ({"augment": "randaugment", "augment.magnitude": 31}, "augment=randaugment: magnitude=31"),
        ({"augment": "randaugment", "channels": 4}, "channels=4: augment=randaugment takes 1"),
        ({"augment": "randaugment", "augment.pad": 4}, "augment=randaugment: unknown key 'pad'"),
        ({"augment": "random"}, "augment=random: one of none, flip,"),
    ],
)
def test_impossible_augmentation_is_an_error(settings: dict[str, Any], message: str) -> None:
    """One line with key, value and what is allowed, before anything trains."""
    with pytest.raises(ConfigError, match=message):
        Config(data="cifar10", **settings)


def photographs(count: int) -> Tensor:
    """The first test images of CIFAR-10, from the archive of JPEGs where there is one."""
    archive = Path(os.environ.get("ABLATE_DATA", "")) / "cifar10-jpg.tar.xz"
    if not archive.is_file():
        pytest.skip("no cifar10-jpg.tar.xz in the directory that ABLATE_DATA names")
    images: list[Tensor] = []
    with tarfile.open(archive) as tar:
        while len(images) < count and (member := tar.next()):
            if file := tar.extractfile(member) if member.name.endswith(".jpg") else None:
                images.append(pil_to_tensor(Image.open(file)))
    return torch.stack(images)


def test_operations_on_photographs_equal_torchvisions() -> None:
    """The same comparison on real images."""
    images = photographs(64)
    for number, operation in enumerate(SPACES["moderate"]):
        ours = operation.apply(images, operation.amounts[10].expand(len(images)))
        theirs = torch.stack([torchvisions("moderate", NAMES[number], 10, 1, image) for image in images])
        assert (ours.int() - theirs.int()).abs().max() <= 1, NAMES[number]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("space", SPACES)
def test_all_operations_at_once_are_each_alone(space: str, channels: int) -> None:
    """What a CUDA graph holds has the bytes of one operation at a time, on photographs' and on flat images."""
    operations, images = SPACES[space], noise(channels).repeat(14 * 2, 1, 1, 1)
    choices, sign = torch.arange(14 * 2 * 8) % 14, 2 * (torch.arange(14 * 2 * 8) // 14 % 2) - 1
    for level in (1, 10, 30):
        amount = torch.stack([operations[n].amounts[level] * (s if operations[n].signed else 1)
                              for n, s in zip(choices.tolist(), sign, strict=True)])  # fmt: skip
        together = at_once(images, [operation.apply for operation in operations], choices, amount)
        assert together.dtype == torch.uint8
        for number in range(14):
            mine = choices == number
            assert torch.equal(together[mine], operations[number].apply(images[mine], amount[mine])), NAMES[number]


@pytest.mark.parametrize("augment", [name for name, kind in AUGMENT.items() if issubclass(kind, Staged)])
@pytest.mark.parametrize("data", ["cifar10", "digits"])
def test_fixed_launches_make_the_same_images(augment: str, data: str) -> None:
    """As on a GPU, with the same draws; a resampled piece within one level."""
    chosen = Config(data=data, augment=augment)
    images = load(Config()).train.pixels[:64] if data == "digits" else noise(3).repeat(8, 1, 1, 1)
    augmentation, given = AUGMENT[augment](chosen), images.clone()
    choices = augmentation.choices(keys(64), images.shape[-1])
    assert (choices.dtype, len(choices)) == (torch.int64, 64)
    fixed = augmentation.apply(images, choices, fixed=True)
    assert torch.equal(images, given)
    off = fixed.int() - augmentation(images, keys(64)).int()
    if augment.endswith("resized-crop"):
        assert off.abs().max() <= 1
    elif "resized" not in augment:  # operations after a resampling may enlarge what it rounds
        assert not off.any()


def test_an_augmentation_with_a_call_of_its_own_is_in_no_graph() -> None:
    """What a subclass does to images by itself is never left out; nor is a graph made of operations on large ones."""

    class Brighter(AUGMENT["flip-crop"]):  # type: ignore[misc]
        def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
            return super().__call__(images, keys) | 1

    small, large = 3 * 32**2, 3 * 224**2
    assert augments_in_graph(AUGMENT["flip-crop"](config("flip-crop")), large)
    assert not augments_in_graph(Brighter(config("flip-crop")), small)
    assert augments_in_graph(AUGMENT["trivial"](config("trivial")), small)
    assert not augments_in_graph(AUGMENT["trivial"](config("trivial")), large)
