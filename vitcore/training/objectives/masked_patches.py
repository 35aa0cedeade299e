"""Masked patches: the objective of arXiv 2010.11929, section B.1.2, and the masked autoencoder of arXiv 2111.06377.

The autoencoder's encoder processes only the visible patches, and its decoder processes all patches. Shapes: B images, C
channels, P patch size, N patches in raster order, M corrupted or masked patches, T tokens, D width, d width of the
decoder.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from commonfloor.messages import joined_names
from commonfloor.options import ConfigError, JsonSettings
from vitcore.data.lookup import describe
from vitcore.keyed_random import RngKeys, bits, integers, site_code, uniforms
from vitcore.model.head import LinearHead
from vitcore.model.initialization import Initial, initialize, normal, zeros
from vitcore.model.position import POSITION, Context, Grid, check_patches_may_leave, stem_width
from vitcore.model.stem import STEM
from vitcore.model.vit import Encoder, ViT
from vitcore.settings import Settings
from vitcore.training.objectives.self_supervised import SelfSupervised

SHADES = 8  # shades of a channel: 3 bits
CHOICE = site_code("masked patch choice")
FATE = site_code("masked patch fate")
OTHER = site_code("masked patch other")
MASKED = site_code("masked autoencoder")
GRID = site_code("masked autoencoder grid")
BLOCK = site_code("masked autoencoder block")
BLOCKS = 32  # blocks that are tried; at 75%, they are enough for 99% of the images, whose rest is masked at random
EPSILON = 1e-6  # added to a patch's variance, as in the reference implementation


class Masking(SelfSupervised):
    """Base class of objectives that predict masked patches."""

    without = (*SelfSupervised.without, "patch_dropout")

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.levels = describe(config.data).levels

    @classmethod
    def check(cls, config: Settings) -> None:
        super().check(config)
        if math.prod(config.grid) < 2:
            raise ConfigError(f"patch={config.patch}: objective={config.objective} needs at least two patches")


class MaskedPatch(Masking):
    """Prediction of the 3-bit mean color of each corrupted patch (arXiv 2010.11929, section B.1.2).

    Half of the patches are corrupted. Each channel has 8 shades, so RGB has 512 classes and grayscale has 8. Accuracy
    and loss are averaged over the corrupted patches.
    """

    numerics = 1
    predicted = "predicted colors"

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
        self.objective = PatchCorruption(config)
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


class PatchCorruption(Initial):
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


class MaskingOptions(Masking.Options):
    """The masks, the target, and the decoder: what arXiv 2111.06377 varies in Table 1."""

    ratio: Annotated[float, Field(gt=0, lt=1)] = 0.75  #: Share of the patches that are masked.
    #: Masked patches: random ones, three of every 2 x 2, or blocks (BEiT: arXiv 2106.08254, Algorithm 1).
    sampling: Literal["random", "grid", "block"] = "random"
    #: Target: pixels normalized within their patch, or pixels from -1 to 1.
    target: Literal["normalized", "pixels"] = "normalized"
    loss_on: Literal["masked", "all"] = "masked"  #: Patches in the training loss. Evaluations score masked ones.
    mask_in_encoder: bool = False  #: Whether the encoder processes a learned vector in place of each masked patch.
    #: Width of the decoder. 0: half of the encoder's, as for ViT-L in arXiv 2111.06377 (512 of 1024).
    decoder_width: Annotated[int, Field(ge=0, le=2**16)] = 0
    #: Blocks of the decoder. 0: a third of the encoder's, as for ViT-L in arXiv 2111.06377 (8 of 24).
    decoder_depth: Annotated[int, Field(ge=0, le=1024)] = 0
    decoder_heads: Annotated[int, Field(ge=0, le=2**16)] = 0  #: Attention heads of the decoder. 0: as in the encoder.

    def decoder(self, config: Settings) -> dict[str, int]:
        """Return the decoder's width, depth and number of attention heads."""
        return {
            "width": self.decoder_width or config.width // 2,
            "depth": self.decoder_depth or max(1, config.layers // 3),
            "heads": self.decoder_heads or config.heads,
        }


class Masks:
    """The masks of `objective=mae`, a function of the images' random keys (B,)."""

    def __init__(self, config: Settings, options: MaskingOptions) -> None:
        self.options = options
        rows, columns = config.grid
        self.aspect = rows / columns

    def visible(self, x: Tensor, rng_keys: RngKeys) -> Tensor:
        """Return the visible patches (B, N - M, D) of x (B, N, D). rng_keys: (B,), or None to return all patches."""
        return x if rng_keys is None else gather_rows(x, self.split(rng_keys, x.shape[1])[0])

    def predicted(self, rng_keys: Tensor, patches: int) -> Tensor:
        """Return the indices of the patches to predict: the masked ones, and after them the visible ones, if any."""
        left, masked = self.split(rng_keys, patches)
        return masked if self.options.loss_on == "masked" else torch.cat([masked, left], dim=1)

    def left(self, patches: int) -> int:
        """Return the number of visible patches, N - M."""
        return max(1, int(patches * (1 - self.options.ratio)))  # rounded as in the paper's code

    def split(self, rng_keys: Tensor, patches: int) -> tuple[Tensor, Tensor]:
        """Return (visible, masked): the ascending indices (B, N - M) and (B, M) of each image's `patches` patches."""
        left = self.left(patches)
        order = bits(rng_keys, MASKED, patches)
        if self.options.sampling == "grid":
            order = self.grid_order(rng_keys, patches)
        if self.options.sampling == "block":
            order = (BLOCKS - self.first_blocks(rng_keys, patches) << 32) + order
        order = order.argsort(dim=1, stable=True)
        return order[:, :left].sort(dim=1).values, order[:, left:].sort(dim=1).values

    def grid(self, patches: int) -> Grid:
        rows = round(math.sqrt(patches * self.aspect))
        return rows, patches // rows

    def grid_order(self, rng_keys: Tensor, patches: int) -> Tensor:
        """Return 0 for the visible patch of every 2 x 2, the same of each in an image, and 1 for the others: (B, N)."""
        row, column = cells(self.grid(patches), rng_keys.device)
        down, across = integers(2, rng_keys, GRID, 2).unsqueeze(2).unbind(1)  # (B, 1)
        return ((row % 2 != down) | (column % 2 != across)).int()

    def first_blocks(self, rng_keys: Tensor, patches: int) -> Tensor:
        """Return the number of the first block that masks each patch, or BLOCKS: (B, N), int64.

        A block is of 16 of 196 patches or more, and of at most as many as are still to be masked. Its aspect ratio is
        log-uniform, as in the authors' code. A block that does not fit masks nothing.
        """
        grid = self.grid(patches)
        rows, columns = grid
        smallest = max(1, patches * 16 // 196)
        uniform = uniforms(rng_keys, BLOCK, 4 * BLOCKS).view(-1, BLOCKS, 4, 1)
        first = torch.full((len(rng_keys), patches), BLOCKS, device=rng_keys.device)
        for block in range(BLOCKS):
            size, aspect, down, across = uniform[:, block].unbind(1)  # (B, 1)
            missing = patches - self.left(patches) - (first < BLOCKS).sum(dim=1, keepdim=True)  # (B, 1)
            area = smallest + size * (missing - smallest).clamp(min=0)
            ratio = ((1 - 2 * aspect) * math.log(0.3)).exp()
            height = (area * ratio).sqrt().round()
            width = (area / ratio).sqrt().round()
            inside = inside_blocks(height, width, down, across, grid)  # (B, N)
            masks = inside & (height <= rows) & (width <= columns) & (missing > 0) & (first == BLOCKS)
            first = torch.where(masks, block, first)
        return first


def cells(grid: Grid, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the row (N,) and the column (N,) of each patch."""
    place = torch.arange(math.prod(grid), device=device)
    return place // grid[1], place % grid[1]


def inside_blocks(height: Tensor, width: Tensor, down: Tensor, across: Tensor, grid: Grid) -> Tensor:
    """Return which patches are in blocks: (..., N). height, width: of a block (..., 1), in patches.

    down, across: where it is (..., 1), from 0 to 1.
    """
    rows, columns = grid
    row, column = cells(grid, height.device)
    top = (down * (rows - height + 1)).floor()
    left = (across * (columns - width + 1)).floor()
    return (row >= top) & (row < top + height) & (column >= left) & (column < left + width)


class MAE(Masking):
    """Prediction of the pixels of masked patches, by default 75% of all patches (arXiv 2111.06377, section 3).

    The loss is the mean squared error of pixels that are normalized within their patch. An image's accuracy is the
    fraction of its masked pixels' variance that the prediction explains, or 0 if the fraction is negative.
    """

    numerics = 1
    predicted = "masked pixels"
    Options = MaskingOptions
    options: MaskingOptions
    without = (*Masking.without, "label_smoothing")

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.masks = Masks(config, self.options)

    @classmethod
    def canonical(cls, config: Settings) -> JsonSettings:
        """Return option -> 0 for each decoder option that states its default size, so that trial ids are equal."""
        default = cls.Options().decoder(config)
        chosen = config.options_of(cls.slot, cls.Options).decoder(config)
        return {f"decoder_{name}": 0 for name, size in chosen.items() if size == default[name]}

    @classmethod
    def check(cls, config: Settings) -> None:
        super().check(config)
        check_embeds_patches_alone(config)
        if config.channels * config.patch**2 == 1:  # such a patch has no variance
            raise ConfigError(f"patch={config.patch}: objective=mae needs at least two values a patch")
        options = config.options_of(cls.slot, cls.Options)
        if options.sampling == "grid" and (options.ratio != 0.75 or any(count % 2 for count in config.grid)):
            needed = "sampling=grid masks 0.75 of an even number of rows and columns of patches"
            raise ConfigError(f"objective.ratio={options.ratio}, patch={config.patch}: objective.{needed}")
        check_decoder(options.decoder(config), "decoder")
        if not options.mask_in_encoder:
            check_patches_may_leave(config, "objective=mae")

    @classmethod
    def model(cls, config: Settings) -> ViT:
        return MaskedAutoencoder(config)

    def targets(self, pixels: Tensor, labels: Tensor, rng_keys: RngKeys) -> Tensor:
        """Return the target of the patches to predict (B, M or N, C P P), masked ones first."""
        assert rng_keys is not None
        if self.options.target == "normalized":
            values = normalized_patches(pixels, self.config.patch, self.levels)
        else:
            values = 2 * patch_values(pixels, self.config.patch, self.levels) - 1
        return gather_rows(values, self.masks.predicted(rng_keys, values.shape[1]))

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(logits, targets.to(logits.dtype))

    def answers(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return each image's mean squared errors (B, 2) for the prediction and for the mean of its masked pixels."""
        if self.options.loss_on == "all":
            masked = targets.shape[1] - self.masks.left(targets.shape[1])
            logits, targets = logits[:, :masked], targets[:, :masked]
        mean = 0.0 if self.options.target == "normalized" else targets.mean(dim=(1, 2), keepdim=True)
        errors = [(logits - targets).square(), (targets - mean).square()]
        return torch.stack([error.mean(dim=(1, 2)) for error in errors], dim=1)  # logits take more memory

    def scores(self, answers: Tensor, targets: Tensor) -> tuple[float, Tensor]:
        errors, variances = answers.unbind(dim=1)
        return errors.mean().item(), (1 - errors / variances.clamp(min=1e-12)).clamp(min=0)


class MaskedAutoencoder(ViT):
    """A ViT that predicts the pixels of masked patches from the visible patches.

    It maps images (B, C, H, W) and their random keys (B,) to predictions (B, M, C P P), or (B, N, C P P) with a loss on
    all patches. By default, the keys are 0.
    """

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        options = config.options_of("objective", MaskingOptions)
        decoder = decoder_config(config, options.decoder(config))
        masks = Masks(config, options)
        mask_width = decoder.width
        if options.mask_in_encoder:
            mask_width = stem_width(config)
        else:
            self.patch_dropout = masks.visible
        self.objective = Decoder(decoder, config.width, self.prefix, masks, mask_width)
        pixels = config.channels * config.patch**2
        self.head = LinearHead(decoder.model_copy(update={"classes": pixels, "head_init": config.head_init}))
        initialize(self, config.seed, config.init, config.width)

    def forward(self, images: Tensor, rng_keys: RngKeys = None) -> Tensor:
        if rng_keys is None:
            rng_keys = torch.zeros(len(images), dtype=torch.int64, device=images.device)
        *_, x = self.states(images, rng_keys)
        return self.head(self.objective(self.encoder.norm(x), rng_keys, self.grid(images)))

    def patches(self, images: Tensor, rng_keys: RngKeys = None) -> Tensor:
        x = super().patches(images, rng_keys)  # (B, N, D)
        if rng_keys is None or not self.objective.masks.options.mask_in_encoder:
            return x
        hidden = self.objective.masks.split(rng_keys, x.shape[1])[1]  # (B, M)
        mask = self.objective.mask.to(x.dtype).expand(*hidden.shape, -1)
        return x.scatter(1, hidden[..., None].expand_as(mask), mask)


class Decoder(Initial):
    """The decoder: pre-norm blocks over all patches with fixed position embeddings (arXiv 2111.06377, section 3).

    It maps prefix tokens and visible patches (B, T, D) to the states (B, M or N, d) of the patches to predict. Masked
    patches enter as a learned vector, unless the encoder has processed them. Prefix tokens have no position embedding.
    """

    draws = {"mask": normal(0.02)}

    def __init__(self, config: Settings, encoder_width: int, prefix: int, masks: Masks, mask_width: int) -> None:
        super().__init__()
        self.prefix = prefix
        self.masks = masks
        self.embed = nn.Linear(encoder_width, config.width)
        self.mask = nn.Parameter(torch.empty(mask_width))
        self.position = POSITION[config.position](config)
        self.encoder = Encoder(config)

    def forward(self, x: Tensor, rng_keys: Tensor, grid: Grid) -> Tensor:
        N = math.prod(grid)
        x = self.embed(x)  # (B, T, d)
        every = x[:, self.prefix :]
        if not self.masks.options.mask_in_encoder:
            left = self.masks.split(rng_keys, N)[0]
            masks = self.mask.to(x.dtype).expand(len(x), N, -1)
            every = masks.scatter(1, left[..., None].expand(-1, -1, x.shape[2]), every)  # (B, N, d)
        x = torch.cat([x[:, : self.prefix], self.position.tokens(every, 0, grid).to(x.dtype)], dim=1)
        *_, x = self.encoder(x, Context(self.position, grid, self.prefix))
        return gather_rows(self.encoder.norm(x)[:, self.prefix :], self.masks.predicted(rng_keys, N))


def check_embeds_patches_alone(config: Settings) -> None:
    """Raise ConfigError if the stem of `config` mixes patches, so that visible patches would show masked ones."""
    local = [name for name, stem in STEM.items() if stem.local]
    if config.stem not in local:
        needed = f"objective={config.objective} needs a stem that embeds each patch alone: {joined_names(local)}"
        raise ConfigError(f"stem={config.stem}: {needed}")


def check_decoder(size: Mapping[str, int], name: str) -> None:
    """Raise ConfigError if a decoder of the given width and heads cannot be built. name: as in `decoder_width`."""
    width, heads = size["width"], size["heads"]
    if width < 8 or width % 4 or width % heads:
        allowed = f"a multiple of 4 and of its {heads} heads, at least 8"
        raise ConfigError(f"objective.{name}_width={width}: {allowed}")


def decoder_config(config: Settings, size: Mapping[str, int]) -> Settings:
    """Return the config of a plain ViT with a decoder's size: its width, depth and number of heads."""
    plain = {
        "position": "sincos2d", "position_at": "input", "stem": "patch", "mlp": "gelu", "mlp_ratio": 4.0, "bias": "all",
        "norm": "layer", "block": "pre", "self_attention": "full", "embedding_norm": False, "final_norm": "before",
        "layer_scale": 0.0, "qk_norm": False, "dropout": 0.0, "attention_dropout": 0.0, "drop_path": 0.0, "options": {},
    }  # fmt: skip
    return config.model_copy(update=plain | dict(size))


def normalized_patches(pixels: Tensor, patch: int, levels: int) -> Tensor:
    """Return the pixels of each patch (B, N, C P P), normalized to mean 0 and variance 1.

    pixels: uint8 images (B, C, H, W). levels: number of possible values of a pixel. 1e-6 is added to the unbiased
    variance of pixels scaled to [0, 1], so a patch of equal values becomes 0.
    """
    values = patch_values(pixels, patch, levels)
    variance, mean = torch.var_mean(values, dim=2, keepdim=True)
    return (values - mean) * (variance + EPSILON).rsqrt()


def patch_values(pixels: Tensor, patch: int, levels: int) -> Tensor:
    """Return the pixels of each patch (B, N, C P P), scaled to [0, 1]. pixels, levels: as in `normalized_patches`."""
    return cut_patches(pixels, patch).flatten(3).flatten(1, 2).float() / (levels - 1)
