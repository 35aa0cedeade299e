"""Augmentations: each operation against torchvision's or Pillow's, and choices against their distribution."""

from collections import Counter
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from scipy import stats
from timm.data import auto_augment
from torch import Tensor
from torchvision.transforms import (
    AutoAugment,
    AutoAugmentPolicy,
    InterpolationMode,
    RandAugment,
    RandomResizedCrop,
    TrivialAugmentWide,
    functional,
)
from torchvision.transforms.autoaugment import _apply_op
from torchvision.transforms.functional import resized_crop
from trainings import keys

from commonfloor.options import ConfigError
from vitcore import Config
from vitcore.data import image_ops
from vitcore.data.augment import AUGMENT, Staged, augments_in_graph
from vitcore.data.augment_stages import LEVELS, STEPS, BoxOptions, Operation, RandomBox, center_crop, signs
from vitcore.data.augment_stages import NAMES as OPERATIONS
from vitcore.data.splits import load
from vitcore.identity import trial_id

SIZE = 32
SPACES = {
    "randaugment": RandAugment()._augmentation_space(LEVELS, (SIZE, SIZE)),
    "trivial": TrivialAugmentWide()._augmentation_space(LEVELS),
    "autoaugment": AutoAugment()._augmentation_space(10, (SIZE, SIZE)),
}
AT_LEVELS = {"randaugment": (1, 10, 15, 30), "trivial": (1, 10, 15, 30), "autoaugment": (0, 2, 5, 9)}
NAMES = list(SPACES["randaugment"])


def config(augment: str, **settings: Any) -> Config:
    return Config(data="cifar10", augment=augment, **settings)


def noise(channels: int, count: int = 8, size: int = SIZE) -> Tensor:
    """Return images: noise, but one smooth, one with few levels, one of a single color, one with an edge."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, channels, size, size), generator=generator, dtype=torch.uint8)
    ramp = torch.arange(size, dtype=torch.uint8)
    images[1] = 3 * (ramp[:, None] + ramp) + 20
    images[2] = 100 + images[2] // 32
    images[3] = 77
    images[4, :, : size // 2] = 0
    return images


def torchvisions(space: dict[str, tuple[Tensor, bool]], name: str, level: int, sign: int, image: Tensor) -> Tensor:
    """Apply torchvision's operation to an image (C, H, W) of bytes."""
    amounts, signed = space[name]
    amount = amounts[level].item() if amounts.ndim else 0.0
    return _apply_op(image, name, amount * sign if signed else amount, InterpolationMode.NEAREST, None)


@pytest.mark.parametrize(("augment", "name"), [(augment, name) for augment, space in SPACES.items() for name in space])
@pytest.mark.parametrize("channels", [1, 3])
def test_operation_equals_torchvisions(augment: str, channels: int, name: str) -> None:
    """No byte is off by more than one level, and few are, at any magnitude and sign."""
    operation = AUGMENT[augment](config(augment)).parts[0].operations[OPERATIONS.index(name)]
    images = noise(channels)
    amounts = operation.amounts.expand(AT_LEVELS[augment][-1] + 1)
    for level in AT_LEVELS[augment]:
        for sign in (1, -1):
            amount = (amounts[level] * (sign if operation.signed else 1)).expand(len(images))
            ours = operation.apply(images, amount)
            theirs = torch.stack([torchvisions(SPACES[augment], name, level, sign, image) for image in images])
            assert ours.dtype == torch.uint8
            off = (ours.int() - theirs.int()).abs()
            assert off.max() <= 1, f"level {level}, sign {sign}"
            assert (off > 0).double().mean() < 0.01, f"level {level}, sign {sign}"


@pytest.mark.parametrize(("augment", "kinds"), [("trivial", 14), ("randaugment", 14 * 14)])
def test_operations_are_chosen_alike(augment: str, kinds: int) -> None:
    augmentation = AUGMENT[augment](config(augment))
    augmentation.parts[0].operations = [  # each appends a digit to the base-14 number in each pixel
        Operation(lambda images, amount, number=number: images * 14 + number, torch.zeros(LEVELS), False)
        for number in range(14)
    ]
    seen = augmentation(torch.zeros(20_000, 3, 1, 1, dtype=torch.uint8), keys(20_000))[:, 0, 0, 0]
    assert stats.chisquare(torch.bincount(seen.int(), minlength=kinds).numpy()).pvalue > 1e-3


def pairs_of_torchvision(policy: str) -> list[list[tuple[str, float, int]]]:
    pairs = AutoAugment(AutoAugmentPolicy(policy)).policies
    return [[(name, share, level or 0) for name, share, level in pair] for pair in pairs]


def pairs_of_timm() -> list[list[tuple[str, float, int]]]:
    """Its table of the paper's policy for ImageNet."""
    pairs = auto_augment.auto_augment_policy("originalr")
    return [[(op.name.removesuffix("Increasing"), op.prob, op.magnitude) for op in pair] for pair in pairs]


PLAIN = ("Equalize", "AutoContrast", "Invert")  # operations without a magnitude
POLICIES = {"imagenet": pairs_of_timm(), "cifar10": pairs_of_torchvision("cifar10")}


@pytest.mark.parametrize("policy", POLICIES)
def test_pairs_of_a_policy_occur_as_often_as_it_says(policy: str) -> None:
    """Both operations with their levels, each applied or not, in 40,000 images (chi-square)."""
    count, expected = 40_000, Counter[tuple[str, ...]]()
    for pair in POLICIES[policy]:
        for applied in product((0, 1), repeat=2):
            names, probability = [], 1.0
            for (name, share, level), now in zip(pair, applied, strict=True):
                spelled = name if name in PLAIN else f"{name} {level}"
                names.append(spelled if now else "Identity")
                probability *= share if now else 1 - share
            expected[tuple(names)] += count * probability / len(POLICIES[policy])
    drawn = AUGMENT["autoaugment"](config("autoaugment", **{"augment.policy": policy})).choices(
        keys(count), (SIZE, SIZE)
    )
    seen = Counter[tuple[str, ...]]()
    for one, two, level, other, *_ in drawn.tolist():
        names = [(OPERATIONS[one], level), (OPERATIONS[two], other)]
        seen[tuple(name if name in ("Identity", *PLAIN) else f"{name} {own}" for name, own in names)] += 1
    likely = [kind for kind, often in expected.items() if often > 1e-9]
    assert seen.keys() <= set(likely)
    assert stats.chisquare([seen[kind] for kind in likely], [expected[kind] for kind in likely]).pvalue > 1e-3
    assert drawn[:, 4:].double().mean().abs() < 0.02  # signs


TIMMS = auto_augment.rand_augment_choices("", increasing=True)
IN_ORDER = (  # timm's names in the order of `timm_operations`
    *("Identity", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel", "Rotate", "BrightnessIncreasing"),
    *("ColorIncreasing", "ContrastIncreasing", "SharpnessIncreasing", "PosterizeIncreasing", "SolarizeIncreasing"),
    *("SolarizeAdd", "AutoContrast", "Equalize", "Invert"),
)


@pytest.mark.parametrize("increasing", [True, False])
@pytest.mark.parametrize("name", IN_ORDER[1:])
def test_operation_of_timms_randaugment_equals_timms(
    name: str, increasing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To one level, with timm's bilinear interpolation and default fill, at several magnitudes, with both signs.

    Beyond 10, a level of the gray value is multiplied by up to 2.7.
    """
    magnitudes = (0, 2.5, 9.37, 9.99)  # at 10, timm asks Pillow for 0 bits, which it refuses
    timms_name = name
    allowed = 1
    if not increasing:
        magnitudes = (2.5, 9.37, 15, 20)
        timms_name = name.removesuffix("Increasing")
        allowed = 3
    settings = {"augment.increasing": increasing}
    stage = AUGMENT["timm-randaugment"](config("timm-randaugment", **settings)).parts[0]
    operation = stage.operations[IN_ORDER.index(name)]
    amounts = operation.amounts.expand(stage.options.most * 100 + 1)
    images = noise(3)
    for magnitude in magnitudes:
        for sign in (1, -1):
            monkeypatch.setattr(auto_augment, "_randomly_negate", lambda value, sign=sign: value * sign)
            hparams = {"interpolation": Image.Resampling.BILINEAR, "magnitude_max": stage.options.most}
            timms = auto_augment.AugmentOp(timms_name, 1.0, magnitude, hparams)
            amount = amounts[round(magnitude * 100)] * (sign if operation.signed else 1)
            ours = operation.apply(images, amount.expand(len(images)))
            off = (ours.int() - torch.stack([by_pillow(image, timms) for image in images]).int()).abs()
            assert off.max() <= allowed, f"magnitude {magnitude}, sign {sign}"


def test_only_operations_that_do_not_increase_go_beyond_a_magnitude_of_10() -> None:
    beyond = {"augment.magnitude": 20.0, "augment.deviation": 0.0, "augment.probability": 1.0}
    drawn = AUGMENT["timm-randaugment"](config("timm-randaugment", **beyond, **{"augment.increasing": False}))
    assert (drawn.choices(keys(9), (SIZE, SIZE))[:, 2:4] == 2000).all()
    with pytest.raises(ValueError, match=r"augment.magnitude=20: above 10"):
        config("timm-randaugment", **beyond)


def test_choices_of_timms_randaugment_are_timms() -> None:
    """Half of the operations are applied, all alike; magnitudes are normal and cut off at 10 (chi-square)."""
    count = 20_000
    drawn = AUGMENT["timm-randaugment"](config("timm-randaugment")).choices(keys(count), (SIZE, SIZE))
    operations, levels = drawn[:, :2].flatten(), drawn[:, 2:4].flatten()
    expected = [0.5, *[0.5 / len(TIMMS)] * len(TIMMS)]
    counts = torch.bincount(operations, minlength=len(expected))
    assert stats.chisquare(counts, np.array(expected) * 2 * count).pvalue > 1e-3
    edges = [-np.inf, 8, 8.5, 9, 9.5, 10, np.inf]
    probabilities = np.diff(stats.norm(9, 0.5).cdf(edges))
    seen = np.histogram(levels.numpy() / 100, [0, 7.995, 8.495, 8.995, 9.495, 9.995, 11])[0]
    assert stats.chisquare(seen, probabilities * 2 * count).pvalue > 1e-3


def test_flip_is_a_fair_coin_and_an_exact_flip() -> None:
    images = torch.randint(0, 256, (2000, 3, 4, 4), dtype=torch.uint8)
    flipped = AUGMENT["flip"](config("flip"))(images, keys(2000))
    mirrored = (flipped == images.flip(3)).flatten(1).all(dim=1)
    assert ((flipped == images).flatten(1).all(dim=1) ^ mirrored).all()
    assert mirrored.double().mean().item() == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize(("fill", "mode"), [("zeros", "constant"), ("reflect", "reflect")])
@pytest.mark.parametrize("pad", [1, 4])
def test_crop_is_a_window_of_the_padded_image(fill: str, mode: str, pad: int) -> None:
    """Every image is a window of NumPy's padding, and all windows occur equally often."""
    count, size = 3000, 6
    images = np.random.default_rng(0).integers(0, 256, (count, 3, size, size), dtype=np.uint8)
    chosen = config("crop", image_size=size, patch=2, **{"augment.pad": pad, "augment.fill": fill})
    cut = AUGMENT["crop"](chosen)(torch.from_numpy(images), keys(count)).numpy()
    padded = np.pad(images, [(0, 0), (0, 0), (pad, pad), (pad, pad)], mode=mode)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))
    equal = (windows == cut[:, :, None, None]).all(axis=(1, 4, 5))  # (count, places, places)
    assert equal.any(axis=(1, 2)).all()
    if pad == 1:
        assert stats.chisquare(equal.sum(axis=0).ravel()).pvalue > 1e-3


@pytest.mark.parametrize(
    ("first", "second", "fill"),
    [
        ("flip-crop", "randaugment", "zeros"),
        ("crop", "three-augment", "reflect"),
        ("flip-crop", "autoaugment", "zeros"),
        ("crop", "timm-randaugment", "zeros"),
    ],
)
def test_joint_augmentations_apply_one_after_the_other(first: str, second: str, fill: str) -> None:
    images, some = noise(3).repeat(4, 1, 1, 1), keys(32)
    both = f"{first}-{second}" if f"{first}-{second}" in AUGMENT else f"{first}+{second}"
    before = AUGMENT[first](config(first, **{"augment.fill": fill}))(images, some)
    assert torch.equal(AUGMENT[both](config(both))(images, some), AUGMENT[second](config(second))(before, some))


def test_joined_augmentations_are_one_trial_with_the_entry_that_does_the_same() -> None:
    """Unless the entry's options have other defaults; the order counts."""
    assert config("crop+flip+randaugment") == config("flip-crop-randaugment")
    assert config("random-resized-crop+flip", **{"augment.area": 0.2}).augment == "flip-random-resized-crop"
    assert config("flip+crop").augment == "flip+crop"
    padded = config("crop+three-augment")
    assert (padded.augment, padded.options["augment.fill"]) == ("crop+three-augment", "zeros")
    assert config("random-resized-crop+crop-three-augment").options["augment.fill"] == "reflect"


def test_the_id_of_joined_augmentations_has_the_version_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [trial_id(config(name)) for name in ("flip+autoaugment", "crop+autoaugment")]
    monkeypatch.setattr(AUGMENT["flip"], "numerics", 2)
    after = [trial_id(config(name)) for name in ("flip+autoaugment", "crop+autoaugment")]
    assert before[0] != after[0]
    assert before[1] == after[1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("flip+none", "none cannot be joined with others"),
        ("flip+three-augment", "three-augment does again what comes before it: flip"),
        ("randaugment+flip+trivial", "trivial does again what comes before it: distort"),
        ("flip+random-resized-crop", "random-resized-crop has to come first"),
        ("flip+randaugmen", "one of none, flip, "),
        (["flip", "randaugment"], r"; together: flip\+randaugment"),
    ],
)
def test_augmentations_that_cannot_be_joined_are_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(name)


@pytest.mark.parametrize("magnitude", [10, 30])
@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_operations_on_few_levels_are_torchvisions_on_scaled_images(number: int, magnitude: int) -> None:
    """Digits, from 0 to 16, change as torchvision changes them when scaled to 0-255 and back."""
    images, some = load(Config()).train.pixels[:64], keys(64)
    settings = {"augment.layers": 1, "augment.magnitude": magnitude}
    augmentation = AUGMENT["randaugment"](Config(augment="randaugment", **settings))
    operation = augmentation.parts[0].operations[number]
    augmentation.parts[0].operations = [operation._replace(amounts=operation.amounts.expand(LEVELS))]
    scaled = (images.double() * (255 / 16)).round().to(torch.uint8)
    space, each = RandAugment()._augmentation_space(LEVELS, (8, 8)), zip(signs(some, 1)[:, 0], scaled, strict=True)
    theirs = torch.stack([torchvisions(space, NAMES[number], magnitude, int(sign), image) for sign, image in each])
    off = augmentation(images, some).int() - (theirs.double() * (16 / 255)).round().int()
    assert off.abs().max() <= 1
    assert (off != 0).double().mean() < 0.01


@pytest.mark.parametrize("augment", [name for name, kind in AUGMENT.items() if issubclass(kind, Staged)])
@pytest.mark.parametrize("data", ["cifar10", "digits"])
def test_fixed_launches_make_the_same_images(augment: str, data: str) -> None:
    """The form for a GPU makes the images of the form for a CPU; resampled pieces are within one level."""
    chosen = Config(data=data, augment=augment)
    images = load(Config()).train.pixels[:64] if data == "digits" else noise(3).repeat(8, 1, 1, 1)
    augmentation, given = AUGMENT[augment](chosen), images.clone()
    choices = augmentation.choices(keys(64), (images.shape[2], images.shape[3]))
    assert (choices.dtype, len(choices)) == (torch.int64, 64)
    fixed = augmentation.apply(images, choices, fixed=True)
    assert torch.equal(images, given)
    off = fixed.int() - augmentation(images, keys(64)).int()
    if augment.endswith("resized-crop"):
        assert off.abs().max() <= 1
    elif "resized" not in augment:  # operations after a resampling may enlarge what it rounds
        assert not off.any()


def test_an_augmentation_with_a_call_of_its_own_is_in_no_graph() -> None:
    """A graph holds neither a subclass with a `__call__` nor distortions of large images."""

    class Brighter(AUGMENT["flip-crop"]):
        def __call__(self, images: Tensor, keys: Tensor) -> Tensor:
            return super().__call__(images, keys) | 1

    small, large = 3 * 32**2, 3 * 224**2
    assert augments_in_graph(AUGMENT["flip-crop"](config("flip-crop")), large)
    assert not augments_in_graph(Brighter(config("flip-crop")), small)
    assert augments_in_graph(AUGMENT["trivial"](config("trivial")), small)
    assert not augments_in_graph(AUGMENT["trivial"](config("trivial")), large)


def by_pillow(image: Tensor, operation: Any) -> Tensor:
    """Apply an operation of Pillow to an image (C, H, W)."""
    changed = np.asarray(operation(functional.to_pil_image(image)))
    return torch.from_numpy(np.array(changed)).view(*image.shape[1:], -1).permute(2, 0, 1)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [8, 32])
@pytest.mark.parametrize("radius", [0.1, 0.8, 1.414, 1.42, 2.0])
def test_blur_equals_pillows(channels: int, size: int, radius: float) -> None:
    """The blur is within one level of Pillow's, for the range of radii in DeiT III."""
    images = noise(channels, size=size)
    expected = torch.stack([by_pillow(image, lambda i: i.filter(ImageFilter.GaussianBlur(radius))) for image in images])
    off = (image_ops.gaussian_blur(images, torch.full((len(images),), radius)).int() - expected.int()).abs()
    assert off.max() <= 1
    assert (off > 0).double().mean() < 0.001


ADJUST = [functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation]


@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_is_flipped_then_one_of_three_then_in_other_colors(channels: int) -> None:
    """All orders equal torchvision's and Pillow's operations to one level, after a blur to three."""
    images, data = noise(channels, 60), {1: "mnist", 3: "cifar10"}[channels]
    augmentation = AUGMENT["three-augment"](Config(data=data, augment="three-augment"))
    choices, off = augmentation.choices(keys(60), (SIZE, SIZE)), []
    assert len(choices[:, 3:6].unique(dim=0)) == 6
    for image, ours, own in zip(images, augmentation(images, keys(60)), choices, strict=True):
        flipped, one, radius, *order, brightness, contrast, saturation = own.tolist()
        image = image.flip(2) if flipped else image
        blur = ImageFilter.GaussianBlur(0.1 + 1.9 * radius / STEPS)
        image = [
            lambda i: functional.rgb_to_grayscale(i, channels),
            lambda i: functional.solarize(i, 128),
            lambda i, blur=blur: by_pillow(i, lambda pillow: pillow.filter(blur)),
        ][one](image)
        for kind in order:
            image = ADJUST[kind](image, 0.7 + 0.6 * (brightness, contrast, saturation)[kind] / STEPS)
        off.append((ours.int() - image.int()).abs())
        assert off[-1].max() <= (3 if one == 2 else 1)
    assert (torch.stack(off) > 0).double().mean() < 0.01


def test_choices_are_alike_and_independent() -> None:
    """Flip, operation and order of colors are uniform and independent (chi-square); factors are uniform."""
    drawn = AUGMENT["three-augment"](config("three-augment")).choices(keys(7200), (32, 32))
    flipped, one, radius = drawn[:, 0], drawn[:, 1], drawn[:, 2]
    order = 3 * drawn[:, 3] + drawn[:, 4]
    assert (drawn[:, 3:6].sort(dim=1).values == torch.arange(3)).all()
    ordered = order.unique(return_inverse=True)[1]
    counts = torch.bincount((flipped * 3 + one) * 6 + ordered, minlength=36)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3
    for column in (radius, *drawn[:, 6:].unbind(1)):
        assert stats.kstest(column.numpy() / STEPS, "uniform").pvalue > 1e-3


def test_without_jitter_and_flip_images_stay() -> None:
    """Without color changes and flips, a gray image is solarized, blurred or unchanged."""
    plain = Config(data="mnist", augment="three-augment", **{"augment.jitter": 0.0, "augment.flip": False})
    images, augmentation = noise(1, 40, 28), AUGMENT["three-augment"](plain)
    changed, drawn = augmentation(images, keys(40)), augmentation.choices(keys(40), (28, 28))
    gray = drawn[:, 1] == 0
    assert torch.equal(changed[gray], images[gray])
    assert not torch.equal(changed[~gray], images[~gray])


SIDE = 64


def stage(size: int, area: float = 0.05, ratio: float = 4 / 3, interpolation: str = "bilinear") -> RandomBox:
    options = BoxOptions(area=area, ratio=ratio, interpolation=interpolation)
    return RandomBox(Config(image_size=size, patch=2), options)


def images(count: int, channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, channels, SIDE, SIDE), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("size", [16, 56, 64, 96])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_a_box_is_resampled_as_torchvision_and_pillow_do(
    interpolation: str, fixed: bool, channels: int, size: int
) -> None:
    """No byte of noise is off by more than one level, for smaller and larger pieces; of a bicubic piece, few are."""
    boxes, some = stage(size).choices(keys(24), (SIDE, SIDE)), images(24, channels)
    ours = stage(size, interpolation=interpolation).apply(some, boxes, fixed)
    assert ours.dtype == torch.uint8
    more_than_one = []
    for image, (top, left, height, width), piece in zip(some, boxes.tolist(), ours, strict=True):
        cut = partial(resized_crop, top=top, left=left, height=height, width=width, size=[size, size])
        pillows = np.array(cut(functional.to_pil_image(image), interpolation=InterpolationMode(interpolation)))
        theirs = torch.from_numpy(pillows).view(size, size, channels).permute(2, 0, 1)
        more_than_one.append(((piece.int() - theirs.int()).abs() > 1).double().mean())
        if interpolation == "bilinear":
            assert (piece.int() - cut(image, antialias=True).int()).abs().max() <= 1
    # Bicubic pieces are clamped after the first axis, and Pillow may begin with the other one.
    assert torch.stack(more_than_one).mean() <= (0.002 if interpolation == "bicubic" else 0)


def test_how_stored_images_lie_in_memory_changes_no_bit() -> None:
    boxes, some = stage(40).choices(keys(9), (SIDE, SIDE)), images(9)
    last = some.contiguous(memory_format=torch.channels_last)
    boxed = [partial(stage(40).apply, choices=boxes, fixed=fixed) for fixed in (False, True)]
    for piece in (*boxed, *(partial(center_crop, crop=side, shape=(40, 40)) for side in (SIDE, 40))):
        assert torch.equal(piece(some), piece(last))
        assert piece(last).is_contiguous()


def test_boxes_are_distributed_as_torchvisions() -> None:
    """Edges, alone and in pairs, pass the test of Kolmogorov and Smirnov against torchvision's draws."""
    torch.manual_seed(0)
    one = torch.zeros(1, SIDE, SIDE)
    theirs = np.array([RandomResizedCrop.get_params(one, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(4000)])
    ours = stage(SIDE, 0.08).choices(keys(4000), (SIDE, SIDE)).numpy()
    for weights in (*np.eye(4), [0, 0, 1, 1], [0, 0, 1, -1], [1, 0, 1, 0], [0, 1, 0, 1], [1, -1, 0, 0]):
        assert stats.ks_2samp(ours @ weights, theirs @ weights).pvalue > 1e-3
    assert (ours[:, 0] + ours[:, 2]).max() <= SIDE
    assert (ours[:, 1] + ours[:, 3]).max() <= SIDE


def test_no_box_that_fits_is_all_of_the_image() -> None:
    """Nearly all boxes of extreme shapes are the whole image, torchvision's fallback after ten tries."""
    boxes = stage(SIDE, 0.999, 1e6).choices(keys(200), (SIDE, SIDE))
    assert (boxes == torch.tensor([0, 0, SIDE, SIDE])).all(dim=1).float().mean() > 0.9
