"""Absolute positions: a vector for each place, added to the tokens or put beside them.

Shapes: B images, N patches in raster order on a grid of R rows and C columns, D width, H heads, d_h = D / H.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from vitcore.model.position.resample import Grid, resample, square
from vitcore.model.position.sites import Position, rows_and_columns
from vitcore.options import ConfigError, Settings

if TYPE_CHECKING:
    from vitcore.config import Config


Table = nn.Parameter | nn.ParameterList


class Absolute(Position):
    """A vector for each place: added to the patch tokens, or put beside a stem's that are narrower (concat)."""

    places: ClassVar[tuple[str, ...]] = ("input",)
    even_parts: ClassVar[int] = 1  # into how many parts of one width the vector is cut

    class Options(Position.Options):
        """The way the vector joins the patch."""

        combine: Literal["add", "concat"] = "add"  #: Whether it is added to the patch or put beside it.
        width: Annotated[int, Field(ge=0)] = 0  #: Channels that `concat` gives to the position. 0: half of them.

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.at_input = config.position_at == "input"
        self.options = config.options_of(self.slot, self.Options)
        self.concat = self.options.combine == "concat"
        self.width = self.position_width(config)

    @classmethod
    def position_width(cls, config: Config) -> int:
        """Return the width of the vector."""
        options = config.options_of(cls.slot, cls.Options)
        return (options.width or config.width // 2) if options.combine == "concat" else config.width

    @classmethod
    def stem_width(cls, config: Config) -> int:
        concat = config.options_of(cls.slot, cls.Options).combine == "concat"
        return config.width - cls.position_width(config) if concat else config.width

    @classmethod
    def check(cls, config: Config) -> None:
        super().check(config)
        options, width = config.options_of(cls.slot, cls.Options), cls.position_width(config)
        if options.combine == "concat" and config.position_at != "input":
            raise ConfigError(f"position.combine=concat: at position_at=input only, not {config.position_at}")
        if options.combine == "add" and options.width:
            raise ConfigError(f"position.width={options.width}: with position.combine=concat only")
        if options.combine == "concat" and not 0 < width < config.width:
            raise ConfigError(f"position.width={width}: more than 0 and less than width={config.width}")
        if width % cls.even_parts:
            key = "width" if options.combine == "add" else "position.width"
            raise ConfigError(f"{key}={width}: position={config.position} needs a multiple of {cls.even_parts}")

    def encoding(self, layer: int, grid: Grid) -> Tensor:
        """Return the vectors (N, `width`) of all places, for the input or for `layer`."""
        raise NotImplementedError

    def tokens(self, x: Tensor, layer: int, grid: Grid) -> Tensor:
        if self.at_input and layer > 0:
            return x
        encoding = self.encoding(layer, grid)
        return torch.cat([x, encoding.expand(len(x), -1, -1)], dim=-1) if self.concat else x + encoding


class Learned(Absolute):
    """Learned tables: one at the input; one a layer, added to what enters it; or one that all layers share.

    At the input the class token, where there is one, has a row of its own, as in the reference implementation.
    """

    places = ("input", "every-layer", "shared")
    class_row: nn.Parameter | None

    class Options(Absolute.Options):
        """The class token's row."""

        #: Whether the class token has one.
        class_row: bool = True

    @classmethod
    def drawn_by_model_width(cls, config: Config) -> bool:
        return cls.position_width(config) // cls.even_parts != config.width

    @classmethod
    def has_class_row(cls, config: Config) -> bool:
        """Tell whether the class token gets a row: at the input, if it has the position's width."""
        options = config.options_of(cls.slot, cls.Options)
        return options.class_row and config.position_at == "input" and options.combine == "add"

    @classmethod
    def canonical(cls, config: Config) -> Settings:
        """Return `class_row` at its default where the position has no row for a class token."""
        from vitcore.model.pooling import POOLING

        possible = POOLING[config.pool].class_token and config.position_at == "input"
        concat = config.options_of(cls.slot, cls.Options).combine == "concat"
        return {} if possible and not concat else {"class_row": True}

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.layers = config.layers if config.position_at == "every-layer" else 0

    def new_table(self, *size: int) -> Table:
        """Return a table of this size, one in a list for each layer if every layer has its own."""
        if not self.layers:
            return nn.Parameter(torch.empty(size))
        return nn.ParameterList(nn.Parameter(torch.empty(size)) for _ in range(self.layers))

    def of(self, layer: int, table: Table) -> Tensor:
        return table[layer] if isinstance(table, nn.ParameterList) else table

    def new_class_row(self, config: Config) -> nn.Parameter | None:
        """Return the class token's own position, where the pooling has a class token."""
        from vitcore.model.pooling import POOLING

        wanted = POOLING[config.pool].class_token and self.has_class_row(config)
        return nn.Parameter(torch.empty(config.width)) if wanted else None

    def class_token(self, token: Tensor) -> Tensor:
        return token if self.class_row is None else token + self.class_row


class Learned1D(Learned):
    """A learned vector for each place in the raster order (arXiv 2010.11929, D.4)."""

    numerics = 1

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.table = self.new_table(math.prod(config.grid), self.width)
        self.class_row = self.new_class_row(config)

    def encoding(self, layer: int, grid: Grid) -> Tensor:
        return resample(self.of(layer, self.table), self.grid, grid)

    def resized(self, name: str, table: Tensor) -> Tensor:
        return resample(table, square(len(table)), self.grid)


class Learned2D(Learned):
    """Two learned tables of half the width; a patch has its column's and its row's entry, concatenated.

    arXiv 2010.11929, D.4 (X- and Y-embedding). At another grid each is resampled along its axis.
    """

    numerics = 1
    even_parts = 2

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        rows, columns = config.grid
        self.x_table = self.new_table(columns, self.width // 2)
        self.y_table = self.new_table(rows, self.width // 2)
        self.class_row = self.new_class_row(config)

    def encoding(self, layer: int, grid: Grid) -> Tensor:
        (old_rows, old_columns), (rows, columns) = self.grid, grid
        across = resample(self.of(layer, self.x_table), (1, old_columns), (1, columns))
        down = resample(self.of(layer, self.y_table), (1, old_rows), (1, rows))
        both = [across.expand(rows, columns, -1), down[:, None].expand(rows, columns, -1)]
        return torch.cat(both, dim=-1).flatten(0, 1)

    def resized(self, name: str, table: Tensor) -> Tensor:
        rows, columns = self.grid
        return resample(table, (1, len(table)), (1, columns if name.startswith("x_") else rows))


class Fixed(Absolute):
    """Vectors by a formula, so that any grid has them."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.register_buffer("table", self.formula(config.grid).float(), persistent=False)

    def formula(self, grid: Grid) -> Tensor:
        """Return the vectors (N, `width`) in float64."""
        raise NotImplementedError

    def encoding(self, layer: int, grid: Grid) -> Tensor:
        table = self.get_buffer("table")
        return table if grid == self.grid else self.formula(grid).to(table)


class Index(Fixed):
    """The raw place in the raster order, 0 to N - 1, in the first channel: a naive encoding.

    https://kazemnejad.com/blog/transformer_architecture_positional_encoding/ discusses and rejects it: the values grow
    with the grid, beyond what was seen in training. In one channel, because a layer norm is blind to what is the same
    in all of them: the number added to every channel is no position at all.
    """

    numerics = 1

    def formula(self, grid: Grid) -> Tensor:
        place = torch.arange(math.prod(grid), dtype=torch.float64)[:, None]
        return torch.nn.functional.pad(place, (0, self.width - 1))


class IndexNormalized(Index):
    """The place in the raster order from 0 to 1, in the first channel: a naive encoding.

    https://kazemnejad.com/blog/transformer_architecture_positional_encoding/ discusses and rejects it: a step means
    something else on every grid.
    """

    numerics = 1

    def formula(self, grid: Grid) -> Tensor:
        return super().formula(grid) / max(1, math.prod(grid) - 1)


class SinCos(Fixed):
    """Sines and cosines of the place at rates from 1 down to about 1 / `temperature`."""

    class Options(Absolute.Options):
        """The rates."""

        temperature: Annotated[float, Field(gt=0)] = 10_000.0  #: One over the lowest rate, about. Both papers have it.

    options: Options


class SinCos1D(SinCos):
    """The original Transformer's, over the raster order (arXiv 1706.03762, section 3.5).

    Channels: sin and cos of place / temperature^(2i / D), alternating.
    """

    numerics = 1
    even_parts = 2

    def formula(self, grid: Grid) -> Tensor:
        place = torch.arange(math.prod(grid), dtype=torch.float64)[:, None]  # (N, 1)
        rates = self.options.temperature ** (-torch.arange(0, self.width, 2, dtype=torch.float64) / self.width)
        return torch.stack([(place * rates).sin(), (place * rates).cos()], dim=-1).flatten(1)


class SinCos2D(SinCos):
    """A quarter of the channels each: sin and cos of the column, then sin and cos of the row (arXiv 2104.02057).

    As `posemb_sincos_2d` of google-research/big_vision (arXiv 2205.01580): rates from 1 to 1 / temperature inclusive.
    """

    numerics = 1
    even_parts = 4

    @classmethod
    def check(cls, config: Config) -> None:
        super().check(config)
        if (width := cls.position_width(config)) < 8:
            key = "width" if width == config.width else "position.width"
            raise ConfigError(f"{key}={width}: position={config.position} needs at least 8")

    def formula(self, grid: Grid) -> Tensor:
        row, column = rows_and_columns(grid)
        rates = self.options.temperature ** -torch.linspace(0, 1, self.width // 4, dtype=torch.float64)
        x, y = column[:, None] * rates, row[:, None] * rates  # (N, D / 4)
        return torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], dim=1)
