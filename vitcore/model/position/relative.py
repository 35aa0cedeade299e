"""Position embeddings that make attention depend on the offset of query and key. Shapes: as in sites.py."""

import math
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Generator, Tensor, nn

from commonfloor.options import ConfigError
from vitcore.model.pooling import POOLING
from vitcore.model.position.sites import Formula, Grid, Position, rows_and_columns, square_grid
from vitcore.settings import Settings


class Relative(Position):
    """1-dimensional relative attention with logits (q.k + q.r[offset]) / sqrt(d_h) (arXiv 2010.11929, D.4).

    An offset p_q - p_k is a difference of indices in raster order, and is not clipped. The heads of a layer share a
    table r (2N - 1, d_h), as in arXiv 1803.02155. The first row of r is for the most negative offset. arXiv 2010.11929
    does not state whether heads and layers share tables. Grids other than the model's are refused.
    """

    numerics = 1

    @classmethod
    def draws_changed_since_0_12(cls, config: Settings) -> bool:
        return config.heads > 1

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        patches = math.prod(config.grid)
        size = (2 * patches - 1, config.width // config.heads)
        self.tables = nn.ParameterList(nn.Parameter(torch.empty(size)) for _ in range(config.layers))

    def bias(self, q: Tensor, layer: int, grid: Grid) -> Tensor:
        if grid != self.grid:
            raise resize_error(self.grid, grid)
        # Each window of the reversed table has a query's rows in the order of keys, from the last query to the first.
        # The gradient of windows is a sum, and the gradient of table[offset] is a slower scatter. A product with the
        # whole table and a shift is slower still (`ablate plan position-embedding --probe`).
        B, H, N, d = q.shape
        r = (self.tables[layer] / math.sqrt(d)).flip(0).unfold(0, N, 1).flip(0)  # (N, d_h, N)
        # This is einsum("bhid,idj->bhij", q, r), which does more work around the same product.
        bias = torch.bmm(q.permute(2, 0, 1, 3).flatten(1, 2), r)  # (N, B H, N)
        return bias.view(N, B, H, N).permute(1, 2, 0, 3)

    def resized(self, name: str, table: Tensor) -> Tensor:
        raise resize_error(square_grid((len(table) + 1) // 2), self.grid)


def resize_error(*grids: Grid) -> ConfigError:
    """Return the error for a change from one grid to another, which changes the meaning of offsets in raster order."""
    old, new = (f"{rows}x{columns}" for rows, columns in grids)
    return ConfigError(
        f"position=relative: cannot go from a grid of {old} patches to {new}: an offset in raster order has another "
        "meaning if rows have another length"
    )


class RelativeBias(Position):
    """A learned bias of the attention logits for each 2-D offset, head and layer (Swin: arXiv 2103.14030, equation 4).

    A table is indexed by p_q - p_k in row-major order, as in Swin and timm. Other grids get a resampled table, as in
    BEiT.
    """

    numerics = 1
    tables_are_biases = True

    @classmethod
    def draws_changed_since_0_12(cls, config: Settings) -> bool:
        return True

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        rows, columns = config.grid
        size = ((2 * rows - 1) * (2 * columns - 1), config.heads)
        self.tables = nn.ParameterList(nn.Parameter(torch.empty(size)) for _ in range(config.layers))
        self.register_buffer("offset", self.offsets(config.grid), persistent=False)

    @staticmethod
    def offsets(grid: Grid) -> Tensor:
        """Return the index (N * N,) of the table's row for each pair of query and key."""
        rows, columns = grid
        row, column = rows_and_columns(grid, torch.int64)
        down, across = (axis[:, None] - axis for axis in (row, column))  # (N, N)
        return ((down + rows - 1) * (2 * columns - 1) + across + columns - 1).flatten()

    def bias(self, q: Tensor, layer: int, grid: Grid) -> Tensor:
        patches = math.prod(grid)
        offset = self.get_buffer("offset") if grid == self.grid else self.offsets(grid).to(q.device)
        table = resample_offsets(self.tables[layer], self.grid, grid)
        # not table[offset], whose gradient takes twice as long
        return table.index_select(0, offset).T.view(1, -1, patches, patches)

    def resized(self, name: str, table: Tensor) -> Tensor:
        rows, columns = ((side + 1) // 2 for side in square_grid(len(table)))  # offsets run over 2 R - 1 rows
        return resample_offsets(table, (rows, columns), self.grid)


class ALiBi2D(Formula):
    """A fixed bias of the attention logits: -slope * distance between patches, with a slope for each head.

    The slopes are ALiBi's (arXiv 2108.12409, section 3). The distance is Euclidean, as in CROMA (arXiv 2311.00566).
    """

    numerics = 1

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.slopes = slopes(config.heads)
        self.register_table()

    def formula(self, grid: Grid) -> Tensor:
        """Return the bias of the attention logits (1, H, N, N) for patches on `grid`, in float64."""
        row, column = rows_and_columns(grid)
        distance = torch.hypot(row[:, None] - row, column[:, None] - column)  # (N, N)
        return (-torch.tensor(self.slopes, dtype=torch.float64)[:, None, None] * distance)[None]

    def bias(self, q: Tensor, layer: int, grid: Grid) -> Tensor:
        return self.table_at(grid)


class RoPE2D(Formula):
    """A rotation of the queries and keys of patches by angles that depend on the location (RoPE-ViT: arXiv 2403.13298).

    Channels 2i and 2i + 1 form a complex number. Axial: the first half of the numbers rotates with the column, and the
    second half rotates with the row. Number k of a half has the rate base^(-4k / d_h). Mixed: each number rotates with
    the column and the row, at rates that are learned for each layer and head. The class token is never rotated.
    """

    numerics = 1

    class Options(Position.Options):
        mixed: bool = False  #: Whether rates are learned and mix rows and columns, not fixed and axial.
        base: Annotated[float, Field(ge=0)] = 0.0  #: Base of the rates. 0: as in RoPE-ViT, 10 if mixed, else 100.
        #: Base of the axial rates at which registers rotate, by their places on a square grid of their own (ViT-5:
        #: arXiv 2602.08071, with 100 and 4 registers). 0: registers are not rotated.
        register_base: Annotated[float, Field(ge=0)] = 0.0
        #: Length of a side of every grid, in coordinates. 0: its number of patches. EVA-02 (arXiv 2303.11331) has the
        #: number at pre-training, and DINOv3 (arXiv 2508.10104) has 4 pi.
        extent: Annotated[float, Field(ge=0)] = 0.0
        #: Where coordinates are 0: at the first patch, before it by one patch, or at the center as in DINOv3. A class
        #: token is not rotated, as if it were there.
        origin: Literal["first", "before", "center"] = "first"

        @model_validator(mode="after")
        def papers_base(self) -> Self:
            object.__setattr__(self, "base", self.base or (10.0 if self.mixed else 100.0))  # frozen from here on
            return self

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.options = config.options_of(self.slot, self.Options)
        self.pairs = config.width // config.heads // 2
        if self.options.mixed:
            size = (config.heads, 2, self.pairs)
            self.rates = nn.ParameterList(nn.Parameter(torch.empty(size)) for _ in range(config.layers))
        self.register_table()
        if self.options.register_base:
            rates = self.magnitudes(self.options.register_base)
            table = axial_rotations(rates, columns_and_rows(square_grid(config.registers)))
            self.register_buffer("register_rotations", table.float(), persistent=False)
            self.first_register = int(POOLING[config.pool].class_token)

    @classmethod
    def check(cls, config: Settings) -> None:
        base = config.options_of(cls.slot, cls.Options).register_base
        if base and (not config.registers or math.isqrt(config.registers) ** 2 != config.registers):
            raise ConfigError(f"position.register_base={base}: registers={config.registers}: a square, such as 4")
        if config.width // config.heads % 4:
            key = f"width={config.width}, heads={config.heads}"
            raise ConfigError(f"{key}: position={config.position} needs a multiple of 4 channels a head")

    def initial(self, name: str, values: Tensor, generator: Generator) -> None:
        """Fill `values` (H, 2, d_h / 2) with the axial rates along two orthogonal axes, at a random angle per head."""
        angle = 2 * math.pi * torch.rand((len(values), 1), generator=generator)
        magnitudes = self.magnitudes(self.options.base)
        cos = angle.cos() * magnitudes  # (H, d_h / 4)
        sin = angle.sin() * magnitudes  # (H, d_h / 4)
        values[:, 0] = torch.cat([cos, -sin], dim=-1)  # with the column
        values[:, 1] = torch.cat([sin, cos], dim=-1)  # with the row

    def magnitudes(self, base: float) -> Tensor:
        """Return the rates of rotation along an axis (d_h / 4,) in radians per patch, in float64."""
        return base ** (-torch.arange(0, self.pairs, 2, dtype=torch.float64) / self.pairs)

    def formula(self, grid: Grid) -> Tensor:
        """Return cosines and sines (2, N, d_h / 2) for patches on `grid`; if mixed, columns and rows (2, N, 1)."""
        places = self.coordinates(grid)
        if self.options.mixed:
            return places
        return axial_rotations(self.magnitudes(self.options.base), places)

    def coordinates(self, grid: Grid) -> Tensor:
        """Return the column and the row of each patch (2, N, 1), as `extent` and `origin` define them, in float64."""
        sizes = torch.tensor([[[grid[1]]], [[grid[0]]]], dtype=torch.float64)  # (2, 1, 1)
        shifts = {"first": torch.zeros_like(sizes), "before": torch.ones_like(sizes), "center": (1 - sizes) / 2}
        scale = self.options.extent / sizes if self.options.extent else 1.0
        return (columns_and_rows(grid) + shifts[self.options.origin]) * scale

    def rotate(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        table = self.table_at(grid)
        return rotated(x, rotations(self.rates[layer], table) if self.options.mixed else table)

    def rotate_prefix(self, x: Tensor) -> Tensor:
        if not self.options.register_base:
            return x
        table = self.get_buffer("register_rotations")  # (2, registers, d_h / 2)
        first, last = self.first_register, self.first_register + table.shape[1]
        return torch.cat([x[..., :first, :], rotated(x[..., first:last, :], table), x[..., last:, :]], dim=-2)


def rotated(x: Tensor, table: Tensor) -> Tensor:
    """Return x (..., N, d_h) with pairs of channels rotated. table: cosines and sines (2, ..., N, d_h / 2)."""
    cos, sin = table
    a = x[..., ::2]
    b = x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2).to(x.dtype)


def columns_and_rows(grid: Grid) -> Tensor:
    """Return the column and the row of each patch (2, N, 1), in float64."""
    row, column = rows_and_columns(grid)
    return torch.stack([column, row])[..., None]


def axial_rotations(rate: Tensor, places: Tensor) -> Tensor:
    """Return the cosines and sines (2, N, 2 K) of rotations with the column, then with the row, at rates (K,)."""
    rates = torch.stack([torch.cat([rate, 0 * rate]), torch.cat([0 * rate, rate])])
    return rotations(rates, places)


def rotations(rates: Tensor, places: Tensor) -> Tensor:
    """Return the cosines and sines (2, ..., N, K) of the angles of rotation.

    rates: radians per column and per row (..., 2, K). places: the column and the row of each patch (2, N, 1).
    """
    across, down = rates[..., None, :].unbind(-3)  # (..., 1, K)
    angles = places[0] * across + places[1] * down  # no matrix product: autocast would round the angles to bfloat16
    return torch.stack([angles.cos(), angles.sin()])


def slopes(heads: int) -> list[float]:
    """Return ALiBi's slopes for H heads: if H is a power of 2, a geometric series from 2^(-8/H) to 2^-8.

    Otherwise, the series for the next lower power P comes first. Every other slope of the series for 2 P heads follows,
    starting with the first.
    """
    power = 1 << heads.bit_length() - 1
    series = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    return series + [2 ** (-8 * (head + 0.5) / power) for head in range(heads - power)]


def resample_offsets(table: Tensor, old: Grid, new: Grid) -> Tensor:
    """Return a table ((2R-1)*(2C-1), H) for offsets on grid `old`, resampled to grid `new`: ((2R'-1)*(2C'-1), H).

    As in BEiT (arXiv 2106.08254) and timm's `resize_rel_pos_bias_table`, near offsets keep their spacing, and far
    offsets are spread in a geometric series. The interpolation is linear, and constant beyond the old offsets.
    """
    if old == new:
        return table
    down, across = (offset_weights(*sizes).to(table) for sizes in zip(old, new, strict=True))
    offsets = table.reshape(2 * old[0] - 1, 2 * old[1] - 1, -1)  # (2R-1, 2C-1, H)
    return torch.einsum("ir,jc,rch->ijh", down, across, offsets).flatten(0, 1)


def offset_weights(old: int, new: int) -> Tensor:
    """Return the weights (2 new - 1, 2 old - 1) with which old offsets on an axis contribute to new offsets."""
    if old == 1:
        return torch.ones(2 * new - 1, 1, dtype=torch.float64)  # the one offset that was learned
    ratio = growth(old - 1, new - 1)
    far = torch.tensor([ratio**step for step in range(old - 1)], dtype=torch.float64).cumsum(0)
    knots = torch.cat([-far.flip(0), torch.zeros(1, dtype=torch.float64), far])  # where the old offsets now lie
    places = torch.arange(1 - new, new, dtype=torch.float64)
    right = torch.bucketize(places, knots).clamp(1, len(knots) - 1)
    share = ((places - knots[right - 1]) / (knots[right] - knots[right - 1])).clamp(0, 1)[:, None]
    one_hot = torch.eye(len(knots), dtype=torch.float64)
    return one_hot[right - 1] * (1 - share) + one_hot[right] * share


def growth(terms: int, reach: int) -> float:
    """Return the ratio r for which 1 + r + ... + r**(terms - 1) = reach, or the nearer bound of [1.01, 1.5]."""
    low, high = 1.01, 1.5
    while high - low > 1e-6:
        middle = (low + high) / 2
        if (middle**terms - 1) / (middle - 1) > reach:
            high = middle
        else:
            low = middle
    return (low + high) / 2
