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
from vitcore.model.part import Part
from vitcore.model.position.resample import Grid

if TYPE_CHECKING:
    from vitcore.config import Config


class Position(Part):
    """A position embedding. This base class adds none; a variant overrides the sites that it needs.

    Each site gets the layer (0 is the first) and the grid (rows, columns) of the images, which may differ from the
    config's. Sites see patches alone; only `class_token` sees a prefix token.
    """

    slot = "position"
    places: ClassVar[tuple[str, ...]] = ()  # what `position_at` may be, the default first; none: no choice

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.grid = config.grid

    @classmethod
    def drawn_by_model_width(cls, config: Config) -> bool:
        """Return whether `init=big-vision` draws a bias, or a table whose width is not the model's."""
        return False

    @classmethod
    def version(cls, config: Config) -> int | str:
        """One higher where big-vision's initial values follow the model's width: at first they followed the table's."""
        own = super().version(config)
        moved = config.init == "big-vision" and cls.drawn_by_model_width(config)
        return own + 1 if isinstance(own, int) and moved else own

    @classmethod
    def stem_width(cls, config: Config) -> int:
        """Return the width of the tokens that the stem gives, and that `tokens` takes at layer 0."""
        return config.width

    def tokens(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        """Return patch tokens (B, N, D) as they enter `layer`."""
        return x

    def resized(self, name: str, table: Tensor) -> Tensor:
        """Return the learned table `name` of a position of another grid, resampled to this grid.

        A table that does not depend on the grid is returned as it is. Raises ConfigError if the kind cannot be
        resampled.
        """
        return table

    def class_token(self, token: Tensor) -> Tensor:
        """Return the class token (1, 1, D) as it enters the encoder."""
        return token

    def rotate(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        """Rotate queries, then keys, (B, H, N, d_h)."""
        return x

    def bias(self, q: Tensor, layer: int, grid: Grid) -> Tensor | None:
        """Return what is added to the attention's logits, (B, H, N, N) or a shape that expands to it.

        It may read q (B, H, N, d_h). The logits already carry their 1 / sqrt(d_h).
        """
        return None

    def between(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        """Return patch tokens (B, N, D) as they leave `layer`."""
        return x


@dataclass(frozen=True)
class Context:
    """The state that all layers of a forward pass share.

    grid: rows and columns of the images' patches. prefix: how many tokens stand before the patches. keys (B,): of the
    images, in training (vitcore.keyed_random). shared: what a layer leaves for those after it. The methods apply a site
    of the position to the patches alone.
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
        """Rotate queries or keys (B, H, T, d_h)."""
        return self.on_patches(self.position.rotate, x, layer)

    def between(self, x: Tensor, layer: int) -> Tensor:
        """Return tokens (B, T, D) as they leave `layer`."""
        return self.on_patches(self.position.between, x, layer)

    def bias(self, q: Tensor, layer: int) -> Tensor | None:
        """Return what is added to the logits of q (B, H, T, d_h): 0 for pairs with a prefix token; None for nothing.

        For merged tokens, which have no position, it is the logarithm of their sizes: a key counts once for each patch
        that it stands for (proportional attention: arXiv 2210.09461, equation 1).
        """
        if (sizes := self.shared.get("sizes")) is not None:
            return sizes.log()[:, None, None]  # (B, 1, 1, T)
        bias = self.position.bias(q[:, :, self.prefix :] if self.prefix else q, layer, self.grid)
        if bias is None or not self.prefix:
            return bias
        N = q.shape[2] - self.prefix
        return F.pad(bias.expand(*bias.shape[:-2], N, N), (self.prefix, 0, self.prefix, 0))

    def weigh(self, x: Tensor) -> Tensor:
        """Scale tokens (B, T, D) so that the patches' mean is that over all patches before merging."""
        if (sizes := self.shared.get("sizes")) is None:
            return x
        return x * (sizes / sizes[:, self.prefix :].mean(dim=1, keepdim=True))[..., None]

    def on_patches(self, site: Callable[[Tensor, int, Grid], Tensor], x: Tensor, layer: int) -> Tensor:
        """Apply `site` to the patches of x (..., T, D). A site that returns its input costs nothing."""
        patches = x[..., self.prefix :, :] if self.prefix else x
        placed = site(patches, layer, self.grid)
        if placed is patches:
            return x
        return torch.cat([x[..., : self.prefix, :], placed], dim=-2) if self.prefix else placed


def rows_and_columns(grid: Grid, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Return the row (N,) and the column (N,) of each patch."""
    rows, columns = grid
    place = torch.arange(rows * columns)
    return (place // columns).to(dtype), (place % columns).to(dtype)
