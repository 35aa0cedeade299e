"""The benchmark of a small study: `ablate run` against the usual loop, which starts one process per trial.

The loop runs one or two processes at a time. Both methods train two kinds of position embedding with several seeds.
Images, steps, batches, schedules and evaluations are equal. Wall time is the time from the command to the last result.
It includes the table that `ablate run` prints.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
import torch

from ablations.bench import step
from ablations.bench.process import Source, python, run, statistics
from ablations.bench.result import Result, conditions, counted, text
from ablations.bench.rivals import OURS as VITCORE
from ablations.bench.rivals import side_of
from ablations.bench.timing import Call, Spread, interleaved, ratios, spread
from ablations.execution.machine import cores
from ablations.planning.measure_steps import with_steps
from results import store
from results.store.schemas import Settings
from vitcore.config import Config, merge
from vitcore.data.lookup import pack_of
from vitcore.data.splits import load
from vitcore.interop.convert import blocks_of_timm, timm_arguments
from vitcore.options import ConfigError
from vitcore.runtime.device import computing, device_of
from vitcore.sizes import ARCHITECTURE
from vitcore.training.loop import evaluation_steps

POSITIONS = ("1d", "none")  # the baseline first
OURS, SEQUENTIAL, PAIRED = "ablate run", "one process a trial, in sequence", "one process a trial, two at a time"
AUGMENTS = ("none", "flip-crop")  # supported by the script
GIVEN = ("seed", "steps", "batch", "lr", "weight_decay", "clip_norm", "label_smoothing")  # to the script as they are
PASSED = {  # to the script in another form: as images, evaluations or timm's arguments; or checked by first losses
    *("data", "data_fraction", "data_seed", "val_fraction", "image_size", "channels", "classes", "model"),
    *("warmup", "precision", "augment", "evaluations", "device"),
} | {*ARCHITECTURE} - {"stem"}
FREE = {"threads", "attention", "compile", "cuda_graph"}  # may differ: `ablate run` uses the fastest


@dataclass(frozen=True)
class Measured:
    """The wall times and test accuracies of `ablate run` and of the loops.

    seconds, ratio, test_accuracy: by the name of the method.
    """

    trials: int
    steps: int
    seconds: dict[str, Spread]
    ratio: dict[str, Spread]  # how many times faster `ablate run` is
    training_share: float | None  # of the wall time of `ablate run`; None on a GPU
    test_accuracy: dict[str, float]

    def row(self, side: str) -> dict[str, str]:
        accuracy = self.test_accuracy.get(side)
        return {
            "how": side,
            "wall time": text(self.seconds[side], "{:.1f}") + " s",
            "ours is faster by": text(self.ratio.get(side), "{:.2f}x"),
            "test accuracy": "the same trials" if accuracy is None else f"{accuracy:.1%}",
        }


def bench(settings: Settings, seeds: int, rounds: int, source: Source) -> Result:
    """Measure the wall time of a small study by `ablate run` and by two loops; return the benchmark's result.

    settings: the config of the trials. seeds: per position embedding. rounds: the number of timed turns per method.
    Raises ValueError if the script of the loops cannot do an equal training, or if a process fails.
    """
    how = conditions(Config(**settings), source, rounds, 1)
    arms = [merge(settings, {"position": position}) for position in POSITIONS]
    configs = [Config(**merge(arm, {"seed": seed})) for arm in arms for seed in range(seeds)]
    for config in configs[::seeds]:
        check_alike(config, source)
    with tempfile.TemporaryDirectory(prefix="ablate-bench-") as folder:
        found = measured(Study(Path(folder), settings, configs, source), configs, rounds)
    title = f"{found.trials} trials of {counted(found.steps, 'step')}"
    share = found.training_share
    alone = f" Training alone, on all cores, is {share:.0%} of ours." if share else ""
    return Result("loop", how, found, title, f" in turn, wall time.{alone}", [*map(found.row, found.seconds)])


def measured(study: "Study", configs: Sequence[Config], rounds: int) -> Measured:
    sides: dict[str, Call] = {OURS: study.run, SEQUENTIAL: partial(study.loop, 1), PAIRED: partial(study.loop, 2)}
    wall = interleaved(sides, rounds, 1, torch.device("cpu"))
    accuracy, trained = study.ours()
    workers = min(cores(), len(configs)) if device_of(configs[0]) == "cpu" else None
    return Measured(
        trials=len(configs),
        steps=configs[0].steps,
        seconds={name: spread(own) for name, own in wall.items()},
        ratio=ratios(wall, OURS),
        training_share=workers and trained / workers / float(np.median(wall[OURS])),
        test_accuracy={OURS: accuracy, SEQUENTIAL: study.theirs()},
    )


def check_alike(config: Config, source: Source) -> None:
    """Check that the script of the loops trains as `ablate run` does, and can hold the images in memory.

    Raises ConfigError if the data are a pack, or if the script lacks a setting. Raises ValueError if first losses
    differ.
    """
    if pack_of(config.data, source.data_dir) is not None:
        raise ConfigError(f"data={config.data}: a pack, streamed from its shards: the script has images in memory")
    if config.augment not in AUGMENTS:
        raise ConfigError(f"augment={config.augment}: the script has {' and '.join(AUGMENTS)}")
    refuse_unknown(config)
    short = with_steps(step.telling(config), step.CHECKED)
    with computing(config):
        data = source.images(short)
        if config.precision != "float32":
            step.check_in_float32(short, data)
        step.check_equal(short, {name: side_of(name, short, data) for name in (VITCORE, "timm")})


def refuse_unknown(config: Config) -> None:
    """Check that each setting which the script of the loops lacks has its default value.

    Raises ConfigError if a setting has another value.
    """
    defaults = {name: field.default for name, field in Config.model_fields.items()}
    defaults |= Config(**config.model_dump(exclude={"options"})).options
    known = {*GIVEN, *PASSED, *FREE, "options", "augment.pad"}
    for name, value in {**dict(config), **config.options}.items():
        if name not in known and value != defaults[name]:
            raise ConfigError(f"{name}={value}: the script has {defaults[name]}")


class Study:
    """A small study as files on disk, for `ablate run` and for the script of the loops."""

    def __init__(self, folder: Path, settings: Settings, configs: Sequence[Config], source: Source) -> None:
        self.folder, self.source = folder, source
        self.scripts = [script(config, folder / f"{number}", source) for number, config in enumerate(configs)]
        write_study(folder, settings, POSITIONS, len(configs) // len(POSITIONS))

    def run(self) -> None:
        """Train all trials with `ablate run`, in an empty run directory."""
        self.runs = Path(tempfile.mkdtemp(dir=self.folder))
        words = ["run", "bench-study.yaml", "--recipe", "bench-recipe.yaml", "--runs", str(self.runs)]
        words += ["--data-dir", str(self.source.data_dir.absolute())] if self.source.data_dir else []
        words += [word for file in self.source.plugins for word in ("--plugin", file)]
        self.process(python("ablations.cli", *words), cores())

    def loop(self, at_once: int) -> None:
        """Train all trials with the script, one process per trial.

        at_once: the number of processes at a time, which share all cores.
        """
        program = str(Path(__file__).with_name("script.py"))
        commands = [[sys.executable, program, str(one)] for one in self.scripts]
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(partial(self.process, threads=max(1, cores() // at_once)), commands))

    def process(self, command: list[str], threads: int) -> None:
        """Run a command until it ends, with `threads` threads.

        Raises ValueError, with the last line of its standard error, if the command fails.
        """
        run(command, {"OMP_NUM_THREADS": str(threads)}, cwd=self.folder)

    def ours(self) -> tuple[float, float]:
        """Return the mean test accuracy and the total training seconds of the trials of `ablate run`."""
        states = [store.trial(self.runs, path.name).state() for path in sorted((self.runs / "trials").iterdir())]
        results = [state.result for state in states if state.result is not None]
        accuracy = fmean(result.metrics["test_accuracy"] or 0.0 for result in results)
        return accuracy, sum(result.train_seconds or 0.0 for result in results)

    def theirs(self) -> float:
        """Return the mean test accuracy of the trials that the script trained last."""
        return fmean(json.loads(one.with_suffix(".result").read_text())["test_accuracy"] for one in self.scripts)


def write_study(folder: Path, settings: Settings, positions: Sequence[str], seeds: int) -> None:
    """Write the study and the recipe that `ablate run` reads.

    positions: kinds of position embedding, the baseline first.
    """
    recipe = {"description": "Bench.", "config": dict(settings), "seeds": seeds}
    study = {
        "question": "How fast?",
        "baseline": {"position": positions[0]},
        "factors": {"position": list(positions)},
    }
    (folder / "bench-recipe.yaml").write_text(json.dumps(recipe))
    (folder / "bench-study.yaml").write_text(json.dumps(study))


def script(config: Config, base: Path, source: Source) -> Path:
    """Write the settings of one trial and its images for the script; return the path of the settings.

    base: the path of both files without a suffix.
    """
    data = load(config, source.data_dir)
    arrays = {
        f"{part}_{name}": getattr(getattr(data, part), name).numpy()
        for part in ("train", "val", "test")
        for name in ("pixels", "labels")
    }
    np.savez(base.with_suffix(".npz"), **arrays)
    blocks = blocks_of_timm(config)  # classes, for which timm's defaults serve
    mean, std = statistics(data)
    settings = {
        "model": {name: value for name, value in timm_arguments(config).items() if name not in blocks},
        "mean": mean,
        "std": std,
        "pad": config.options.get("augment.pad", 0),
        "warmup_steps": round(config.warmup * config.steps),
        "evaluate": evaluation_steps(config),
        "bf16": config.precision == "bf16",
        "device": device_of(config),
        **{name: getattr(config, name) for name in GIVEN},
    }
    base.with_suffix(".json").write_text(json.dumps(settings))
    return base.with_suffix(".json")
