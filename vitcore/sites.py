"""Where a position embedding enters the model: the sites at which the encoder asks it.

Shapes: B images, N patches in raster order on a grid of R rows and C columns, D width, H heads, d_h = D / H.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from vitcore.part import Part
from vitcore.resample import Grid

if TYPE_CHECKING:
    from vitcore.config import Config


class Position(Part):
    """What tells a patch where it is. This base class says nothing; a variant overrides the sites it needs.

    The encoder asks at the same sites whatever the variant, and passes the layer (0 is the first) and the
    grid (rows, columns), which may be another one than the config's. Prefix tokens are cut off before and put back
    after: only `class_token` ever sees one.
    """

    slot = "position"
    places: ClassVar[tuple[str, ...]] = ()  # what `position_at` may be, the default first; none: no choice

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.grid = config.grid

    @classmethod
    def stem_width(cls, config: Config) -> int:
        """The width of the tokens that the stem gives, and that `tokens` takes at layer 0."""
        return config.width

    def tokens(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        """Patch tokens (B, N, D) as they enter `layer`."""
        return x

    def resized(self, name: str, table: Tensor) -> Tensor:
        """The learned table `name` of a position of another grid, at this one's, to start from; as it is where this
        kind has none that depends on the grid. Raises ConfigError where the kind cannot go to another grid.
        """
        return table

    def class_token(self, token: Tensor) -> Tensor:
        """The class token (1, 1, D) as it enters the encoder."""
        return token

    def rotate(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        """Queries, then keys, (B, H, N, d_h)."""
        return x

    def bias(self, q: Tensor, layer: int, grid: Grid) -> Tensor | None:
        """What is added to the attention's logits, (B, H, N, N) or a shape that expands to it; reads q (B, H,
        N, d_h).

        The logits already carry their 1 / sqrt(d_h).
        """
        return None

    def between(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        """Patch tokens (B, N, D) as they leave `layer`."""
        return x


def rows_and_columns(grid: Grid, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """The row (N,) and the column (N,) of each patch."""
    rows, columns = grid
    place = torch.arange(rows * columns)
    return (place // columns).to(dtype), (place % columns).to(dtype)
