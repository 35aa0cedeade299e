"""The result of a benchmark: its conditions, its measurements, and their Markdown table."""

from dataclasses import dataclass, field

import torch
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from ablations.bench.process import Source
from ablations.bench.timing import Spread, ends
from ablations.execution.machine import cores
from ablations.execution.provenance import environment_record
from results.tables.formats import markdown
from results.tables.grid import Cell, Grid
from vitcore.config import Config
from vitcore.runtime.device import device_of, hardware


class Machine(BaseModel, frozen=True, extra="allow"):
    """Hardware, code and kernels of a measurement, as in env.json; versions of packages are further fields."""

    device: str
    accelerator: str
    threads: int
    cores: int
    cpu_capability: str
    compile: bool
    code: str
    revision: str | None
    started: str

    def describe(self) -> str:
        """Describe machine, versions and date in one line."""
        threads = "" if self.accelerator == "cuda" else f", {self.threads} thread(s) of {self.cores} cores"
        names = [name for name in ("torch", "torchvision", "timm", "python") if hasattr(self, name)]
        versions = ", ".join(f"{name} {getattr(self, name)}" for name in names)
        return f"{self.device}{threads}; {versions}; revision {self.revision or self.code}; {self.started}"


@dataclass(frozen=True)
class Conditions:
    """What others need to repeat a measurement: where, of what, and how often."""

    machine: Machine
    config: Config
    images: str
    rounds: int
    low_and_high: str
    steps_per_round: int

    def model(self) -> str:
        """Describe the settings that the time of a step depends on."""
        config, side = self.config, self.config.image_size
        sizes = [f"{name} {getattr(config, name)}" for name in ("width", "depth", "heads", "patch")]
        parts = [f"{name}={getattr(config, name)}" for name in ("position", "pool", "stem")]
        how = {
            config.model or ", ".join([*sizes, *parts]): True,
            f"{self.images} images {side} x {side}, batch {config.batch}, {config.precision}": True,
            "compiled": config.compile,
            f"augment={config.augment}": config.augment != "none",
            "attention=pinned": config.attention == "pinned",
        }
        return ", ".join(text for text, true in how.items() if true)


@dataclass(frozen=True)
class Result:
    """What one benchmark measured.

    measured: a record of the other keys of its JSON. title, caption: what stands above its table, before the model and
    after the number of rounds. rows: cells by column; the first column is text, the others are numbers. notes:
    paragraphs below.
    """

    bench: str
    conditions: Conditions
    measured: object
    title: str
    caption: str
    rows: list[dict[str, str]]
    notes: list[str] = field(default_factory=list)

    def json(self) -> dict[str, object]:
        return {"bench": self.bench, **to_jsonable_python(self.conditions), **to_jsonable_python(self.measured)}

    def render(self) -> str:
        """Format the table under its conditions."""
        how, header = self.conditions, list(self.rows[0])
        cells = [[Cell(text) for text in row.values()] for row in self.rows]
        numeric = [False, *[True] * (len(header) - 1)]
        caption = f"Median [{how.low_and_high}] of {counted(how.rounds, 'round')}{self.caption}"
        grid = Grid(f"{self.title}: {how.model()}", [caption], header, numeric, cells)
        return "\n\n".join([markdown(grid), *self.notes, how.machine.describe()])


def conditions(config: Config, source: Source, rounds: int, calls: int) -> Conditions:
    record = environment_record(config, hardware(config), device_of(config), source.plugins)
    machine = Machine(**record, cores=cores(), cpu_capability=torch.backends.cpu.get_cpu_capability())
    known = config.model_copy(update={"compile": machine.compile})
    return Conditions(machine, known, "random" if source.random else config.data, rounds, ends(rounds), calls)


def text(spread: Spread | None, form: str, scale: float = 1) -> str:
    """Format a median and, in brackets, both ends, each times `scale`; "" without a spread."""
    if spread is None:
        return ""
    return f"{form} [{form}, {form}]".format(*(scale * value for value in (spread.median, spread.low, spread.high)))


def mebibytes(count: int | None) -> str:
    return "" if count is None else f"{count / 2**20:,.1f} MiB"


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
