"""The sites at which a position embedding enters the model, and how the encoder applies them.

Shapes: B images, N patches in raster order on a grid of R rows and C columns, D width, H heads, d_h = D / H.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from vitcore.keyed_random import RngKeys
from vitcore.model.initialization import Part
from vitcore.settings import Settings

Grid = tuple[int, int]  # rows, columns


class Position(Part):
    """Base class of position embeddings, which override the sites that they need.

    A site is a method that changes the model at one point: `tokens`, `class_token`, `rotate`, `bias` or `between`. The
    sites of the base class have no effect. Except for `class_token`, a site receives only the patches. layer: the
    layer's index, from 0. grid: the rows and columns of the images' patches, which may differ from the config's grid.
    """

    slot = "position"
    places: ClassVar[tuple[str, ...]] = ()  # allowed values of `position_at`, the default first

    def __init__(self, config: Settings) -> None:
        super().__init__()
        self.grid = config.grid

    @classmethod
    def draws_changed_since_0_12(cls, config: Settings) -> bool:
        """Return whether release 0.12, with `init=big-vision`, scaled a table by the table's own width."""
        return False

    @classmethod
    def version(cls, config: Settings) -> int | str:
        """Return the version for the trial id: `numerics`, plus 1 if release 0.12 drew different initial weights."""
        version = super().version(config)
        if isinstance(version, int) and config.init == "big-vision":
            version += cls.draws_changed_since_0_12(config)
        return version

    @classmethod
    def stem_width(cls, config: Settings) -> int:
        """Return the width of the stem's tokens, which `tokens` receives at layer 0."""
        return config.width

    def tokens(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        """Return the patch tokens (B, N, D) that enter `layer`, by default unchanged."""
        return x

    def resized(self, name: str, table: Tensor) -> Tensor:
        """Return a learned table of another model, resampled to this model's grid if it depends on the grid.

        name: the parameter's name. Raises ValueError if the table cannot be resampled.
        """
        return table

    def class_token(self, token: Tensor) -> Tensor:
        """Return the class token (1, 1, D) that enters the encoder, by default unchanged."""
        return token

    def rotate(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        """Return queries or keys (B, H, N, d_h) rotated by the location of their patches, by default unchanged."""
        return x

    def rotate_prefix(self, x: Tensor) -> Tensor:
        """Return queries or keys (B, H, prefix, d_h) of the tokens before the patches, by default unchanged.

        The class token comes first, then the registers. Only for a class whose `rotate` acts on the patches.
        """
        return x

    def bias(self, q: Tensor, layer: int, grid: Grid) -> Tensor | None:
        """Return the bias of the attention logits in a shape that expands to (B, H, N, N), or None for no bias.

        The bias is added after the division by sqrt(d_h), and may depend on the queries q (B, H, N, d_h).
        """
        return None

    def between(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        """Return the patch tokens (B, N, D) that leave `layer`, by default unchanged."""
        return x


def acts_at(kind: type[Position], *sites: str) -> bool:
    """Return whether a position embedding overrides one of `sites`, methods of Position such as "rotate"."""
    return any(getattr(kind, site) is not getattr(Position, site) for site in sites)


class Formula(Position):
    """Base class of position embeddings with a table that follows a formula for any grid."""

    def formula(self, grid: Grid) -> Tensor:
        """Return the table for patches on `grid`, in float64."""
        raise NotImplementedError

    def register_table(self) -> None:
        self.register_buffer("table", self.formula(self.grid).float(), persistent=False)

    def table_at(self, grid: Grid) -> Tensor:
        table = self.get_buffer("table")
        return table if grid == self.grid else self.formula(grid).to(table)


@dataclass(frozen=True)
class Context:
    """The state that all layers of a forward pass share, with methods that apply Position's sites to the patches.

    grid: rows and columns of the images' patches. prefix: number of tokens before the patches. rng_keys: random keys of
    the images (B,), or None (vitcore.keyed_random). shared: name -> tensor that a layer leaves for later layers.
    """

    position: Position
    grid: Grid
    prefix: int = 0
    rng_keys: RngKeys = None
    shared: dict[str, Tensor] = field(default_factory=dict)

    def tokens(self, x: Tensor, layer: int) -> Tensor:
        return self.on_patches(self.position.tokens, x, layer)

    def rotate(self, x: Tensor, layer: int) -> Tensor:
        return self.on_patches(self.position.rotate, x, layer, self.position.rotate_prefix)

    def between(self, x: Tensor, layer: int) -> Tensor:
        return self.on_patches(self.position.between, x, layer)

    def bias(self, q: Tensor, layer: int) -> Tensor | None:
        """Return the bias of the attention logits for queries (B, H, T, d_h), or None.

        Its shape expands to (B, H, T, T). A pair with a prefix token has a bias of 0.
        """
        if not self.prefix:
            return self.position.bias(q, layer, self.grid)
        bias = self.position.bias(q[:, :, self.prefix :], layer, self.grid)
        if bias is None:
            return None
        N = q.shape[2] - self.prefix
        return F.pad(bias.expand(*bias.shape[:-2], N, N), (self.prefix, 0, self.prefix, 0))

    def on_patches(
        self,
        site: Callable[[Tensor, int, Grid], Tensor],
        x: Tensor,
        layer: int,
        prefix_site: Callable[[Tensor], Tensor] = lambda prefix: prefix,
    ) -> Tensor:
        """Return x (..., T, D) with `site` applied to its patches, or x itself if `site` returns its input."""
        if not self.prefix:
            return site(x, layer, self.grid)
        patches = x[..., self.prefix :, :]
        placed = site(patches, layer, self.grid)
        if placed is patches:
            return x
        return torch.cat([prefix_site(x[..., : self.prefix, :]), placed], dim=-2)


def rows_and_columns(grid: Grid, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Return the row (N,) and the column (N,) of each patch in raster order."""
    rows, columns = grid
    place = torch.arange(rows * columns)
    return (place // columns).to(dtype), (place % columns).to(dtype)


def square_grid(places: int) -> Grid:
    """Return the square grid with `places` patches; raise ValueError if `places` is not a square number."""
    side = math.isqrt(places)
    if side * side != places:
        raise ValueError(f"{places} places are no square grid")
    return side, side
