"""A small study beside the usual loop: one process per trial, one or two at a time.

Both train the same trials: two positions and several seeds of a config, with the same images, steps, batch, schedule
and evaluations. Wall time runs from the command to the last result, on our side including the table.
"""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from ablations.bench import step
from ablations.bench.process import Source, python, run
from ablations.bench.result import Result, counted, text
from ablations.bench.rivals import OURS as VITCORE
from ablations.bench.rivals import side_of
from ablations.bench.timing import Call, interleaved, spread
from ablations.execution.machine import cores
from ablations.planning.measure_steps import with_steps
from results import store
from vitcore.config import Config, merge
from vitcore.data.lookup import pack_of
from vitcore.data.splits import load
from vitcore.interop.convert import blocks_of_timm, timm_arguments
from vitcore.options import ConfigError
from vitcore.runtime.device import computing, device_of
from vitcore.sizes import ARCHITECTURE
from vitcore.training.loop import evaluation_steps

POSITIONS = ("none", "1d")
OURS, SEQUENTIAL, PAIRED = "ablate run", "one process a trial, in sequence", "one process a trial, two at a time"
AUGMENTS = ("none", "flip-crop")  # supported by the script
PASSED = {  # passed to the script as settings, images, evaluations or timm's arguments, or checked by first losses
    *("data", "data_fraction", "data_seed", "val_fraction", "image_size", "channels", "classes"),
    *("model", "steps", "batch", "lr", "warmup", "weight_decay", "clip_norm", "label_smoothing", "precision"),
    *("augment", "evaluations", "seed", "device"),
} | {*ARCHITECTURE}
FREE = {"threads", "attention", "compile", "cuda_graph"}  # may differ: ours runs as fast as it can


def bench(settings: Mapping[str, Any], seeds: int, rounds: int, source: Source) -> Result:
    """Time both sides. Raises ValueError if the script cannot do the same training, or a process fails."""
    configs = [
        Config(**merge(settings, {"position": position, "seed": seed}))
        for position in POSITIONS
        for seed in range(seeds)
    ]
    for config in configs[::seeds]:
        check_alike(config, source)
    with tempfile.TemporaryDirectory(prefix="ablate-bench-") as folder:
        study = Study(Path(folder), settings, configs, source)
        sides: dict[str, Call] = {OURS: study.run, SEQUENTIAL: partial(study.loop, 1), PAIRED: partial(study.loop, 2)}
        wall = interleaved(sides, rounds, 1, torch.device("cpu"))
        accuracy, trained = study.ours()
        accuracies = {OURS: accuracy, SEQUENTIAL: study.theirs()}
    workers = min(cores(), len(configs)) if device_of(configs[0]) == "cpu" else None
    share = workers and trained / workers / float(np.median(wall[OURS]))
    seconds = {name: spread(own) for name, own in wall.items()}
    ratio = {name: spread(own / wall[OURS]) for name, own in wall.items() if name != OURS}
    rows = [
        {
            "how": name,
            "wall time": text(own, "{:.1f}") + " s",
            "ours is faster by": text(ratio.get(name), "{:.2f}x"),
            "test accuracy": f"{accuracies[name]:.1%}" if name in accuracies else "the same trials",
        }
        for name, own in seconds.items()
    ]
    values = {"trials": len(configs), "steps": configs[0].steps, "seconds": seconds, "ratio": ratio}
    values |= {"training_share": share, "test_accuracy": accuracies}  # share: of our wall time
    title = f"{len(configs)} trials of {counted(configs[0].steps, 'step')}"
    alone = f" Training alone, on all cores, is {share:.0%} of ours." if share else ""
    return Result("loop", values, title, f" in turn, wall time.{alone}", rows)


def check_alike(config: Config, source: Source) -> None:
    """Raise ValueError if the script would train something else or cannot hold the images."""
    if pack_of(config.data, source.data_dir) is not None:
        raise ConfigError(f"data={config.data}: a pack, streamed from its shards: the script has images in memory")
    if config.augment not in AUGMENTS:
        raise ConfigError(f"augment={config.augment}: the script has {' and '.join(AUGMENTS)}")
    refuse_unknown(config)
    if any(callable(value) for value in plain_arguments(config).values()):
        raise ConfigError(f"stem={config.stem}: the script has patch")
    short = with_steps(step.telling(config), step.CHECKED)
    with computing(config):
        data = source.images(short)
        if config.precision != "float32":
            step.check_in_float32(short, data)
        step.check_equal(short, {name: side_of(name, short, data) for name in (VITCORE, "timm")})


def plain_arguments(config: Config) -> dict[str, Any]:
    """Return the arguments of timm's model except the classes of its blocks, for which timm's defaults serve."""
    return {name: value for name, value in timm_arguments(config).items() if name not in blocks_of_timm(config)}


def refuse_unknown(config: Config) -> None:
    """Raise ConfigError for a setting that the script lacks and that is not at its default."""
    for name, field in Config.model_fields.items():
        if name not in PASSED | FREE | {"options"} and getattr(config, name) != field.default:
            raise ConfigError(f"{name}={getattr(config, name)}: the script has {field.default}")
    usual = Config(**{name: value for name, value in config.model_dump().items() if name != "options"}).options
    for name, value in config.options.items():
        if name != "augment.pad" and value != usual[name]:
            raise ConfigError(f"{name}={value}: the script has {usual[name]}")


class Study:
    """The files of both sides, and the commands that start them."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], configs: Sequence[Config], source: Source) -> None:
        self.folder, self.source = folder, source
        seeds = len(configs) // len(POSITIONS)
        self.names = (f"runs{number}" for number in count())
        self.scripts = [script(config, folder / f"{number}", source) for number, config in enumerate(configs)]
        recipe = {"description": "Bench.", "config": dict(settings), "seeds": seeds}
        baseline = {"position": POSITIONS[-1]}
        question = {"question": "How fast?", "baseline": baseline, "factors": {"position": list(POSITIONS)}}
        (folder / "bench-recipe.yaml").write_text(json.dumps(recipe))
        (folder / "bench-study.yaml").write_text(json.dumps(question))

    def run(self) -> None:
        """Run `ablate run` in an empty directory."""
        self.runs = self.folder / next(self.names)
        words = ["run", "bench-study.yaml", "--recipe", "bench-recipe.yaml", "--runs", str(self.runs)]
        words += ["--data-dir", str(self.source.data_dir.absolute())] if self.source.data_dir else []
        words += [word for file in self.source.plugins for word in ("--plugin", str(file))]
        self.process(python("ablations.cli", *words), cores())

    def loop(self, at_once: int) -> None:
        """Run the script for each trial; running processes share all cores."""
        program = str(Path(__file__).with_name("script.py"))
        commands = [[sys.executable, program, str(one)] for one in self.scripts]
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(partial(self.process, threads=max(1, cores() // at_once)), commands))

    def process(self, command: list[str], threads: int) -> None:
        """Run a process to its end. Raises ValueError with its last line if it fails."""
        run(command, {"OMP_NUM_THREADS": str(threads)}, cwd=self.folder)

    def ours(self) -> tuple[float, float]:
        """Return mean test accuracy, and the total training seconds of all trials."""
        states = [store.trial(self.runs, path.name).state() for path in sorted((self.runs / "trials").iterdir())]
        results = [state.result for state in states if state.result is not None]
        accuracy = fmean(result.metrics["test_accuracy"] or 0.0 for result in results)
        return accuracy, sum(result.train_seconds or 0.0 for result in results)

    def theirs(self) -> float:
        """Return the mean test accuracy of the loop's trials."""
        return fmean(json.loads(one.with_suffix(".result").read_text())["test_accuracy"] for one in self.scripts)


def script(config: Config, base: Path, source: Source) -> Path:
    """Write the settings of one process of the loop, and its images beside them; return the path of the former."""
    data = load(config, source.data_dir)
    arrays = {
        f"{part}_{name}": getattr(getattr(data, part), name).numpy()
        for part in ("train", "val", "test")
        for name in ("pixels", "labels")
    }
    np.savez(base.with_suffix(".npz"), **arrays)
    settings = {
        "model": plain_arguments(config),
        "images": str(base.with_suffix(".npz")),
        "out": str(base.with_suffix(".result")),
        "mean": data.mean.flatten().div(255).tolist(),
        "std": data.std.flatten().div(255).tolist(),
        "pad": config.options.get("augment.pad", 0),
        "warmup_steps": round(config.warmup * config.steps),
        "evaluate": evaluation_steps(config),
        "bf16": config.precision == "bf16",
        "device": device_of(config),
        **{name: getattr(config, name) for name in ("seed", "steps", "batch", "lr", "weight_decay", "clip_norm")},
        "label_smoothing": config.label_smoothing,
    }
    base.with_suffix(".json").write_text(json.dumps(settings))
    return base.with_suffix(".json")
