"""Linear segmentation: a linear layer on frozen patch tokens, which predicts the class of each pixel.

Data are shapes that are drawn from a key, or a folder with train/images, train/masks, val/images and val/masks. A mask
is an image of class indices with the size and the name of its image, apart from the ending. Pixels with index 255 count
nowhere.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from commonfloor.files import read_bytes
from commonfloor.metrics import ACCURACY
from commonfloor.options import ConfigError
from vitcore.analysis.eval import Computed, Eval, batch_outputs, trial_data
from vitcore.analysis.frozen_features import LinearClassifier, normalized_tokens, standardizer
from vitcore.data.dataset import Bytes
from vitcore.data.decode import LARGEST, SUFFIXES, middle_window, open_image, upright
from vitcore.data.homes import data_homes
from vitcore.data.lookup import describe, searched_folders
from vitcore.data.shuffle import generator, random_order
from vitcore.data.splits import Data, Images
from vitcore.data.test_sets import NAME
from vitcore.model.build import Model
from vitcore.model.vit import ViT
from vitcore.settings import Settings

IGNORED = 255
SHAPES = "shapes"
KINDS = ("background", "disc", "square", "triangle")
CANVAS = 64  # pixels a side of the masks of shapes, unless images are larger
COUNTS = {"train": 200, "val": 50}  # images of shapes
SHARE: dict[str, object] = {**ACCURACY, "is_accuracy": False}  # of pixels, in points as an accuracy is
MOST = 2**19  # patches that the layer is fitted to
AT_ONCE = 64  # validation images
HELD_OUT = 10  # one in so many training images chooses the penalty


class Dense(Eval):
    """dense@DATA: mean intersection over union on the validation images of a folder, or of generated shapes.

    The layer is fitted to the classes of each patch's pixels. In validation, its logits are enlarged bilinearly.
    """

    metrics = {
        "dense_miou": {**SHARE, "label": "mIoU"},
        "dense_pixel_accuracy": {**SHARE, "label": "pixel accuracy"},
    }
    values = ("DATA",)
    example = SHAPES

    @classmethod
    def takes(cls, value: str) -> bool:
        return NAME.fullmatch(value) is not None

    @property
    def label_suffix(self) -> str:
        return f" on {self.value}"

    def check(self, config: Settings) -> None:
        if config.model:
            raise ConfigError(f"eval {self.with_value('dense')}: the tokens of model={config.model} are not known")
        masked_images(self.value, None, config.square_side(f"eval {self.with_value('dense')}"), config.channels)

    def compute(self, model: Model, data_dir: Path | None = None) -> Computed:
        assert isinstance(model, ViT), "`check` takes no other"
        config = model.config
        train, val = masked_images(self.value, data_dir, config.image_shape[0], config.channels)
        standard = trial_data(model, data_dir).with_levels(describe(config.data, data_dir).levels, 256)
        notes = []
        order = random_order(len(train.names), "dense").tolist()
        if len(order) < 2:
            raise ConfigError(f"eval dense@{self.value}: needs at least 2 training images")
        chosen = order[: max(2, MOST // math.prod(config.grid))]
        if len(chosen) < len(order):
            notes.append(f"the layer is fitted to {len(chosen):,} of {len(order):,} training images")
        probe = TokenProbe(model, standard, train, chosen)
        counts = probe.confusions(val)
        metrics = {
            self.with_value("dense_miou"): mean_iou(counts),
            self.with_value("dense_pixel_accuracy"): float(np.trace(counts) / counts.sum()),
        }
        details: dict[str, object] = {"penalty": probe.penalty, "classes": len(counts)}
        if train.files:
            details["data_sha256"] = sha256_of([*train.files, *val.files])
        return Computed(metrics, notes, details, {"confusions": counts})


class TokenProbe:
    """A linear classifier of a trained ViT's patch tokens, fitted to the images `chosen` of `train`.

    data: of the trial, which standardize the images. penalty: the one with the best accuracy on a tenth of the images.
    """

    def __init__(self, model: ViT, data: Data, train: Masked, chosen: list[int]) -> None:
        self.model = model
        self.data = data
        self.grid = model.config.grid
        masks = [train.mask(index) for index in chosen]
        self.classes = 1 + max(int(mask[mask != IGNORED].max(initial=0)) for mask in masks)
        if self.classes < 2:
            raise ConfigError("masks of training images: have no class beside 0")
        pixels = torch.from_numpy(np.concatenate([pixel_counts(mask, self.grid, self.classes) for mask in masks]))
        tokens = self.tokens(train, chosen).flatten(0, 1)  # (n * N, D)
        pixels = pixels.to(tokens.device)  # (n * N, K)
        held_out = max(1, len(chosen) // HELD_OUT) * math.prod(self.grid)
        self.standardized = standardizer(tokens[held_out:])
        x = self.standardized(tokens)
        self.layer = LinearClassifier(x.shape[1], self.classes, x.device)

        def val_accuracy() -> float:
            right = pixels[:held_out].gather(1, self.layer.scores(x[:held_out]).argmax(dim=1, keepdim=True))
            return (right.sum() / pixels[:held_out].sum().clamp(min=1)).item()

        self.penalty, _ = self.layer.fit_best(x[held_out:], weighted(pixels[held_out:]), val_accuracy)

    def tokens(self, images: Masked, chosen: list[int]) -> Tensor:
        """Return the patch tokens (n, N, D) of n images in float64."""
        pixels = torch.from_numpy(np.stack(list(map(images.image, chosen)))).to(self.data.mean.device)
        some = Images(pixels, torch.zeros(len(chosen), dtype=torch.long), np.arange(len(chosen)))
        states = batch_outputs(partial(normalized_tokens, self.model), self.model.config, self.data, some)  # (n, T, D)
        return states[:, self.model.prefix :].double()

    def confusions(self, val: Masked) -> np.ndarray:
        """Return how many pixels of class i are predicted as class j (K, K), over all images."""
        counts = np.zeros((self.classes, self.classes), np.int64)
        for first in range(0, len(val.names), AT_ONCE):
            chosen = list(range(first, min(first + AT_ONCE, len(val.names))))
            scores = self.layer.scores(self.standardized(self.tokens(val, chosen)))  # (n, N, K)
            logits = scores.mT.unflatten(2, self.grid)  # (n, K, h, w)
            for index, of_image in zip(chosen, logits, strict=True):
                mask = val.mask(index)
                beyond = mask[(mask >= self.classes) & (mask != IGNORED)]
                if len(beyond):
                    raise ConfigError(
                        f"{val.names[index]}: index {beyond[0]}: masks of training images end at {self.classes - 1}"
                    )
                counts += confusions_of_image(of_image, mask)
        return counts


def pixel_counts(mask: Bytes, grid: tuple[int, int], classes: int) -> np.ndarray:
    """Return the number of pixels of each class in each patch (N, K), as float64. mask: (H, W)."""
    rows = ((np.arange(mask.shape[0]) + 0.5) * grid[0] / mask.shape[0]).astype(int)
    columns = ((np.arange(mask.shape[1]) + 0.5) * grid[1] / mask.shape[1]).astype(int)
    patch = rows[:, None] * grid[1] + columns  # (H, W)
    labeled = mask != IGNORED
    patches = grid[0] * grid[1]
    counts = np.bincount(patch[labeled] * classes + mask[labeled], minlength=patches * classes)
    return counts.reshape(patches, classes).astype(np.float64)


def weighted(pixels: Tensor) -> Tensor:
    """Return targets (n, K) with which the mean cross-entropy over n patches is that over pixels."""
    return pixels * (len(pixels) / pixels.sum())


def confusions_of_image(logits: Tensor, mask: Bytes) -> np.ndarray:
    """Return the confusions (K, K) of an image from its logits (K, h, w), enlarged to its mask (H, W)."""
    enlarged = F.interpolate(logits[None], mask.shape, mode="bilinear")[0]
    predicted = enlarged.argmax(dim=0).cpu().numpy()
    labeled = mask != IGNORED
    classes = len(logits)
    counts = np.bincount(mask[labeled].astype(np.int64) * classes + predicted[labeled], minlength=classes**2)
    return counts.reshape(classes, classes)


def mean_iou(counts: np.ndarray) -> float:
    """Return the mean of intersection over union over the classes that occur in masks or predictions."""
    both = np.diagonal(counts)
    either = counts.sum(axis=0) + counts.sum(axis=1) - both
    occurs = either > 0
    return float((both[occurs] / either[occurs]).mean())


@dataclass(frozen=True)
class Masked:
    """The images of one part of a dataset. Functions of an index give an image (C, S, S) and its mask (H, H).

    names: those of the masks, for messages. files: those of images and masks, none if they are drawn.
    """

    names: Sequence[str]
    image: Callable[[int], Bytes]
    mask: Callable[[int], Bytes]
    files: Sequence[Path] = ()


def masked_images(name: str, data_dir: Path | None, size: int, channels: int) -> tuple[Masked, Masked]:
    """Return the training and validation images of a dataset; raise ConfigError if there is none, or it is wrong."""
    if name == SHAPES:
        return drawn("train", size, channels), drawn("val", size, channels)
    for root in data_homes(name, data_dir):
        if root.is_dir():
            return in_folder(root / "train", size, channels), in_folder(root / "val", size, channels)
    where = searched_folders(name, data_dir)
    raise ConfigError(f"eval dense@{name}: {SHAPES}, or a folder beside the packs ({where})")


def in_folder(part: Path, size: int, channels: int) -> Masked:
    """Return the images in a folder; raise ConfigError if an image has no mask or a mask no image."""
    images = files_by_name(part / "images")
    masks = files_by_name(part / "masks")
    for name in sorted(images.keys() ^ masks.keys()):
        lacking = part / ("masks" if name in images else "images")
        raise ConfigError(f"{images.get(name) or masks[name]}: {lacking} has no file {name}.*")
    pairs = [(images[name], masks[name]) for name in sorted(images)]
    return Masked(
        [str(mask) for _, mask in pairs],
        lambda index: read_image(pairs[index][0], size, channels),
        lambda index: read_mask(*pairs[index]),
        [file for pair in pairs for file in pair],
    )


def sha256_of(files: Sequence[Path]) -> str:
    """Return what identifies files by their names and contents."""
    total = hashlib.sha256()
    for file in files:
        total.update(file.name.encode() + b"\0" + hashlib.sha256(read_bytes(file, LARGEST)).digest())
    return total.hexdigest()


def files_by_name(folder: Path) -> dict[str, Path]:
    """Return the image files in a folder by name without ending; raise ConfigError if there are none."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder: dense@DATA needs DATA/train and DATA/val with images/ and masks/")
    files: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() not in SUFFIXES or file.name.startswith("."):
            continue
        if file.stem in files:
            raise ConfigError(f"{file}: {files[file.stem].name} has the same name")
        files[file.stem] = file
    if not files:
        raise ConfigError(f"{folder}: has no images")
    return files


def read_image(file: Path, size: int, channels: int) -> Bytes:
    """Return an image's middle square (C, S, S); raise ConfigError if it cannot be read."""
    try:
        with open_image(file) as opened:
            pixels = middle_window(opened, (size, size), channels)
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def read_mask(image: Path, mask: Path) -> Bytes:
    """Return the middle square of a mask; raise ConfigError if it has other values or another size than its image."""
    try:
        with open_image(image) as opened:
            size = upright(opened).size
        with open_image(mask) as opened:
            mode = opened.mode
            indices = np.array(opened)
    except (ValueError, OSError) as error:
        raise ConfigError(f"{mask}: {error}") from None
    if mode not in ("L", "P"):
        raise ConfigError(f"{mask}: is an image of mode {mode}: save class indices as 8-bit gray values or a palette")
    height, width = indices.shape
    if size != (width, height):
        raise ConfigError(f"{mask}: {width} x {height} pixels, and its image has {size[0]} x {size[1]}")
    side = min(height, width)
    top = (height - side) // 2
    left = (width - side) // 2
    return indices[top : top + side, left : left + side]


def drawn(part: str, size: int, channels: int) -> Masked:
    side = max(CANVAS, size)

    def image(index: int) -> Bytes:
        pixels, _ = draw(part, index, side)
        resized = F.interpolate(torch.from_numpy(pixels)[None, None], (size, size), mode="bilinear", antialias=True)
        return resized[0].expand(channels, size, size).round().byte().numpy()

    names = [f"{SHAPES} {index}" for index in range(COUNTS[part])]
    return Masked(names, image, lambda index: draw(part, index, side)[1])


def draw(part: str, index: int, side: int) -> tuple[np.ndarray, Bytes]:
    """Return a gray image (side, side) of float32 from 0 to 255 with up to three shapes, and its mask."""
    rng = generator(SHAPES, part, index)
    rows, columns = (np.mgrid[:side, :side] + 0.5) / side
    pixels = 60 + 30 * rng.random_sample() + 12 * rng.standard_normal((side, side))
    mask = np.zeros((side, side), np.uint8)
    for _ in range(1 + rng.randint(3)):
        kind = 1 + rng.randint(len(KINDS) - 1)
        radius = 0.2 + 0.15 * rng.random_sample()
        y, x = 0.2 + 0.6 * rng.random_sample(2)
        down = (rows - y) / radius
        right = (columns - x) / radius
        inside = {
            1: down**2 + right**2 < 1,
            2: np.maximum(abs(down), abs(right)) < 0.9,
            3: (abs(right) < (1 + down) / 2) & (down < 1),
        }[kind]
        pixels[inside] += 50 + 30 * kind
        mask[inside] = kind
    return pixels.clip(0, 255).astype(np.float32), mask
