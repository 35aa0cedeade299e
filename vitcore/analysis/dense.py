"""Linear segmentation: a linear layer on frozen patch tokens, which predicts the class of each pixel."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from commonfloor.options import ConfigError
from vitcore.analysis import dense_data
from vitcore.analysis.dense_data import IGNORED, SHAPES, Masked
from vitcore.analysis.eval import Computed, Eval, batch_outputs, trial_data
from vitcore.analysis.frozen_features import LinearClassifier, normalized_tokens, standardizer
from vitcore.data.dataset import Bytes
from vitcore.data.lookup import describe
from vitcore.data.shuffle import random_order
from vitcore.data.splits import Data, Images
from vitcore.data.test_sets import NAME
from vitcore.model.build import Model
from vitcore.model.vit import ViT
from vitcore.settings import Settings
from vitcore.training.evaluation import ACCURACY

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
        dense_data.find(self.value, None, config.square_side(f"eval {self.with_value('dense')}"), config.channels)

    def compute(self, model: Model, data_dir: Path | None = None) -> Computed:
        assert isinstance(model, ViT), "`check` takes no other"
        config = model.config
        train, val = dense_data.find(self.value, data_dir, config.image_shape[0], config.channels)
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
            details["data_sha256"] = dense_data.sha256_of([*train.files, *val.files])
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
