"""The command `python -m benchmarks step|loop|startup`, which compares speeds with timm and torchvision."""

import argparse
import json
from pathlib import Path

from ablations.study.reading import read_recipe
from ablations.study.strict_yaml import assignment
from benchmarks import loop, startup, step
from benchmarks.process import Source
from benchmarks.result import Result
from results.store.schemas.base import Settings
from vitcore.config import Config, merge
from vitcore.runtime.device import require_gpu

BENCHMARKS = {
    "step": "a training step beside timm's and torchvision's, and beside its matrix products alone",
    "loop": "a small study with `ablate run` beside one process of a usual script per trial; takes minutes",
    "startup": "a process's first step with an empty and a filled compile cache; takes minutes",
}


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser("python -m benchmarks", description="Compare speeds with timm and torchvision.")
    commands = main.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    for name, text in BENCHMARKS.items():
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="settings that replace the recipe's")
        command.add_argument("--recipe", default="digits", help="name or file [default: %(default)s]")
        command.add_argument("--rounds", type=int, default=15 if name == "step" else 2, help="turns of each side")
        command.add_argument("--gpu", action="store_true", help="on a GPU")
        command.add_argument("--random-images", action="store_true", help="of the data's size")
        command.add_argument("--out", type=Path, help="a file for the measurements, as JSON")
    commands.choices["step"].add_argument("--steps", type=int, default=20, help="in a turn [default: %(default)s]")
    commands.choices["step"].add_argument("--compiled", action="store_true", help="also time a compiled timm model")
    commands.choices["loop"].add_argument("--seeds", type=int, default=2, help="of each arm [default: %(default)s]")
    return main


def resolve(given: argparse.Namespace) -> Settings:
    """Return the settings of the recipe and the command line. Raises ValueError if one is invalid or a GPU missing."""
    overrides = dict(map(assignment, given.settings))
    device = "cuda" if given.gpu else "cpu"
    if given.gpu:
        require_gpu()
    return merge(read_recipe(given.recipe).config, overrides, {"device": device})


def measure(given: argparse.Namespace, settings: Settings) -> Result:
    source = Source(given.random_images)
    match given.benchmark:
        case "step":
            return step.bench(Config(**settings), source, given.rounds, given.steps, given.compiled)
        case "loop":
            return loop.bench(settings, given.seeds, given.rounds, source)
        case _:
            return startup.bench(Config(**settings), given.rounds, source)


def main(words: list[str] | None = None) -> None:
    command = parser()
    given = command.parse_args(words)
    try:
        result = measure(given, resolve(given))
    except ValueError as error:
        command.error(str(error))
    print(result.render())
    if given.out:
        given.out.write_text(json.dumps(result.json(), indent=1))


if __name__ == "__main__":
    main()
