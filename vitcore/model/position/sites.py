"""The sites at which a position embedding enters the model, and how the encoder applies them.

Shapes: B images, N patches in raster order on a grid of R rows and C columns, D width, H heads, d_h = D / H.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from vitcore.keyed_random import Keys
from vitcore.model.initialization import Part
from vitcore.model.position.resample import Grid

if TYPE_CHECKING:
    from vitcore.config import Config


class Position(Part):
    """A position embedding. This base class does nothing; a variant overrides the sites that it needs.

    A site receives the layer, counted from 0, and the grid (rows, columns) of the images, which may differ from the
    config's. Sites receive patches alone; `class_token` receives the class token.
    """

    slot = "position"
    places: ClassVar[tuple[str, ...]] = ()  # what `position_at` may be, the default first; none: no choice

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.grid = config.grid

    @classmethod
    def drawn_by_model_width(cls, config: Config) -> bool:
        """Tell whether the model's width is not the table's, so that `init=big-vision` once drew other values."""
        return False

    @classmethod
    def version(cls, config: Config) -> int | str:
        """Return `numerics`, or one more where `init=big-vision` at first drew values by the table's width."""
        own = super().version(config)
        moved = config.init == "big-vision" and cls.drawn_by_model_width(config)
        return own + 1 if isinstance(own, int) and moved else own

    @classmethod
    def stem_width(cls, config: Config) -> int:
        """Return the width of the stem's tokens, which `tokens` receives at layer 0."""
        return config.width

    def tokens(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        """Return patch tokens (B, N, D) as they enter `layer`."""
        return x

    def resized(self, name: str, table: Tensor) -> Tensor:
        """Return the learned table `name` of another grid, resampled to this grid if it depends on the grid.

        Raises ConfigError if the table cannot be resampled.
        """
        return table

    def class_token(self, token: Tensor) -> Tensor:
        """Return the class token (1, 1, D) as it enters the encoder."""
        return token

    def rotate(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        """Return queries or keys (B, H, N, d_h), rotated by their place."""
        return x

    def bias(self, q: Tensor, layer: int, grid: Grid) -> Tensor | None:
        """Return the bias of the attention's logits, in a shape that expands to (B, H, N, N), or None.

        It may depend on the queries (B, H, N, d_h). It is added after the division by sqrt(d_h).
        """
        return None

    def between(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        """Return patch tokens (B, N, D) as they leave `layer`."""
        return x


@dataclass(frozen=True)
class Context:
    """The state that all layers of a forward pass share. Its methods apply the position to the patches alone.

    grid: rows and columns of the images' patches. prefix: the number of tokens before the patches. keys (B,): random
    keys of the images, in training (vitcore.keyed_random). shared: tensors that a layer leaves for later layers.
    """

    position: Position
    grid: Grid
    prefix: int = 0
    keys: Keys = None
    shared: dict[str, Tensor] = field(default_factory=dict)

    def tokens(self, x: Tensor, layer: int) -> Tensor:
        """Return tokens (B, T, D) as they enter `layer`."""
        return self.on_patches(self.position.tokens, x, layer)

    def rotate(self, x: Tensor, layer: int) -> Tensor:
        """Return queries or keys (B, H, T, d_h), rotated by their place."""
        return self.on_patches(self.position.rotate, x, layer)

    def between(self, x: Tensor, layer: int) -> Tensor:
        """Return tokens (B, T, D) as they leave `layer`."""
        return self.on_patches(self.position.between, x, layer)

    def bias(self, q: Tensor, layer: int) -> Tensor | None:
        """Return the bias of the logits for queries (B, H, T, d_h), or None.

        Pairs with a prefix token have a bias of 0. Merged tokens have no position: their bias is the logarithm of their
        sizes, so a key counts once for each of its patches (proportional attention: arXiv 2210.09461, equation 1).
        """
        if (sizes := self.shared.get("sizes")) is not None:
            return sizes.log()[:, None, None]  # (B, 1, 1, T)
        bias = self.position.bias(q[:, :, self.prefix :] if self.prefix else q, layer, self.grid)
        if bias is None or not self.prefix:
            return bias
        N = q.shape[2] - self.prefix
        return F.pad(bias.expand(*bias.shape[:-2], N, N), (self.prefix, 0, self.prefix, 0))

    def weigh(self, x: Tensor) -> Tensor:
        """Return tokens (B, T, D) scaled by size, so that their mean counts each patch before merging once."""
        if (sizes := self.shared.get("sizes")) is None:
            return x
        return x * (sizes / sizes[:, self.prefix :].mean(dim=1, keepdim=True))[..., None]

    def on_patches(self, site: Callable[[Tensor, int, Grid], Tensor], x: Tensor, layer: int) -> Tensor:
        """Return x (..., T, D) with `site` applied to its patches. A site that returns its input costs nothing."""
        patches = x[..., self.prefix :, :] if self.prefix else x
        placed = site(patches, layer, self.grid)
        if placed is patches:
            return x
        return torch.cat([x[..., : self.prefix, :], placed], dim=-2) if self.prefix else placed


def rows_and_columns(grid: Grid, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Return the row (N,) and the column (N,) of each patch in raster order."""
    rows, columns = grid
    place = torch.arange(rows * columns)
    return (place // columns).to(dtype), (place % columns).to(dtype)
