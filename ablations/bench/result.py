"""The result of a benchmark: the conditions, the measurements and a table in Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from pydantic_core import to_jsonable_python

from ablations.bench.process import Source
from ablations.bench.timing import FEW, Spread
from ablations.execution.machine import cores
from ablations.execution.provenance import environment_record
from results.store.schemas import Fact
from results.tables.formats import Cell, Grid, markdown
from results.units import amount_text
from vitcore.config import Config
from vitcore.runtime.device import device_of, hardware


@dataclass(frozen=True)
class Conditions:
    """Everything needed to repeat a measurement.

    machine: hardware, code and versions, as in env.json. low_and_high: the meaning of `low` and `high` of a Spread.
    """

    machine: dict[str, Fact]
    config: Config
    images: str  # the data set, or "random"
    rounds: int
    low_and_high: str
    steps_per_round: int

    def model(self) -> str:
        """Return text with the settings on which the time of a step depends."""
        config = self.config
        sizes = [f"{name} {getattr(config, name)}" for name in ("width", "depth", "heads", "patch")]
        parts = [f"{name}={getattr(config, name)}" for name in ("position", "pool", "stem")]
        texts = [config.model] if config.model else [*sizes, *parts]
        texts += [f"{self.images} images {config.image_size} x {config.image_size}", f"batch {config.batch}"]
        texts += [config.precision, *["compiled"] * bool(config.compile)]
        texts += [f"augment={config.augment}"] if config.augment != "none" else []
        texts += ["attention=pinned"] if config.attention == "pinned" else []
        return ", ".join(texts)

    def environment_line(self) -> str:
        """Return a line of text with the machine, the versions and the date."""
        own = self.machine
        threads = "" if own["accelerator"] == "cuda" else f", {own['threads']} thread(s) of {own['cores']} cores"
        versions = [f"{name} {own[name]}" for name in ("torch", "torchvision", "timm", "python") if name in own]
        code = f"revision {own['revision'] or own['code']}"
        return f"{own['device']}{threads}; {', '.join(versions)}; {code}; {own['started']}"


def conditions(config: Config, source: Source, rounds: int, calls: int) -> Conditions:
    machine = environment_record(config, hardware(config), device_of(config), source.plugins)
    machine |= {"cores": cores(), "cpu_capability": torch.backends.cpu.get_cpu_capability()}
    known = config.model_copy(update={"compile": machine["compile"]})
    ends = "lowest, highest" if rounds < FEW else "quartiles"
    return Conditions(machine, known, "random" if source.random else config.data, rounds, ends, calls)


@dataclass(frozen=True)
class Result:
    """The measurements of one benchmark, which can be output as JSON and as a table.

    measured: a dictionary or a dataclass. columns: header -> row -> cell; the first column has every row.
    """

    bench: str
    conditions: Conditions
    measured: object
    title: str  # the heading, which the model follows
    caption: str  # text that follows the number of rounds
    side: str  # header of the first column
    columns: Mapping[str, Mapping[str, str]]
    notes: Sequence[str] = ()  # paragraphs below the table

    def json(self) -> dict[str, object]:
        return {"bench": self.bench, **to_jsonable_python(self.conditions), **to_jsonable_python(self.measured)}

    def render(self) -> str:
        """Return the title, the table, the notes and the conditions of the benchmark as Markdown."""
        how, columns = self.conditions, self.columns.values()
        rows = [[name, *(column.get(name, "") for column in columns)] for name in next(iter(columns))]
        header, numeric = [self.side, *self.columns], [False, *[True] * len(columns)]
        caption = f"Median [{how.low_and_high}] of {amount_text(how.rounds, 'round')}{self.caption}"
        grid = Grid(f"{self.title}: {how.model()}", [caption], header, numeric, [[*map(Cell, row)] for row in rows])
        return "\n\n".join([markdown(grid), *self.notes, how.environment_line()])


def spread_text(spread: Spread | None, form: str, scale: float = 1) -> str:
    """Return a spread as text, such as "1.2 [1.1, 1.3]" for median, `low` and `high`, or "" for None.

    form: format of each number, such as "{:.1f}". scale: factor by which each number is multiplied.
    """
    if spread is None:
        return ""
    return f"{form} [{form}, {form}]".format(*(scale * value for value in (spread.median, spread.low, spread.high)))


def column(spreads: Mapping[str, Spread], form: str, scale: float = 1, unit: str = "") -> dict[str, str]:
    """Return a column of a table: row -> its `spread_text`, followed by `unit`."""
    return {name: spread_text(own, form, scale) + unit for name, own in spreads.items()}


def mebibytes(count: int | None) -> str:
    return "" if count is None else f"{count / 2**20:,.1f} MiB"
