"""Masked patch prediction, the self-supervision of arXiv 2010.11929, section B.1.2: what is corrupted, what predicted.

Shapes: B images, C channels, P patch, N patches in raster order, M = N // 2 of them corrupted, D width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from vitcore.keyed_random import Keys, below, bits, code
from vitcore.model.head import LinearHead
from vitcore.model.initialization import Initial, initialise, zeros
from vitcore.model.vit import ViT

if TYPE_CHECKING:
    from vitcore.config import Config

SHADES = 8  # of a channel: 3 bits
CHOICE, FATE, OTHER = (code(f"masked patch {what}") for what in ("choice", "fate", "other"))


class MaskedViT(ViT):
    """A ViT that predicts the mean colour of the patches that are corrupted, by one layer on each patch's state.

    Images (B, C, H, W) and their keys (B,) to logits (B, M, 8^C) of the patches that `corrupted` names; without keys
    nothing is corrupted, and the logits (B, N, 8^C) are of all patches.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.objective = Corruption(config)
        self.head = LinearHead(config.model_copy(update={"classes": SHADES**config.channels}))
        initialise(self, config.seed, config.init, config.width)

    def patches(self, images: Tensor, keys: Keys = None) -> Tensor:
        x = super().patches(images, keys)  # (B, N, D)
        return x if keys is None else self.objective(x, keys)

    def forward(self, images: Tensor, keys: Keys = None) -> Tensor:
        *_, x = self.states(images, keys)
        x = self.encoder.norm(x)[:, self.prefix :]  # (B, N, D)
        return self.head(x if keys is None else of_places(x, corrupted(keys, x.shape[1])))  # type: ignore[no-any-return]


class Corruption(Initial):
    """Corrupts half of the patch embeddings: 80% of these are replaced by a learned [mask] embedding, 10% by
    another patch's of the same image, and 10% stay as they are. Positions are added afterwards.
    """

    draws = {"mask": zeros}  # as the class token

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.mask = nn.Parameter(torch.empty(config.stem_width))

    def forward(self, x: Tensor, keys: Tensor) -> Tensor:
        """x (B, N, D)"""
        N = x.shape[1]
        place = torch.arange(N, device=x.device)
        chosen = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device).scatter(1, corrupted(keys, N), True)
        fate = below(10, keys, FATE, N).where(chosen, 9)  # (B, N): up to 7 the mask, 8 another patch, 9 itself
        other = of_places(x, (place + 1 + below(N - 1, keys, OTHER, N)) % N)
        x = torch.where((fate == 8)[..., None], other, x)
        return torch.where((fate < 8)[..., None], self.mask.to(x.dtype), x)


def corrupted(keys: Tensor, patches: int) -> Tensor:
    """Choose the half of each image's patches to corrupt: their places (B, N // 2)."""
    return bits(keys, CHOICE, patches).argsort(dim=1, stable=True)[:, : patches // 2]


def of_places(x: Tensor, places: Tensor) -> Tensor:
    """Gather the rows of x (B, N, D) at `places` (B, M): (B, M, D)."""
    return x.gather(1, places[..., None].expand(-1, -1, x.shape[2]))


def mean_colours(pixels: Tensor, patch: int, levels: int) -> Tensor:
    """Return the 3-bit mean colour of each patch (B, N), 0 .. 8^C - 1, of bytes (B, C, H, W) that are below `levels`.

    Each channel's mean is cut into 8 shades of one width; the first channel counts most. Whole numbers throughout, so
    that no rounding moves a patch over an edge.
    """
    B, C, H, W = pixels.shape
    cut = pixels.view(B, C, H // patch, patch, W // patch, patch).to(torch.int64)
    shades = cut.sum(dim=(3, 5)).flatten(2) * SHADES // (levels * patch**2)  # (B, C, N)
    weights = SHADES ** torch.arange(C - 1, -1, -1, device=pixels.device)
    return (shades * weights[:, None]).sum(dim=1)
