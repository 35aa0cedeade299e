"""Masked patch prediction, the self-supervised objective of arXiv 2010.11929, section B.1.2.

Shapes: B images, C channels, P patch size, N patches in raster order, M = N // 2 corrupted patches, D width.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitcore.data.lookup import describe
from vitcore.keyed_random import RngKeys, bits, integers, site_code
from vitcore.model.head import LinearHead
from vitcore.model.initialization import Initial, initialize, zeros
from vitcore.model.position import stem_width
from vitcore.model.vit import ViT
from vitcore.options import ConfigError
from vitcore.settings import Settings
from vitcore.training.objectives.objective import Objective

SHADES = 8  # shades of a channel: 3 bits
CHOICE = site_code("masked patch choice")
FATE = site_code("masked patch fate")
OTHER = site_code("masked patch other")


class Masking(Objective):
    """Base class of objectives that predict masked patches, without labels.

    In training, the masks are a function of (seed, epoch, image). In evaluations, they are a function of (seed, image).
    """

    keyed = True
    labels = False

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.levels = describe(config.data).levels

    @classmethod
    def check(cls, config: Settings) -> None:
        for message, condition in cls.impossible(config).items():
            if condition:
                raise ConfigError(message)

    @classmethod
    def impossible(cls, config: Settings) -> dict[str, object]:
        """Return error message -> whether it applies, for settings that do not work with masked patches."""
        objective = f"objective={config.objective}"
        return {
            f"model={config.model}: {objective} works only with this package's ViT": config.model,
            f"head={config.head}: {objective} needs head=linear": config.head != "linear",
            f"mixup={config.mixup}: must be 0 with {objective}": config.mixup,
            f"cutmix={config.cutmix}: must be 0 with {objective}": config.cutmix,
            f"patch={config.patch}: {objective} needs at least two patches": math.prod(config.grid) < 2,
        }


class MaskedPatch(Masking):
    """Prediction of the 3-bit mean color of each corrupted patch (arXiv 2010.11929, section B.1.2).

    Half of the patches are corrupted. Each channel has 8 shades, so RGB has 512 classes and grayscale has 8. Accuracy
    and loss are averaged over the corrupted patches.
    """

    numerics = 1

    @classmethod
    def impossible(cls, config: Settings) -> dict[str, object]:
        rate = f"patch_dropout={config.patch_dropout}"
        predicted = f"{rate}: objective=masked-patch predicts patches, which have to be there: 0"
        return super().impossible(config) | {predicted: config.patch_dropout}

    @classmethod
    def model(cls, config: Settings) -> ViT:
        return MaskedViT(config)

    def targets(self, pixels: Tensor, labels: Tensor, rng_keys: RngKeys) -> Tensor:
        """Return the color classes of the corrupted patches (B, M)."""
        assert rng_keys is not None
        colors = mean_colors(pixels, self.config.patch, self.levels)  # (B, N)
        return colors.gather(1, corrupted_patches(rng_keys, colors.shape[1]))

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        return super().loss(logits.flatten(0, 1), targets.flatten())

    def answers(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return cross-entropy and correctness (0 or 1) of each patch (B, M, 2), which take less memory than logits."""
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
        return torch.stack([losses, (logits.argmax(dim=2) == targets).to(losses.dtype)], dim=2)

    def scores(self, answers: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        losses, right = answers.unbind(dim=2)
        return losses.mean().item(), right.mean(dim=1)


class MaskedViT(ViT):
    """A ViT that predicts the mean color of the corrupted patches, with a linear head on each patch's output.

    It maps images (B, C, H, W) and their random keys (B,) to logits (B, M, 8^C). Without keys, no patch is corrupted,
    and the logits (B, N, 8^C) cover all patches.
    """

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.objective = Corruption(config)
        self.head = LinearHead(config.model_copy(update={"classes": SHADES**config.channels}))
        initialize(self, config.seed, config.init, config.width)

    def patches(self, images: Tensor, rng_keys: RngKeys = None) -> Tensor:
        x = super().patches(images, rng_keys)  # (B, N, D)
        return x if rng_keys is None else self.objective(x, rng_keys)

    def forward(self, images: Tensor, rng_keys: RngKeys = None) -> Tensor:
        *_, x = self.states(images, rng_keys)
        x = self.encoder.norm(x)[:, self.prefix :]  # (B, N, D)
        if rng_keys is not None:
            x = gather_rows(x, corrupted_patches(rng_keys, x.shape[1]))
        return self.head(x)


class Corruption(Initial):
    """A layer that corrupts half of the patch embeddings (B, N, D), before position embeddings are added.

    A learned [mask] embedding replaces 80% of the chosen patches, and 10% are each replaced by another patch of
    the image. The other 10% are unchanged.
    """

    draws = {"mask": zeros}  # initialized to 0 like the class token

    def __init__(self, config: Settings) -> None:
        super().__init__()
        self.mask = nn.Parameter(torch.empty(stem_width(config)))

    def forward(self, x: Tensor, rng_keys: Tensor) -> Tensor:
        N = x.shape[1]
        place = torch.arange(N, device=x.device)
        chosen = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
        chosen = chosen.scatter(1, corrupted_patches(rng_keys, N), True)
        fate = integers(10, rng_keys, FATE, N).where(chosen, 9)  # (B, N): 0 to 7: mask, 8: another patch, 9: unchanged
        other = gather_rows(x, (place + 1 + integers(N - 1, rng_keys, OTHER, N)) % N)
        x = torch.where((fate == 8)[..., None], other, x)
        return torch.where((fate < 8)[..., None], self.mask.to(x.dtype), x)


def corrupted_patches(rng_keys: Tensor, patches: int) -> Tensor:
    """Return the random indices (B, N // 2) of the patches to corrupt. rng_keys: random keys (B,). patches: N."""
    return bits(rng_keys, CHOICE, patches).argsort(dim=1, stable=True)[:, : patches // 2]


def gather_rows(x: Tensor, places: Tensor) -> Tensor:
    """Return the rows (B, M, D) of x (B, N, D) at the indices `places` (B, M)."""
    return x.gather(1, places[..., None].expand(-1, -1, x.shape[2]))


def mean_colors(pixels: Tensor, patch: int, levels: int) -> Tensor:
    """Return the class (B, N), from 0 to 8^C - 1, of each patch's mean color in uint8 images (B, C, H, W).

    The first channel is the most significant digit. levels: number of possible pixel values, divided among 8 shades.
    """
    cut = cut_patches(pixels, patch).to(torch.int64)  # integers: rounding never changes a class
    shades = cut.sum(dim=(4, 5)).flatten(1, 2) * SHADES // (levels * patch**2)  # (B, N, C)
    return (shades * SHADES ** torch.arange(shades.shape[2] - 1, -1, -1, device=pixels.device)).sum(dim=2)


def cut_patches(pixels: Tensor, patch: int) -> Tensor:
    """Return the patches (B, H / P, W / P, C, P, P) of images (B, C, H, W)."""
    B, C, H, W = pixels.shape
    return pixels.view(B, C, H // patch, patch, W // patch, patch).permute(0, 2, 4, 1, 3, 5)
