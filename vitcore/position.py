"""Position embeddings: arXiv 2010.11929, appendix D.4 (Table 8). One class and one line of POSITION each.

Shapes: B images, N patches in raster order, D width, H heads, d_h = D / H.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from vitcore.config import ConfigError
from vitcore.part import Part

if TYPE_CHECKING:
    from vitcore.config import Config

Grid = tuple[int, int]


class Position(Part):
    """What tells a patch where it is. This base class says nothing; a variant overrides the sites it needs.

    The encoder asks at the same sites whatever the variant, and passes the layer (0 is the first) and the
    grid (rows, columns). Prefix tokens are cut off before and put back after: only `class_token` ever sees
    one.
    """

    slot = "position"
    places: ClassVar[tuple[str, ...]] = ()  # what `position_at` may be, the default first; none: no choice

    def __init__(self, config: Config) -> None:
        super().__init__()

    def tokens(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        """Patch tokens (B, N, D) as they enter `layer`."""
        return x

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


class NoPosition(Position):
    """ "Considering the inputs as a bag of patches" (arXiv 2010.11929, D.4)."""

    numerics = 1


class Learned1D(Position):
    """A learned vector for each place in the raster order, added at the input (arXiv 2010.11929, D.4).

    The class token, where there is one, has a row of its own, as in the reference implementation.
    """

    numerics = 1
    places = ("input",)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        rows, columns = config.grid
        self.table = nn.Parameter(torch.empty(rows * columns, config.width))
        self.class_row = class_row(config)

    def tokens(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        return x + self.table if layer == 0 else x

    def class_token(self, token: Tensor) -> Tensor:
        assert self.class_row is not None
        return token + self.class_row


class Learned2D(Position):
    """Two learned tables of width D / 2; a patch has its column's and its row's entry, concatenated.

    arXiv 2010.11929, D.4 (X- and Y-embedding). The class token has a row of its own, as in `1d`.
    """

    numerics = 1
    places = ("input",)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        rows, columns = config.grid
        self.x_table = nn.Parameter(torch.empty(columns, config.width // 2))
        self.y_table = nn.Parameter(torch.empty(rows, config.width // 2))
        self.class_row = class_row(config)

    @classmethod
    def check(cls, config: Config) -> None:
        super().check(config)
        if config.width % 2:
            raise ConfigError(f"width={config.width}: position=2d gives each coordinate half of it, so it must be even")

    def tokens(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        if layer > 0:
            return x
        rows, columns = grid
        across = self.x_table.expand(rows, columns, -1)  # (rows, columns, D / 2)
        down = self.y_table[:, None].expand(rows, columns, -1)
        return x + torch.cat([across, down], dim=-1).flatten(0, 1)

    def class_token(self, token: Tensor) -> Tensor:
        assert self.class_row is not None
        return token + self.class_row


class Relative(Position):
    """1-dimensional relative attention: logits (q.k + q.r[offset]) / sqrt(d_h) (arXiv 2010.11929, D.4).

    Offsets p_q - p_k run over the raster order, unclipped; each layer has its own table (2N - 1, d_h), shared
    by the heads. The paper leaves the last two open: this is arXiv 1803.02155's choice of heads, and no
    sharing of layers.
    """

    numerics = 1

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        patches = math.prod(config.grid)
        size = (2 * patches - 1, config.width // config.heads)
        self.tables = nn.ParameterList(nn.Parameter(torch.empty(size)) for _ in range(config.layers))
        place = torch.arange(patches)
        offset = place[:, None] - place + patches - 1  # 0 is the most negative offset
        self.register_buffer("offset", offset, persistent=False)  # (N, N)

    def bias(self, q: Tensor, layer: int, grid: Grid) -> Tensor:
        # Spreading the small table over (query, key) first, then one product a query, is faster forward and
        # backward than gathering from q.r (B, H, N, 2N - 1) or shifting it: 170 to 190 us at N = 16, 1.1 to
        # 2.3 ms at N = 64.
        r = self.tables[layer][self.offset] / math.sqrt(q.shape[-1])  # (N, N, d_h)
        return torch.einsum("bhid,ijd->bhij", q, r)


def class_row(config: Config) -> nn.Parameter | None:
    """The class token's own position, where the pooling has a class token."""
    from vitcore.pooling import POOLING

    return nn.Parameter(torch.empty(config.width)) if POOLING[config.pool].class_token else None


POSITION: dict[str, type[Position]] = {
    "none": NoPosition,
    "1d": Learned1D,
    "2d": Learned2D,
    "relative": Relative,
}
