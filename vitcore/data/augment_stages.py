"""The stages of augmentations: flips, shifts and random boxes, and the distortions of RandAugment and its like.

An amount is an operation's magnitude in the unit of the operation, such as pixels, degrees, bits or a factor. A level,
from 0 to 30, is an index into the amounts of an operation.
"""

from itertools import permutations
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from commonfloor.options import ConfigError
from vitcore.data import image_ops
from vitcore.data.boxes import Interpolation, box_like, crop_by_products, largest_window, random_boxes
from vitcore.data.lookup import describe
from vitcore.keyed_random import integers_on_cpu, site_code, uniforms
from vitcore.runtime.device import send
from vitcore.settings import Settings, Shape
from vitcore.variant import Variant

GROUP = 64  # number of images resized at once on a GPU, which limits the memory used
LARGE = 2**15  # bytes of a large image; a CPU flips large images one at a time, so that they stay in its cache
LEVELS = 31  # number of magnitudes, as in torchvision
WHITE = 255  # the largest value in torchvision's operations
STEPS = 2**16  # number of values of a factor, which is drawn as an integer
FINE = 100  # steps of a magnitude that stand for a continuous one
MIDDLE_GRAY = 128  # timm's default outside of images; its scripts take the mean of ImageNet instead, (124, 116, 104)
NAMES = (  # torchvision's, in the order of `operations_with`
    *("Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast"),
    *("Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize", "Invert"),
)
ORDERS = torch.tensor(list(permutations(range(3))))  # (6, 3)


class Stage:
    """Base class of an augmentation's stages, each of which changes uint8 images (B, C, H, W).

    does: what the stage does, at most once in an augmentation, because its draws depend only on the image's key. draws:
    number of random choices per image. options: the augmentation's options, including this stage's.
    """

    Options: ClassVar[type[Variant.Options]] = Variant.Options
    does: ClassVar[frozenset[str]]
    draws: int

    def __init__(self, config: Settings, options: Any) -> None: ...

    @classmethod
    def check(cls, config: Settings, options: Any) -> None:
        """Raise ConfigError if the stage cannot be applied to images of `config`."""

    def choices(self, rng_keys: Tensor, stored: Shape) -> Tensor:
        """Draw the choices (B, draws), int64, for images of shape `stored`. rng_keys: (B,), on the CPU."""
        raise NotImplementedError

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        """Return the changed images (B, C, H, W), uint8, and leave `images` unchanged.

        choices: (B, draws), on the images' device if `fixed`, otherwise on the CPU. fixed: whether to launch kernels
        that depend only on shapes, as a CUDA graph requires.
        """
        raise NotImplementedError


class RandomFlip(Stage):
    """A horizontal flip with probability 1/2."""

    does = frozenset({"flip"})
    draws = 1

    def choices(self, rng_keys: Tensor, stored: Shape) -> Tensor:
        return integers_on_cpu(2, rng_keys, site_code("flip"), 1)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        chosen = send(choices[:, 0].bool(), images.device)
        if fixed or images.device.type != "cpu":
            return images.flip(3).where(chosen.view(-1, 1, 1, 1), images)
        images = images.clone()
        places = chosen.nonzero()[:, 0]
        at_once = max(1, len(places))
        if images[0].numel() >= LARGE:
            at_once = 1
        for some in places.split(at_once):
            images[some] = images[some].flip(-1)
        return images


class ShiftOptions(Variant.Options):
    """Options of a padded random crop."""

    pad: Annotated[int, Field(ge=1, le=1024)] = 4  #: Pixels of padding on each side.
    fill: Literal["zeros", "reflect"] = "zeros"  #: Content of the padding.


class RandomShift(Stage):
    """A crop of image size at a random position in the padded image."""

    Options = ShiftOptions
    does = frozenset({"crop"})
    draws = 2  # the top left corner of the crop in the padded image

    def __init__(self, config: Settings, options: ShiftOptions) -> None:
        self.pad = options.pad
        self.fill = options.fill

    @classmethod
    def check(cls, config: Settings, options: ShiftOptions) -> None:
        if options.pad >= min(config.image_shape):
            raise ConfigError(f"augment.pad={options.pad}: less than image_size={config.image_size}")

    def choices(self, rng_keys: Tensor, stored: Shape) -> Tensor:
        return integers_on_cpu(2 * self.pad + 1, rng_keys, site_code("crop"), 2)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        pad = [self.pad] * 4
        rows, columns = images.shape[-2:]
        if self.fill == "zeros":
            padded = F.pad(images, pad)
        else:
            padded = F.pad(images.float(), pad, mode="reflect").to(torch.uint8)  # which takes floats on a GPU
        if fixed or images.device.type != "cpu":
            top, left = send(choices, images.device).unbind(1)
            windows = padded.unfold(2, rows, 1).unfold(3, columns, 1)  # (B, C, places, places, H, W)
            return windows[torch.arange(len(images), device=images.device), :, top, left]
        cropped = torch.empty_like(images, memory_format=torch.contiguous_format)
        for crop, image, (top, left) in zip(cropped.numpy(), padded.numpy(), choices.tolist(), strict=True):
            # on a CPU, NumPy is faster one image at a time
            crop[...] = image[:, top : top + rows, left : left + columns]
        return cropped


class BoxOptions(Variant.Options):
    """Options of a random box: its smallest area, its largest aspect ratio, and how it is resized."""

    area: Annotated[float, Field(gt=0, le=1)] = 0.08  #: Smallest fraction of the image's area.
    ratio: Annotated[float, Field(ge=1)] = 4 / 3  #: Largest ratio of the longer side to the shorter.
    interpolation: Interpolation = "bilinear"  #: Resizing, with antialiasing. Evaluations always resize bilinearly.


class RandomBox(Stage):
    """A random box, resized with antialiasing to `image_size`, as by torchvision's RandomResizedCrop.

    scale=(area, 1). ratio=(1 / ratio, ratio), times the input's width over its height.
    """

    Options = BoxOptions
    does = frozenset({"resized crop"})
    draws = 4  # top, left, height and width of the box

    def __init__(self, config: Settings, options: BoxOptions) -> None:
        self.shape = config.image_shape
        self.area = options.area
        self.ratio = options.ratio
        self.interpolation = options.interpolation

    def choices(self, rng_keys: Tensor, stored: Shape) -> Tensor:
        return random_boxes(rng_keys, stored, (self.area, 1.0), self.ratio, self.shape[1] / self.shape[0])

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        if fixed or images.device.type != "cpu":  # one image at a time would take three launches each
            groups = zip(torch.split(images, GROUP), torch.split(send(choices, images.device), GROUP), strict=True)
            return torch.cat([crop_by_products(some, boxes, self.shape, self.interpolation) for some, boxes in groups])
        pieces = images.new_empty((*images.shape[:2], *self.shape))  # channels first
        for image, (top, left, height, width), piece in zip(images, choices.tolist(), pieces, strict=True):
            box = image[None, :, top : top + height, left : left + width]
            piece[:] = F.interpolate(box, self.shape, mode=self.interpolation, antialias=True)[0]
        return pieces


def center_crop(images: Tensor, crop: int, shape: Shape) -> Tensor:
    """Return the largest centered window in the middle `crop` x `crop` of uint8 images (B, C, S, S), as `shape`."""
    height, width = largest_window((crop, crop), shape[1] / shape[0])
    top, left = (round((images.shape[-1] - length) / 2) for length in (height, width))  # as torchvision's center_crop
    middle = images[:, :, top : top + height, left : left + width]
    if (height, width) == shape:
        return middle.contiguous()
    if images.device.type == "cpu":
        return F.interpolate(middle, shape, mode="bilinear", antialias=True).contiguous()
    boxes = box_like(torch.empty(len(images), 4, dtype=torch.int64, device=images.device), 0, 0, height, width)
    return crop_by_products(middle, boxes, shape)


class Operation(NamedTuple):
    """An operation of `image_ops`. amounts (levels,): its amount at each level. signed: whether its sign is random."""

    apply: image_ops.Operation
    amounts: Tensor = torch.zeros(1)
    signed: bool = False


class Distortion(Stage):
    """Base class of stages that apply torchvision's operations, to images scaled to 0-255 and back.

    The operation `color` leaves gray images unchanged, as in torchvision.
    """

    does = frozenset({"distort"})
    operations: list[Operation]

    def __init__(self, config: Settings, options: Any) -> None:
        self.white = describe(config.data).levels - 1

    @classmethod
    def check(cls, config: Settings, options: Any) -> None:
        if config.channels not in (1, 3):
            raise ConfigError(f"channels={config.channels}: augment={config.augment} takes 1 (gray) or 3 (color)")

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        return scale(self.distort(scale(images, self.white, WHITE), choices, fixed), WHITE, self.white)

    def distort(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        """Return distorted copies of images with values from 0 to 255. choices, fixed: see `Stage.apply`."""
        raise NotImplementedError

    def apply_amounts(self, images: Tensor, choices: Tensor, amounts: Tensor, fixed: bool) -> Tensor:
        """Return each image after its operation, number `choices` (B,), by `amounts` (B,). fixed: see `Stage.apply`."""
        operations = [operation.apply for operation in self.operations]
        if fixed:
            return image_ops.apply_batched(images, operations, choices, amounts)
        images = images.clone()
        places = choices.argsort(stable=True)  # grouped by operation, so that one transfer suffices
        counts = torch.bincount(choices, minlength=len(operations)).tolist()
        parts = (torch.split(send(whole, images.device), counts) for whole in (places, amounts[places]))
        for operation, chosen, amount in zip(operations, *parts, strict=True):
            if len(chosen):
                images[chosen] = operation(images[chosen], amount)
        return images


class RandAugmentOptions(Variant.Options):
    """Options of RandAugment. Magnitude 10 of big_vision's randaug(2, 10) is its maximum and equals 30 here."""

    layers: Annotated[int, Field(ge=1, le=100)] = 2  #: Number of operations per image.
    magnitude: Annotated[int, Field(ge=0, lt=LEVELS)] = 10  #: Strength, up to torchvision's 30.


class RandomDistortion(Distortion):
    """The stage of RandAugment: `layers` random operations at one magnitude."""

    Options: ClassVar[type[Variant.Options]] = RandAugmentOptions

    def __init__(self, config: Settings, options: RandAugmentOptions) -> None:
        super().__init__(config, options)
        self.layers = options.layers
        self.magnitude = options.magnitude
        self.draws = 3 * self.layers  # an operation for each layer, then a level for each, then a sign for each
        self.magnitudes: dict[torch.device, tuple[Tensor, Tensor]] = {}
        down, across = (150 / 331 * side for side in config.image_shape)
        self.operations = operations_with(0.3, down, across, angle=30.0, enhancement=0.9, bits=4)

    def choices(self, rng_keys: Tensor, stored: Shape) -> Tensor:
        return torch.cat([self.chosen(rng_keys), self.levels(rng_keys), signs(rng_keys, self.layers)], dim=1)

    def chosen(self, rng_keys: Tensor) -> Tensor:
        """Draw the numbers of the operations: (B, layers)."""
        return integers_on_cpu(len(self.operations), rng_keys, site_code("operation"), self.layers)

    def levels(self, rng_keys: Tensor) -> Tensor:
        """Return the level of each operation: (B, layers)."""
        return torch.full((len(rng_keys), self.layers), self.magnitude)

    def distort(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        device = choices.device
        if device not in self.magnitudes:  # copied once: a CUDA graph cannot hold the transfer
            table = torch.stack(torch.broadcast_tensors(*(operation.amounts for operation in self.operations)))
            signed = torch.tensor([operation.signed for operation in self.operations])
            self.magnitudes[device] = table.to(device), signed.to(device)
        table, signed = self.magnitudes[device]
        for operation, level, sign in zip(*(some.unbind(1) for some in choices.chunk(3, dim=1)), strict=True):
            amounts = table[operation, level] * sign.where(signed[operation], 1)
            images = self.apply_amounts(images, operation, amounts, fixed)
        return images


class TrivialDistortion(RandomDistortion):
    """The stage of TrivialAugment: one random operation at a random magnitude, in the wide search space."""

    Options = Variant.Options

    def __init__(self, config: Settings, options: Any) -> None:
        super().__init__(config, RandAugmentOptions(layers=1))
        self.operations = operations_with(0.99, down=32.0, across=32.0, angle=135.0, enhancement=0.99, bits=6)

    def levels(self, rng_keys: Tensor) -> Tensor:
        return integers_on_cpu(LEVELS, rng_keys, site_code("magnitude"), 1)


class AutoAugmentOptions(Variant.Options):
    """Options of AutoAugment."""

    policy: Literal["imagenet", "cifar10", "svhn"] = "imagenet"  #: Dataset on which the policy was found.


class PolicyDistortion(RandomDistortion):
    """The stage of AutoAugment: both operations of a random pair, each with a level and a probability of its own."""

    Options = AutoAugmentOptions

    def __init__(self, config: Settings, options: AutoAugmentOptions) -> None:
        from torchvision.transforms import AutoAugment, AutoAugmentPolicy  # late: takes seconds

        super().__init__(config, RandAugmentOptions(layers=2))
        down, across = (150 / 331 * side for side in config.image_shape)
        self.operations = operations_with(0.3, down, across, 30.0, 0.9, bits=4, levels=10)
        self.operations.append(Operation(image_ops.invert))
        pairs = []
        for pair in AutoAugment(AutoAugmentPolicy(options.policy)).policies:
            pairs.append([(NAMES.index(name), level or 0, round(STEPS * share)) for name, share, level in pair])
        self.pairs = torch.tensor(pairs)  # (25, 2, 3)

    def pair(self, rng_keys: Tensor) -> Tensor:
        """Draw two operations (B, 2, 3), each as its number, its level and its probability times STEPS."""
        return self.pairs[integers_on_cpu(len(self.pairs), rng_keys, site_code("pair"), 1)[:, 0]]

    def chosen(self, rng_keys: Tensor) -> Tensor:
        operations, _, shares = self.pair(rng_keys).unbind(2)
        return operations * (integers_on_cpu(STEPS, rng_keys, site_code("applied"), 2) < shares)  # 0: the identity

    def levels(self, rng_keys: Tensor) -> Tensor:
        return self.pair(rng_keys)[:, :, 1]


class TimmRandAugmentOptions(Variant.Options):
    """Options of timm's RandAugment, by default those of `rand-m9-mstd0.5-inc1`."""

    layers: Annotated[int, Field(ge=1, le=100)] = 2  #: Number of operations per image (timm: n).
    magnitude: Annotated[float, Field(ge=0, le=30)] = 9.0  #: Mean strength, at most 10 with `increasing` (timm: m).
    deviation: Annotated[float, Field(ge=0, le=10)] = 0.5  #: Standard deviation of the strength (timm: mstd).
    probability: Annotated[float, Field(gt=0, le=1)] = 0.5  #: Probability of applying an operation (timm: p).
    #: Whether posterize, solarize and changes of color grow with the strength (timm: inc1). If not, as in big_vision,
    #: strengths may reach 30 (timm: inc0, mmax30), and posterize and solarize fade.
    increasing: bool = True

    @property
    def most(self) -> int:
        """The largest strength."""
        return 10 if self.increasing else 30


class TimmDistortion(RandomDistortion):
    """The stage of timm's RandAugment: `layers` random operations, each with a probability and a normal magnitude."""

    Options = TimmRandAugmentOptions

    def __init__(self, config: Settings, options: TimmRandAugmentOptions) -> None:
        super().__init__(config, RandAugmentOptions(layers=options.layers))
        self.options = options
        self.operations = timm_operations(config.image_shape, options)

    @classmethod
    def check(cls, config: Settings, options: TimmRandAugmentOptions) -> None:
        super().check(config, options)
        if options.magnitude > options.most:
            raise ConfigError(f"augment.magnitude={options.magnitude:g}: above 10 only with augment.increasing=false")

    def chosen(self, rng_keys: Tensor) -> Tensor:
        operations = 1 + integers_on_cpu(len(self.operations) - 1, rng_keys, site_code("operation"), self.layers)
        share = round(STEPS * self.options.probability)
        return operations * (integers_on_cpu(STEPS, rng_keys, site_code("applied"), self.layers) < share)

    def levels(self, rng_keys: Tensor) -> Tensor:
        uniform = uniforms(rng_keys, site_code("magnitude"), self.layers).clamp(min=2**-33)
        magnitudes = self.options.magnitude + self.options.deviation * torch.special.ndtri(uniform)
        return (magnitudes.clamp(0, self.options.most) * FINE).round().long()


class ThreeAugmentOptions(Variant.Options):
    """Options of 3-Augment: the flip, and the largest change of colors."""

    flip: bool = True  #: Whether to flip horizontally with probability 1/2. Not for digits or text.
    #: Largest change of brightness, contrast and color: factors from 1 - jitter to 1 + jitter.
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.3


class ThreeDistortions(Distortion):
    """The stage of 3-Augment: a random flip (if `flip`), then grayscale, solarize or blur, then color jitter."""

    Options = ThreeAugmentOptions
    does = frozenset({"flip", "distort"})
    draws = 9  # the flip, one of the three, the blur's radius, the order of three changes, and their factors

    def __init__(self, config: Settings, options: ThreeAugmentOptions) -> None:
        super().__init__(config, options)
        self.jitter = options.jitter
        self.flips = options.flip
        self.flip = RandomFlip(config, options)
        one_of_three: list[image_ops.Operation] = [image_ops.gray, image_ops.solarize, image_ops.gaussian_blur]
        self.operations = list(map(Operation, one_of_three))

    def choices(self, rng_keys: Tensor, stored: Shape) -> Tensor:
        flips = integers_on_cpu(2, rng_keys, site_code("flip"), 1)
        operation = integers_on_cpu(3, rng_keys, site_code("one of three"), 1)
        radius = integers_on_cpu(STEPS, rng_keys, site_code("radius"), 1)
        # The old spelling of the sites keeps the draws.
        order = integers_on_cpu(len(ORDERS), rng_keys, site_code("order of colours"), 1)
        factors = integers_on_cpu(STEPS, rng_keys, site_code("colours"), 3)
        return torch.cat([flips, operation, radius, ORDERS[order[:, 0]], factors], dim=1)

    def apply(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        if self.flips:
            images = self.flip.apply(images, choices[:, :1], fixed)
        return super().apply(images, choices[:, 1:], fixed)

    def distort(self, images: Tensor, choices: Tensor, fixed: bool) -> Tensor:
        operation = choices[:, 0]
        amounts = (0.1 + 1.9 / STEPS * choices[:, 1]).where(operation == 2, 128)  # blur's radius, solarize's threshold
        images = self.apply_amounts(images, operation, amounts, fixed)
        order, factors = send(choices[:, 2:], images.device).chunk(2, dim=1)
        return image_ops.color_jitter(images, order, (2 * factors / STEPS - 1) * self.jitter)


def scale(images: Tensor, white: int, wanted: int) -> Tensor:
    """Scale uint8 images from the range 0..white to 0..wanted, rounded to the nearest integer."""
    return images if white == wanted else ((images.int() * wanted + white // 2) // white).to(torch.uint8)


def signs(rng_keys: Tensor, elements: int) -> Tensor:
    """Draw random signs (B, elements), each 1 or -1."""
    return 2 * integers_on_cpu(2, rng_keys, site_code("sign"), elements) - 1


def operations_with(
    shear: float, down: float, across: float, angle: float, enhancement: float, bits: int, levels: int = LEVELS
) -> list[Operation]:
    """Return torchvision's 14 operations, in the order of NAMES, with the given amounts at the largest level.

    shear: pixels per row or column. down, across: pixels. angle: degrees. enhancement: change of a factor.
    """
    signed: dict[image_ops.Operation, float] = {
        image_ops.shear_x: shear,
        image_ops.shear_y: shear,
        image_ops.translate_x: across,
        image_ops.translate_y: down,
        image_ops.rotate: angle,
        image_ops.brightness: enhancement,
        image_ops.color: enhancement,
        image_ops.contrast: enhancement,
        image_ops.sharpness: enhancement,
    }
    return [
        Operation(image_ops.identity),
        *(Operation(apply, torch.linspace(0, most, levels), signed=True) for apply, most in signed.items()),
        Operation(image_ops.posterize, torch.linspace(0, bits, levels).round()),
        Operation(image_ops.solarize, torch.linspace(255, 0, levels)),
        Operation(image_ops.autocontrast),
        Operation(image_ops.equalize),
    ]


def timm_operations(shape: Shape, options: TimmRandAugmentOptions) -> list[Operation]:
    """Return the identity and the 15 operations of timm's RandAugment, with FINE levels for each strength."""
    rows, columns = shape
    level = torch.arange(options.most * FINE + 1) / (10 * FINE)  # 1: strength 10
    moves = {
        image_ops.shear_x.matrix: 0.3,
        image_ops.shear_y.matrix: 0.3,
        image_ops.slide_x: 0.45 * columns,
        image_ops.slide_y: 0.45 * rows,
        image_ops.rotate.matrix: 30.0,
    }
    operations = [Operation(image_ops.identity)]
    for matrix, most in moves.items():
        operations.append(Operation(image_ops.Geometric(matrix, MIDDLE_GRAY), level * most, signed=True))
    enhancement = level * 0.9
    bits = 4 + (level * 4).floor()
    threshold = 256 - (level * 256).floor()
    if not options.increasing:
        enhancement = 2 * enhancement - 0.9
        bits = (12 - bits).clamp(min=0)
        threshold = (256 - threshold).clamp(max=256)
    for enhance in (image_ops.brightness, image_ops.color, image_ops.contrast, image_ops.sharpness):
        operations.append(Operation(enhance, enhancement, signed=options.increasing))
    return [
        *operations,
        Operation(image_ops.posterize, bits),
        Operation(image_ops.solarize, threshold),
        Operation(image_ops.solarize_add, (level * 110).floor().clamp(max=128)),
        Operation(image_ops.autocontrast),
        Operation(image_ops.equalize),
        Operation(image_ops.invert),
    ]
