"""I-JEPA: prediction of a teacher's features in blocks of an image from one other block (arXiv 2301.08243).

Shapes: B images, N patches in raster order, K patches of the context, M target blocks of at most L patches, D width, d
width of the predictor.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from commonfloor.options import ConfigError, JsonSettings
from vitcore.keyed_random import RngKeys, bits, site_code, uniforms
from vitcore.model.head import LinearHead
from vitcore.model.initialization import Initial, initialize, normal
from vitcore.model.position import POSITION, Context, Grid, check_patches_may_leave
from vitcore.model.vit import Encoder
from vitcore.settings import Settings
from vitcore.training.objectives.masked_patches import (
    check_decoder,
    check_embeds_patches_alone,
    decoder_config,
    gather_rows,
    inside_blocks,
)
from vitcore.training.objectives.self_supervised import SelfTaught, Student

TARGETS = 4  # M
TARGET_AREA, TARGET_ASPECT = (0.15, 0.2), (0.75, 1.5)  # ranges; an aspect is height over width
CONTEXT_AREA, CONTEXT_ASPECT = (0.85, 1.0), (1.0, 1.0)
CONTEXT = 1 / 3  # K, as a fraction of N
BLOCKS = site_code("blocks")
ORDER = site_code("blocks order")


@dataclass(frozen=True)
class Blocks:
    """The random blocks of an image with `grid` patches (arXiv 2301.08243, section 3 and Figure 4).

    The context is a large block without the patches of the four targets. It has any number of patches, so K random ones
    stay, as the published code cuts all contexts of a batch to the smallest. If there are fewer, some stand twice.
    """

    grid: Grid

    @property
    def target_size(self) -> int:
        """The number L, at least that of any target's patches after rounding of its sides."""
        area = TARGET_AREA[1] * math.prod(self.grid)
        sides = [math.sqrt(area * aspect) + 0.5 for aspect in (TARGET_ASPECT[1], 1 / TARGET_ASPECT[1])]
        return min(math.prod(self.grid), math.ceil(math.prod(sides)))

    def context(self, rng_keys: Tensor) -> Tensor:
        """Return the indices (B, K) of the context's patches. One is random if the targets leave none."""
        inside = self.inside(rng_keys)
        left = inside[:, TARGETS] & ~inside[:, :TARGETS].any(dim=1)  # (B, N)
        order = bits(rng_keys, ORDER, left.shape[1]).long()
        return members(left, order, max(1, int(math.prod(self.grid) * CONTEXT)))[0]

    def targets(self, rng_keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return the indices (B, M, L) of the targets' patches, and which are no repetitions (B, M, L)."""
        inside = self.inside(rng_keys)[:, :TARGETS]  # (B, M, N)
        return members(inside, torch.arange(inside.shape[2], device=inside.device), self.target_size)

    def inside(self, rng_keys: Tensor) -> Tensor:
        """Return which patches are in the targets, and last in the context's whole block: (B, M + 1, N)."""
        uniform = uniforms(rng_keys, BLOCKS, 4 * (TARGETS + 1)).view(-1, TARGETS + 1, 4)
        targets = random_blocks(uniform[:, :TARGETS], TARGET_AREA, TARGET_ASPECT, self.grid)
        context = random_blocks(uniform[:, TARGETS:], CONTEXT_AREA, CONTEXT_ASPECT, self.grid)
        return torch.cat([targets, context], dim=1)

    def visible(self, x: Tensor, rng_keys: RngKeys) -> Tensor:
        """Return the context's patches (B, K, D) of x (B, N, D), or all patches without keys."""
        return x if rng_keys is None else gather_rows(x, self.context(rng_keys))


def random_blocks(uniform: Tensor, areas: tuple[float, float], aspects: tuple[float, float], grid: Grid) -> Tensor:
    """Return which patches are in random blocks (B, n, N). uniform: random numbers (B, n, 4) in [0, 1).

    areas: range of a block's area, as a fraction of N. aspects: range of its height over its width. Sides are rounded
    to whole patches.
    """
    rows, columns = grid
    share, ratio, down, across = uniform[..., None].unbind(dim=2)  # (B, n, 1)
    area = rows * columns * (areas[0] + (areas[1] - areas[0]) * share)
    aspect = aspects[0] + (aspects[1] - aspects[0]) * ratio
    height = (area * aspect).sqrt().round().clamp(1, rows)
    width = (area / aspect).sqrt().round().clamp(1, columns)
    return inside_blocks(height, width, down, across, grid)


def members(inside: Tensor, order: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the indices (..., count) of members in ascending `order`, and which are no repetitions (..., count).

    inside (..., N): which patches are members. With fewer members than `count`, they repeat. With more, the first stay.
    """
    ranked = order.where(inside, 2**62).argsort(dim=-1, stable=True)
    number = inside.sum(dim=-1, keepdim=True).clamp(min=1)
    each = torch.arange(count, device=inside.device)
    return ranked.gather(-1, each % number), each < number


class IJEPA(SelfTaught):
    """Prediction of a teacher's features in four blocks of an image from the rest (I-JEPA: arXiv 2301.08243).

    The loss is smooth L1, as in the published code; the paper names L2. An image's accuracy is the fraction of the
    features' variance within its blocks that the prediction explains, or 0 if the fraction is negative.
    """

    numerics = 1
    predicted = "masked features"
    without = (*SelfTaught.without, "patch_dropout")

    class Options(SelfTaught.Options):
        """The options of the teacher, and the size of the predictor."""

        #: Width of the predictor. 0: half of the encoder's, as for ViT-B in arXiv 2301.08243 (384 of 768).
        predictor_width: Annotated[int, Field(ge=0, le=2**16)] = 0
        #: Blocks of the predictor. 0: half of the encoder's, as for ViT-B in arXiv 2301.08243 (6 of 12).
        predictor_depth: Annotated[int, Field(ge=0, le=1024)] = 0

        def predictor(self, config: Settings) -> dict[str, int]:
            """Return the predictor's width, depth and number of attention heads."""
            width = self.predictor_width or config.width // 2
            return {"width": width, "depth": self.predictor_depth or max(1, config.layers // 2), "heads": config.heads}

    options: Options

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.blocks = Blocks(config.grid)

    @classmethod
    def canonical(cls, config: Settings) -> JsonSettings:
        """Return option -> 0 for each option that states its default size, so that trial ids are equal."""
        default = cls.Options().predictor(config)
        chosen = config.options_of(cls.slot, cls.Options).predictor(config)
        return {f"predictor_{name}": 0 for name in ("width", "depth") if chosen[name] == default[name]}

    @classmethod
    def check(cls, config: Settings) -> None:
        super().check(config)
        if min(config.grid) < 4:
            raise ConfigError(f"patch={config.patch}: objective=ijepa needs at least 4 x 4 patches")
        check_embeds_patches_alone(config)
        check_decoder(config.options_of(cls.slot, cls.Options).predictor(config), "predictor")
        check_patches_may_leave(config, "objective=ijepa")

    @classmethod
    def model(cls, config: Settings) -> "Predicting":
        return Predicting(config)

    def share(self, done: float) -> float:
        return 1 - done

    def targets(self, pixels: Tensor, labels: Tensor, rng_keys: RngKeys) -> Tensor:
        """Return the weight of each target patch (B, M, L) in its image's mean."""
        assert rng_keys is not None
        counts = self.blocks.targets(rng_keys)[1].float()
        return counts / counts.sum(dim=(1, 2), keepdim=True)

    def loss(self, outputs: tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
        return self.losses(outputs, targets).mean()

    def losses(self, outputs: tuple[Tensor, Tensor], weights: Tensor) -> Tensor:
        """Return the loss of each image (B,). outputs: predicted features and the teacher's (B, M, L, D)."""
        errors = F.smooth_l1_loss(*outputs, reduction="none").mean(dim=3)
        return (errors * weights).sum(dim=(1, 2))

    def answers(self, outputs: tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
        """Return each image's loss, mean squared error, and variance of the teacher's features (B, 3)."""
        predicted, taught = outputs
        weights = targets[..., None]  # (B, M, L, 1)
        mean = (taught * weights).sum(dim=(1, 2), keepdim=True)  # (B, 1, 1, D)
        error = ((taught - predicted).square().mean(dim=3) * targets).sum(dim=(1, 2))
        variance = ((taught - mean).square().mean(dim=3) * targets).sum(dim=(1, 2))
        return torch.stack([self.losses(outputs, targets), error, variance], dim=1)

    def scores(self, answers: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        losses, errors, variances = answers.unbind(dim=1)
        return losses.mean().item(), (1 - errors / variances.clamp(min=1e-12)).clamp(min=0)


class Predicting(Student):
    """A ViT that maps images (B, C, H, W) to features predicted from the context, and the teacher's (B, M, L, D).

    The teacher's are its last layer's features of the whole image, each normalized over its channels. By default, the
    images' keys are 0.
    """

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        options = config.options_of("objective", IJEPA.Options)
        size = decoder_config(config, options.predictor(config))
        self.blocks = Blocks(config.grid)
        self.patch_dropout = self.blocks.visible
        self.objective = Predictor(size, config.width, self.prefix)
        self.head = LinearHead(size.model_copy(update={"classes": config.width, "head_init": config.head_init}))
        initialize(self, config.seed, config.init, config.width)

    def forward(self, images: Tensor, rng_keys: RngKeys = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        if rng_keys is None:
            rng_keys = torch.zeros(len(images), dtype=torch.int64, device=images.device)
        context = self.blocks.context(rng_keys)
        targets, _ = self.blocks.targets(rng_keys)
        *_, x = self.states(images, rng_keys)  # (B, prefix + K, D)
        predicted = self.head(self.objective(self.encoder.norm(x), context, targets, self.grid(images)))
        taught = gather_rows(self.taught(images), targets.flatten(1))  # (B, M L, D)
        return predicted, taught.view_as(predicted)

    def lesson(self, images: Tensor) -> Tensor:
        """Return the features of all patches (B, N, D), normalized over the channels."""
        *_, x = self.states(images)
        x = self.encoder.norm(x)[:, self.prefix :]
        return F.layer_norm(x, x.shape[2:])


class Predictor(Initial):
    """Pre-norm blocks over the context and one target at a time, with fixed positions (arXiv 2301.08243, section 3).

    It maps prefix tokens and context (B, T, D) to the states (B, M, L, d) of the targets. A target's patches enter as a
    learned vector. Prefix tokens have no position embedding.
    """

    draws = {"mask": normal(0.02)}

    def __init__(self, config: Settings, encoder_width: int, prefix: int) -> None:
        super().__init__()
        self.prefix = prefix
        self.embed = nn.Linear(encoder_width, config.width)
        self.mask = nn.Parameter(torch.empty(config.width))
        self.position = POSITION[config.position](config)
        self.encoder = Encoder(config)

    def forward(self, x: Tensor, context: Tensor, targets: Tensor, grid: Grid) -> Tensor:
        x = self.embed(x)
        empty = x.new_zeros(len(x), math.prod(grid), x.shape[2])
        places = self.position.tokens(empty, 0, grid).to(x.dtype)  # (B, N, d)
        seen = torch.cat([x[:, : self.prefix], x[:, self.prefix :] + gather_rows(places, context)], dim=1)
        masked = self.mask.to(x.dtype) + gather_rows(places, targets.flatten(1))  # (B, M L, d)
        blocks = masked.unflatten(1, targets.shape[1:]).flatten(0, 1)  # (B M, L, d)
        x = torch.cat([seen.repeat_interleave(targets.shape[1], dim=0), blocks], dim=1)
        *_, x = self.encoder(x, Context(self.position, grid))
        return self.encoder.norm(x[:, seen.shape[1] :]).unflatten(0, targets.shape[:2])
