"""The result of a benchmark: the conditions, the measurements and a table in Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic_core import to_jsonable_python

from ablations.machine import cores
from ablations.provenance import environment_record
from ablations.study.naming import assignments
from ablations.trainables.vit.training import environment
from benchmarks.process import Source
from benchmarks.timing import FEW, Spread
from results.tables.formats import Cell, Grid, markdown
from results.units import amount_text
from vitcore.config import Config

SHAPE = ("width", "depth", "heads", "patch", "position", "pool", "stem")  # of a model of ours
SETTINGS = ("image_size", "batch", "precision", "compile", "augment", "attention")
MACHINE = ("device", "threads", "cores", "torch", "torchvision", "timm", "python", "code", "revision", "started")


def conditions(config: Config, source: Source, rounds: int, calls: int) -> dict[str, Any]:
    """Return the conditions of a measurement on this machine now. calls: the number of steps per round."""
    machine = environment_record(environment(config), {})
    machine |= {"cores": cores(), "cpu_capability": torch.backends.cpu.get_cpu_capability()}
    return {
        "machine": machine,
        "config": config.model_copy(update={"compile": machine["compile"]}),
        "images": "random" if source.random else config.data,
        "rounds": rounds,
        "low_and_high": "lowest, highest" if rounds < FEW else "quartiles",  # of a Spread
        "steps_per_round": calls,
    }


@dataclass(frozen=True)
class Result:
    """The measurements of one benchmark, which can be output as JSON and as a table.

    columns: header -> row -> cell; the first column has every row.
    """

    bench: str
    conditions: dict[str, Any]
    measured: Mapping[str, object]
    title: str  # the heading, which the settings follow
    caption: str  # text that follows the number of rounds
    side: str  # header of the first column
    columns: Mapping[str, Mapping[str, str]]
    notes: Sequence[str] = ()  # paragraphs below the table

    def json(self) -> dict[str, Any]:
        content: dict[str, Any] = to_jsonable_python({"bench": self.bench, **self.conditions, **self.measured})
        return content

    def render(self) -> str:
        """Return the title, the table, the notes and the conditions of the benchmark as Markdown."""
        config, machine = self.conditions["config"], self.conditions["machine"]
        names = [*(["model"] if config.model else SHAPE), *SETTINGS]
        settings = {name: getattr(config, name) for name in names} | {"images": self.conditions["images"]}
        columns = {name: cells for name, cells in self.columns.items() if any(cells.values())}
        first, *_ = columns.values()
        rows = [[Cell(row), *(Cell(cells.get(row, "")) for cells in columns.values())] for row in first]
        rounds = amount_text(self.conditions["rounds"], "round")
        caption = f"Median [{self.conditions['low_and_high']}] of {rounds}{self.caption}"
        title = f"{self.title}: {assignments(settings, ', ')}"
        grid = Grid(title, [caption], [self.side, *columns], [False, *[True] * len(columns)], rows)
        known = {name: machine[name] for name in MACHINE if machine.get(name)}
        return "\n\n".join([markdown(grid), *self.notes, assignments(known, ", ")])


def column(spreads: Mapping[str, Spread], form: str, unit: str = "") -> dict[str, str]:
    """Return a column of a table: row -> text of its spread, followed by `unit`."""
    return {name: own.text(form) + unit for name, own in spreads.items()}
