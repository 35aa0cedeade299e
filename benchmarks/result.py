"""The result of a benchmark: the conditions, the measurements and a table in Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from pydantic_core import to_jsonable_python

from ablations.machine import cores
from ablations.provenance import environment_record
from ablations.study.naming import assignments
from ablations.trainables.vit.training import environment
from benchmarks.process import Source
from benchmarks.timing import FEW, Spread
from results.store.schemas import Fact
from results.tables.formats import Cell, Grid, markdown
from results.units import amount_text
from vitcore.config import Config

SHAPE = ("width", "depth", "heads", "patch", "position", "pool", "stem")  # of a model of ours
SETTINGS = ("image_size", "batch", "precision", "compile", "augment", "attention")
MEMORY = "memory that steps add"  # the header of a column that is empty on a CPU
MACHINE = ("device", "threads", "cores", "torch", "torchvision", "timm", "python", "code", "revision", "started")


@dataclass(frozen=True)
class Conditions:
    """Everything needed to repeat a measurement."""

    machine: dict[str, Fact]  # hardware, code and versions, as in env.json
    config: Config
    images: str  # the data set, or "random"
    rounds: int
    low_and_high: str  # the meaning of `low` and `high` of a Spread
    steps_per_round: int

    def settings(self) -> str:
        """Return text with the settings on which the time of a step depends."""
        names = [*(["model"] if self.config.model else SHAPE), *SETTINGS]
        return assignments({name: getattr(self.config, name) for name in names} | {"images": self.images}, ", ")

    def environment(self) -> str:
        """Return text with the machine, the versions and the date."""
        return assignments({name: self.machine[name] for name in MACHINE if self.machine.get(name)}, ", ")


def conditions(config: Config, source: Source, rounds: int, calls: int) -> Conditions:
    """Return the conditions of a measurement on this machine now. calls: the number of steps per round."""
    machine = environment_record(environment(config), {})
    machine |= {"cores": cores(), "cpu_capability": torch.backends.cpu.get_cpu_capability()}
    known = config.model_copy(update={"compile": machine["compile"]})
    ends = "lowest, highest" if rounds < FEW else "quartiles"
    return Conditions(machine, known, "random" if source.random else config.data, rounds, ends, calls)


@dataclass(frozen=True)
class Result:
    """The measurements of one benchmark, which can be output as JSON and as a table.

    columns: header -> row -> cell; the first column has every row.
    """

    bench: str
    conditions: Conditions
    measured: Mapping[str, object]
    title: str  # the heading, which the settings follow
    caption: str  # text that follows the number of rounds
    side: str  # header of the first column
    columns: Mapping[str, Mapping[str, str]]
    notes: Sequence[str] = ()  # paragraphs below the table

    def json(self) -> dict[str, object]:
        return {"bench": self.bench, **to_jsonable_python(self.conditions), **to_jsonable_python(self.measured)}

    def render(self) -> str:
        """Return the title, the table, the notes and the conditions of the benchmark as Markdown."""
        how, columns = self.conditions, {name: cells for name, cells in self.columns.items() if any(cells.values())}
        first, *_ = columns.values()
        rows = [[row, *(cells.get(row, "") for cells in columns.values())] for row in first]
        header, numeric = [self.side, *columns], [False, *[True] * len(columns)]
        caption = f"Median [{how.low_and_high}] of {amount_text(how.rounds, 'round')}{self.caption}"
        grid = Grid(f"{self.title}: {how.settings()}", [caption], header, numeric, [[*map(Cell, row)] for row in rows])
        return "\n\n".join([markdown(grid), *self.notes, how.environment()])


def column(spreads: Mapping[str, Spread], form: str, unit: str = "") -> dict[str, str]:
    """Return a column of a table: row -> text of its spread, followed by `unit`."""
    return {name: own.text(form) + unit for name, own in spreads.items()}


def mebibytes(count: int | None) -> str:
    return "" if count is None else f"{count / 2**20:,.1f} MiB"
