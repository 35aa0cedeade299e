"""The one result of all benchmarks: its JSON, its conditions, and its Markdown table."""

from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from ablations.bench.process import Source
from ablations.bench.timing import Spread, ends
from ablations.execution.machine import cores
from ablations.execution.provenance import environment_record
from results.tables.grid import Cell, Grid, markdown
from vitcore.config import Config
from vitcore.runtime.device import device_of, hardware

Json = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """What one benchmark measured.

    values: the keys of its JSON. title, caption: what stands above its table, before the model and after the number of
    rounds. rows: cells by column; the first column is text, the others are numbers. notes: paragraphs below.
    """

    bench: str
    values: Json
    title: str
    caption: str
    rows: list[dict[str, str]]
    notes: list[str] = field(default_factory=list)

    def json(self, conditions: Json) -> Json:
        return {"bench": self.bench, **conditions, **asdict(self)["values"]}

    def render(self, of: Json) -> str:
        """Format the table under the conditions `of` the measurement."""
        header = list(self.rows[0])
        cells = [[Cell(text) for text in row.values()] for row in self.rows]
        numeric = [False, *[True] * (len(header) - 1)]
        caption = f"Median [{of['low_and_high']}] of {counted(of['rounds'], 'round')}{self.caption}"
        grid = Grid(f"{self.title}: {model(of)}", [caption], header, numeric, cells)
        return "\n\n".join([markdown(grid), *self.notes, machine(of["machine"])])


def conditions(config: Config, source: Source, digests: dict[str, str], rounds: int, calls: int) -> Json:
    """Record machine, versions, config, images, and how often each side is measured, for others to repeat it."""
    machine = environment_record(config, hardware(config), device_of(config), digests)
    return {
        "machine": machine | {"cores": cores(), "cpu_capability": torch.backends.cpu.get_cpu_capability()},
        "config": config.model_dump() | {"compile": machine["compile"]},
        "images": "random" if source.random else config.data,
        "rounds": rounds,
        "low_and_high": ends(rounds),
        "steps_per_round": calls,
    }


def machine(of: Json) -> str:
    """Describe machine, versions and date in one line."""
    threads = "" if of["accelerator"] == "cuda" else f", {of['threads']} thread(s) of {of['cores']} cores"
    versions = ", ".join(f"{name} {of[name]}" for name in ("torch", "torchvision", "timm", "python") if name in of)
    return f"{of['device']}{threads}; {versions}; revision {of['revision'] or of['code']}; {of['started']}"


def model(of: Json) -> str:
    """Describe the settings that the time of a step depends on."""
    config, side = of["config"], of["config"]["image_size"]
    if not (name := config.get("model")):
        sizes = [f"{name} {config[name]}" for name in ("width", "depth", "heads", "patch")]
        name = ", ".join([*sizes, *(f"{part}={config[part]}" for part in ("position", "pool", "stem"))])
    how = {
        name: True,
        f"{of['images']} images {side} x {side}, batch {config['batch']}, {config['precision']}": True,
        "compiled": config["compile"],
        f"augment={config['augment']}": config["augment"] != "none",
        "attention=pinned": config["attention"] == "pinned",
    }
    return ", ".join(text for text, true in how.items() if true)


def text(spread: Spread | None, form: str, scale: float = 1) -> str:
    """Format a median and, in brackets, both ends, each times `scale`; "" without a spread."""
    if spread is None:
        return ""
    return f"{form} [{form}, {form}]".format(*(scale * value for value in (spread.median, spread.low, spread.high)))


def mebibytes(count: int | None) -> str:
    return "" if count is None else f"{count / 2**20:,.1f} MiB"


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
