"""Absolute position embeddings, which add or concatenate a vector for each location. Shapes: as in sites.py."""

import math
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from commonfloor.options import ConfigError, JsonSettings
from vitcore.model.pooling import POOLING
from vitcore.model.position.sites import Formula, Grid, Position, rows_and_columns, square_grid
from vitcore.settings import Settings


class Absolute(Position):
    """Base class of embeddings that add a vector to each patch token, or concatenate it with a narrower token."""

    places: ClassVar[tuple[str, ...]] = ("input",)
    even_parts: ClassVar[int] = 1  # number of parts of equal width in the vector
    least_width: ClassVar[int] = 1

    class Options(Position.Options):
        combine: Literal["add", "concat"] = "add"  #: Whether the vector is added to the patch or concatenated.
        width: Annotated[int, Field(ge=0)] = 0  #: Channels of a concatenated vector. 0: half of the model's width.

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.at_input = config.position_at == "input"
        self.options = config.options_of(self.slot, self.Options)
        self.width = self.position_width(config)

    @classmethod
    def position_width(cls, config: Settings) -> int:
        options = config.options_of(cls.slot, cls.Options)
        if options.combine == "concat":
            return options.width or config.width // 2
        return config.width

    @classmethod
    def stem_width(cls, config: Settings) -> int:
        if config.options_of(cls.slot, cls.Options).combine == "concat":
            return config.width - cls.position_width(config)
        return config.width

    @classmethod
    def check(cls, config: Settings) -> None:
        options = config.options_of(cls.slot, cls.Options)
        width = cls.position_width(config)
        if options.combine == "concat" and config.position_at != "input":
            raise ConfigError(f"position.combine=concat: at position_at=input only, not {config.position_at}")
        if options.combine == "add" and options.width:
            raise ConfigError(f"position.width={options.width}: with position.combine=concat only")
        if options.combine == "concat" and not 0 < width < config.width:
            raise ConfigError(f"position.width={width}: more than 0 and less than width={config.width}")
        key = "width" if options.combine == "add" else "position.width"
        if width % cls.even_parts:
            raise ConfigError(f"{key}={width}: position={config.position} needs a multiple of {cls.even_parts}")
        if width < cls.least_width:
            raise ConfigError(f"{key}={width}: position={config.position} needs at least {cls.least_width}")

    def encoding(self, layer: int, grid: Grid) -> Tensor:
        """Return the position vectors (N, width) of all locations on `grid`, for the input of `layer`."""
        raise NotImplementedError

    def tokens(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        if self.at_input and layer > 0:
            return x
        encoding = self.encoding(layer, grid)
        if self.options.combine == "concat":
            return torch.cat([x, encoding.expand(len(x), -1, -1)], dim=-1)
        return x + encoding


class Learned(Absolute):
    """Base class of learned position embeddings, with tables at the input, at each layer, or shared by all layers.

    By default, a class token has its own row at the input, as in google-research/vision_transformer.
    """

    places = ("input", "every-layer", "shared")

    class Options(Absolute.Options):
        class_row: bool = True  #: Whether the class token has a position vector.

    @classmethod
    def draws_changed_since_0_12(cls, config: Settings) -> bool:
        return cls.position_width(config) // cls.even_parts != config.width

    @classmethod
    def allows_class_row(cls, config: Settings) -> bool:
        """Return whether the model has a class token and adds position vectors only at the input."""
        added = config.options_of(cls.slot, cls.Options).combine == "add"
        return POOLING[config.pool].class_token and config.position_at == "input" and added

    @classmethod
    def canonical(cls, config: Settings) -> JsonSettings:
        return {} if cls.allows_class_row(config) else {"class_row": True}

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        for name, rows in self.rows(config.grid).items():
            size = (rows, self.width // self.even_parts)
            if config.position_at == "every-layer":
                tables = nn.ParameterList(nn.Parameter(torch.empty(size)) for _ in range(config.layers))
                setattr(self, name, tables)
            else:
                setattr(self, name, nn.Parameter(torch.empty(size)))
        has_row = self.allows_class_row(config) and config.options_of(self.slot, self.Options).class_row
        self.class_row = nn.Parameter(torch.empty(config.width)) if has_row else None

    @staticmethod
    def rows(grid: Grid) -> dict[str, int]:
        """Return parameter name -> number of rows for each table."""
        raise NotImplementedError

    def table_of(self, layer: int, name: str = "table") -> Tensor:
        table = getattr(self, name)
        return table[layer] if isinstance(table, nn.ParameterList) else table

    def class_token(self, token: Tensor) -> Tensor:
        return token if self.class_row is None else token + self.class_row


class Learned1D(Learned):
    """A learned vector for each location in raster order (arXiv 2010.11929, D.4)."""

    numerics = 1

    class Options(Learned.Options):
        #: Whether the table is interpolated to other grids with antialiasing, as in timm. transformers has none.
        antialias: bool = True

    options: Options

    @staticmethod
    def rows(grid: Grid) -> dict[str, int]:
        return {"table": math.prod(grid)}

    def encoding(self, layer: int, grid: Grid) -> Tensor:
        return resample(self.table_of(layer), self.grid, grid, self.options.antialias)

    def resized(self, name: str, table: Tensor) -> Tensor:
        return resample(table, square_grid(len(table)), self.grid, self.options.antialias)


class Learned2D(Learned):
    """The concatenation of two learned vectors of half the width for column and row (arXiv 2010.11929, D.4).

    On another grid, each table is resampled along its axis.
    """

    numerics = 1
    even_parts = 2

    @staticmethod
    def rows(grid: Grid) -> dict[str, int]:
        return {"x_table": grid[1], "y_table": grid[0]}

    def encoding(self, layer: int, grid: Grid) -> Tensor:
        old_rows, old_columns = self.grid
        rows, columns = grid
        across = resample(self.table_of(layer, "x_table"), (1, old_columns), (1, columns))
        down = resample(self.table_of(layer, "y_table"), (1, old_rows), (1, rows))
        both = [across.expand(rows, columns, -1), down[:, None].expand(rows, columns, -1)]
        return torch.cat(both, dim=-1).flatten(0, 1)

    def resized(self, name: str, table: Tensor) -> Tensor:
        rows, columns = self.grid
        return resample(table, (1, len(table)), (1, columns if name.startswith("x_") else rows))


class Fixed(Formula, Absolute):
    """Base class of position embeddings whose vectors follow a formula for any grid."""

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self.register_table()

    def encoding(self, layer: int, grid: Grid) -> Tensor:
        return self.table_at(grid)


class Index(Fixed):
    """A naive encoding that has the index in raster order, 0 to N - 1, in the first channel.

    https://kazemnejad.com/blog/transformer_architecture_positional_encoding/ rejects it, because the values grow with
    the grid. The other channels are 0, because a layer norm would remove a number added to every channel.
    """

    numerics = 1

    def formula(self, grid: Grid) -> Tensor:
        place = torch.arange(math.prod(grid), dtype=torch.float64)[:, None]
        return F.pad(place, (0, self.width - 1))


class IndexNormalized(Index):
    """A naive encoding that has the index in raster order, scaled to [0, 1], in the first channel.

    https://kazemnejad.com/blog/transformer_architecture_positional_encoding/ rejects it, because the step between
    neighbors depends on the grid.
    """

    numerics = 1

    def formula(self, grid: Grid) -> Tensor:
        return super().formula(grid) / max(1, math.prod(grid) - 1)


class SinCos(Fixed):
    """Base class of sinusoidal position embeddings, with rates from 1 down to about 1 / temperature."""

    class Options(Absolute.Options):
        temperature: Annotated[float, Field(gt=0)] = 10_000.0  #: About 1 / the lowest rate. Default: arXiv 1706.03762.

    options: Options


class SinCos1D(SinCos):
    """The sinusoidal encoding of the original Transformer, over the raster order (arXiv 1706.03762, section 3.5).

    Channels 2i and 2i + 1 of D are the sine and the cosine of index / temperature^(2i / D).
    """

    numerics = 1
    even_parts = 2

    def formula(self, grid: Grid) -> Tensor:
        place = torch.arange(math.prod(grid), dtype=torch.float64)[:, None]  # (N, 1)
        rates = self.options.temperature ** (-torch.arange(0, self.width, 2, dtype=torch.float64) / self.width)
        return torch.stack([(place * rates).sin(), (place * rates).cos()], dim=-1).flatten(1)


class SinCos2D(SinCos):
    """2D sinusoidal embedding: sines and cosines of the column, then of the row (arXiv 2104.02057).

    Each of the four takes a quarter of the channels. The rates run from 1 to 1 / temperature inclusive, as in
    big_vision's `posemb_sincos_2d` (arXiv 2205.01580).
    """

    numerics = 1
    even_parts = 4
    least_width = 8

    def formula(self, grid: Grid) -> Tensor:
        row, column = rows_and_columns(grid)
        rates = self.options.temperature ** -torch.linspace(0, 1, self.width // 4, dtype=torch.float64)
        x = column[:, None] * rates  # (N, D / 4)
        y = row[:, None] * rates  # (N, D / 4)
        return torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], dim=1)


def resample(table: Tensor, old: Grid, new: Grid, antialias: bool = True) -> Tensor:
    """Return a table (R*C, D) for the locations of grid `old`, resampled to grid `new`: (R'*C', D).

    The interpolation is bicubic, as in timm's `resample_abs_pos_embed`. A single axis is a grid with one row.
    """
    if old == new:
        return table
    image = table.reshape(*old, -1).permute(2, 0, 1)[None]  # (1, D, R, C)
    for size in reversed(new):  # an axis at a time: PyTorch 2.14 resamples columns of width 1 wrongly
        image = F.interpolate(image, size=(image.shape[2], size), mode="bicubic", antialias=antialias).transpose(2, 3)
    return image[0].flatten(1).T
