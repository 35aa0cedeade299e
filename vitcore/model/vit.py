"""The Vision Transformer: stem, tokens, encoder, pooling and head (arXiv 2010.11929, equations 1 to 4).

Shapes: B images, C channels, N patches, T tokens (class token, registers and patches), D width.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from commonfloor.options import ConfigError
from vitcore.keyed_random import RngKeys
from vitcore.model.block import BLOCK
from vitcore.model.dropout import Noise, PatchDropout, dropout, unchanged
from vitcore.model.head import HEAD
from vitcore.model.initialization import Initial, initialize, normal, zeros
from vitcore.model.norm import norm
from vitcore.model.pooling import POOLING
from vitcore.model.position import POSITION, Context
from vitcore.model.stem import STEM, PatchStem
from vitcore.settings import Settings


class ViT(Initial):
    """A Vision Transformer with initial values that are drawn on the CPU from `config.seed`.

    `ViT(config)(images)` maps standardized float images (B, C, H, W) to logits (B, classes). In training, dropout of
    any kind and stochastic depth also require `rng_keys` (B,), the images' random keys (vitcore.keyed_random). The call
    raises ConfigError as `grid` does, or if the position embedding does not support the grid.
    """

    # The class token starts at zero, as in models_vit.py; registers differ from each other (facebookresearch/dinov2).
    draws = {"class_token": zeros, "registers": normal(1e-6)}

    def __init__(self, config: Settings) -> None:
        super().__init__()
        self.config = config
        self.patch = config.patch
        self.stem = STEM[config.stem](config)
        self.position = POSITION[config.position](config)
        self.dropout = dropout(config.dropout, "embedding")
        self.patch_dropout: Noise = PatchDropout(config.patch_dropout) if config.patch_dropout else unchanged
        self.pool = POOLING[config.pool](config)
        self.prefix = int(self.pool.class_token) + config.registers
        self.class_token = nn.Parameter(torch.empty(1, 1, config.width)) if self.pool.class_token else None
        self.registers = nn.Parameter(torch.empty(1, config.registers, config.width)) if config.registers else None
        self.encoder = Encoder(config)
        self.head = HEAD[config.head](config)
        initialize(self, config.seed, config.init, config.width)

    def forward(self, images: Tensor, rng_keys: RngKeys = None) -> Tensor:
        return self.head(self.pooled(images, rng_keys))

    def features(self, images: Tensor) -> Tensor:
        """Return the pre-logits (B, D), the input of the last layer, which few-shot probes read."""
        return self.head.features(self.pooled(images))

    def pooled(self, images: Tensor, rng_keys: RngKeys = None) -> Tensor:
        """Return the pooled vectors (B, D) that the head reads (equation 4 if the class token is pooled)."""
        return self.pool_states(self.states(images, rng_keys))

    def pool_states(self, states: Iterable[Tensor]) -> Tensor:
        """Return the pooled vectors (B, D) from the result of `states`."""
        x = self.pool.gather(states)  # z_L (B, T, D), or a part of every layer
        if self.config.final_norm == "before":
            return self.pool(self.encoder.norm(x), self.prefix)  # (B, D)
        return self.encoder.norm(self.pool(x, self.prefix))

    def states(self, images: Tensor, rng_keys: RngKeys = None) -> Iterator[Tensor]:
        """Return an iterator over the tokens after each block, z_1 to z_L (B, T, D)."""
        context = self.context(images, rng_keys)
        return self.encoder(self.embed(images, context), context)

    def context(self, images: Tensor, rng_keys: RngKeys) -> Context:
        return Context(self.position, self.grid(images), self.prefix, rng_keys)

    def embed(self, images: Tensor, context: Context) -> Tensor:
        """Return the tokens z_0 (B, T, D) that enter the encoder: class token, registers and patches (equation 1)."""
        x = self.patches(images, context.rng_keys)  # (B, N, stem_width)
        x = self.position.tokens(x, 0, context.grid)
        x = self.patch_dropout(x, context.rng_keys)
        if self.prefix:
            prefix = [token.expand(len(x), -1, -1) for token in self.prefix_tokens()]
            x = torch.cat([*prefix, x], dim=1)  # (B, T, D)
        return self.dropout(x, context.rng_keys)

    def patches(self, images: Tensor, rng_keys: RngKeys = None) -> Tensor:
        """Return the stem's tokens (B, N, width), without positions. rng_keys: for subclasses that corrupt patches."""
        return self.stem(images)

    def prefix_tokens(self) -> list[Tensor]:
        """Return the tokens before the patches: class token (1, 1, D) and registers (1, n, D), if they exist."""
        tokens = []
        if self.class_token is not None:
            tokens.append(self.position.class_token(self.class_token))
        if self.registers is not None:
            tokens.append(self.registers)
        return tokens

    def grid(self, images: Tensor) -> tuple[int, int]:
        """Return the rows and columns of patches in images (B, C, H, W); raise ConfigError if these do not fit."""
        channels, height, width = images.shape[-3:]
        if channels != self.config.channels:
            raise ConfigError(f"images of {channels} channels: the model has channels={self.config.channels}")
        if height % self.patch or width % self.patch:
            raise ConfigError(f"images of {height} x {width} pixels: patch={self.patch} does not divide them")
        return height // self.patch, width // self.patch

    @contextmanager
    def at_patch(self, patch: int) -> Iterator[None]:
        """Cut images into patches of `patch` x `patch` pixels within a `with` block (FlexiViT: arXiv 2212.08013).

        Raises ConfigError if the weights of the stem cannot be resized.
        """
        if not isinstance(self.stem, PatchStem):
            raise ConfigError(f"patches of {patch} pixels: stem={self.config.stem} has no weights that resize: patch")
        self.patch = self.stem.patch = patch
        try:
            yield
        finally:
            self.patch = self.stem.patch = self.config.patch


class Encoder(nn.Module):
    """A sequence of L blocks, with an optional norm before the first block as in CLIP (arXiv 2103.00020).

    The encoder owns the final `norm`, but the ViT applies it, before or after the pooling.
    """

    def __init__(self, config: Settings) -> None:
        super().__init__()
        self.embedding_norm = norm(config, config.width, config.embedding_norm)
        self.blocks = nn.ModuleList(BLOCK[config.block](config, layer) for layer in range(config.layers))
        self.norm = norm(config, config.width, config.final_norm != "none")

    def forward(self, x: Tensor, context: Context) -> Iterator[Tensor]:
        """Yield the tokens after each block, z_1 to z_L (B, T, D). x: the tokens z_0 that enter the encoder."""
        x = self.embedding_norm(x)
        for layer, block in enumerate(self.blocks):
            if layer > 0:
                x = context.tokens(x, layer)
            x = context.between(block(x, context), layer)
            yield x
