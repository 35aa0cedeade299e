"""The benchmark of a small study: `ablate run` against the usual loop of processes, which train one trial each.

Each method trains two kinds of position embedding with several seeds, with the same images, batches, schedules and
evaluations. Wall time runs from the command to the last result or, for `ablate run`, to the table.
"""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from ablations.machine import cores
from ablations.trainables.vit.planned import with_steps
from benchmarks.process import Source, environment, python_command, run, statistics
from benchmarks.result import Result, column, conditions
from benchmarks.rivals import CHECKED, checked_sides, sensitive_config
from benchmarks.timing import Call, interleaved_seconds, ratios, spread
from commonfloor.options import ConfigError
from results import store
from results.store.schemas.base import Settings
from results.units import amount_text
from vitcore.config import Config, merge
from vitcore.data.pack import find_pack
from vitcore.data.splits import load
from vitcore.interop.timm_vit import timm_arguments
from vitcore.runtime.device import compute_settings, device_of
from vitcore.sizes import ARCHITECTURE
from vitcore.training.evaluation import evaluation_steps

POSITIONS = ("1d", "none")  # the baseline's comes first
OURS, SEQUENTIAL, PAIRED = "ablate run", "one process a trial, in sequence", "one process a trial, two at a time"
# The baseline comes first.
GPU_POSITIONS = ("1d", "none", "2d", "sincos2d", "relative", "relative-bias", "rope2d", "alibi2d")
GPU_SEEDS = 5
GPU_OURS, GPU_SCRIPT = "ours, a trial", "one timm process a trial"
SAMPLED = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-l", "1")
GRACE = 90  # seconds that an interrupted command has for its last checkpoints
# Arguments of `ablate`. `write_study` writes both files.
RUN = ("run", "bench-study.yaml", "--recipe", "bench-recipe.yaml", "--runs")  # a run directory follows
AUGMENTS = ("none", "flip-crop")  # augmentations that the script supports
BLOCKS = ("block_fn", "norm_layer", "attn_layer", "mlp_layer", "act_layer")  # classes: the script uses timm's defaults
GIVEN = ("seed", "steps", "batch", "lr", "weight_decay", "clip_norm", "label_smoothing")  # passed to the script as is
PASSED = {  # passed to the script as images, evaluations or timm's arguments, or checked by the first losses
    *("data", "data_fraction", "data_seed", "val_fraction", "image_size", "channels", "classes", "model"),
    *("warmup", "precision", "augment", "evaluations", "device"),
} | {*ARCHITECTURE} - {"stem"}
FREE = {"threads", "attention", "compile", "cuda_graph"}  # may differ, because `ablate run` uses the fastest choice


def bench(settings: Settings, seeds: int, rounds: int, source: Source) -> Result:
    """Measure the wall time of a small study with `ablate run` and with two loops.

    seeds: number of seeds per arm. Raises ValueError if the loops cannot train in the same way or a process fails.
    """
    how = conditions(Config(**settings), source, rounds, 1)
    changes = [{"position": position, "seed": seed} for position in POSITIONS for seed in range(seeds)]
    configs = [Config(**merge(settings, change)) for change in changes]
    for config in configs[::seeds]:
        check_alike(config, source)
    with tempfile.TemporaryDirectory(prefix="ablate-bench-") as name:
        write_study(Path(name), settings, POSITIONS, seeds)
        scripts = [script(config, Path(name, f"{number}")) for number, config in enumerate(configs)]
        sides: dict[str, Call] = {
            OURS: lambda: run_study(Path(name)),
            SEQUENTIAL: lambda: run_scripts(scripts, 1),
            PAIRED: lambda: run_scripts(scripts, 2),
        }
        wall = interleaved_seconds(sides, rounds, 1, torch.device("cpu"))
        ours = [store.read_json(file) for file in Path(name).glob("runs-*/trials/*/result.json")]
        theirs = [json.loads(file.with_suffix(".result").read_text())["test_accuracy"] for file in scripts]
    seconds, ratio, steps = {name: spread(own) for name, own in wall.items()}, ratios(wall, OURS), configs[0].steps
    # PAIRED has no entry, because it trains the trials of SEQUENTIAL
    accuracy = {OURS: fmean(result["metrics"]["test_accuracy"] for result in ours), SEQUENTIAL: fmean(theirs)}
    measured = {
        "trials": len(configs),
        "steps": steps,
        "seconds": seconds,
        "ratio": ratio,
        "test_accuracy": accuracy,
    }
    columns = {
        "wall time": column(seconds, "{:.1f}", unit=" s"),
        "ours is faster by": column(ratio, "{:.2f}x"),
        "test accuracy": {name: f"{value:.1%}" for name, value in accuracy.items()} | {PAIRED: "the same trials"},
    }
    title = f"{amount_text(len(configs), 'trial')} of {amount_text(steps, 'step')}"
    return Result("loop", how, measured, title, " in turn, wall time.", "how", columns)


def check_alike(config: Config, source: Source) -> None:
    """Raise ValueError unless the script can train as the config says and timm's first losses equal this suite's."""
    if find_pack(config.data, None) is not None:
        raise ConfigError(f"data={config.data}: a pack, streamed from its shards: the script has images in memory")
    if config.augment not in AUGMENTS:
        raise ConfigError(f"augment={config.augment}: the script has {' and '.join(AUGMENTS)}")
    plain = Config(**{name: getattr(config, name) for name in (*GIVEN, *PASSED, *FREE)})
    theirs = {**dict(plain), **plain.options}
    for name, value in {**dict(config), **config.options}.items():
        if name not in ("options", "augment.pad") and value != theirs[name]:
            raise ConfigError(f"{name}={value}: the script has {theirs[name]}")
    with compute_settings(config):
        short = with_steps(sensitive_config(config), CHECKED)
        _, left_out = checked_sides(short, source.images(short), ["timm"])
    if "timm" in left_out:
        raise ConfigError(left_out["timm"])


def run_study(folder: Path) -> None:
    """Train all trials of the study in `folder` with `ablate run`, in a new run directory."""
    words = [*RUN, tempfile.mkdtemp(prefix="runs-", dir=folder)]
    run(python_command("ablations.cli", *words), {"OMP_NUM_THREADS": str(cores())}, cwd=folder)


def run_scripts(scripts: Sequence[Path], at_once: int) -> None:
    """Train the trials whose settings files are `scripts`, with `at_once` concurrent processes that share all cores."""
    own = {"OMP_NUM_THREADS": str(max(1, cores() // at_once))}
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda settings: run(trial(settings), own), scripts))


def write_study(folder: Path, settings: Mapping[str, object], positions: Sequence[str], seeds: int) -> None:
    """Write the study and the recipe that `ablate run` reads. positions: of all arms; the baseline's comes first."""
    study = {"question": "How fast?", "baseline": {"position": positions[0]}, "factors": {"position": [*positions]}}
    recipe = {"description": "Bench.", "config": dict(settings), "seeds": seeds}
    (folder / "bench-study.yaml").write_text(json.dumps(study))
    (folder / "bench-recipe.yaml").write_text(json.dumps(recipe))


def trial(settings: Path) -> list[str]:
    """Return the command that trains one trial with the script. settings: the file that `script` wrote."""
    return [sys.executable, str(Path(__file__).with_name("script.py")), str(settings)]


def script(config: Config, base: Path) -> Path:
    """Write a trial's settings (base.json) and images (base.npz) for the script; return the path of the settings."""
    data = load(config, None)
    arrays = {
        f"{part}_{name}": getattr(getattr(data, part), name).numpy()
        for part in ("train", "val", "test")
        for name in ("pixels", "labels")
    }
    np.savez(base.with_suffix(".npz"), **arrays)
    mean, std = statistics(data)
    settings = {
        "model": {name: value for name, value in timm_arguments(config).items() if name not in BLOCKS},
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


def resumable_bench(
    settings: Mapping[str, Any], folder: Path, deadline: float, arms: int, seeds: int
) -> dict[str, Any] | None:
    """Continue a study in `folder` until the deadline (monotonic clock); return its figure, None if unfinished.

    `ablate run` trains one seed at a time. Before each seed, one process of the script trains a trial of the baseline.
    At the deadline the command is interrupted, and resumes at the next call. Raises ValueError as `bench` does.
    """
    file, baseline = folder / "state.json", Config(**merge(settings, {"position": GPU_POSITIONS[0]}))
    if not file.exists():
        check_alike(baseline, Source())
        folder.mkdir(parents=True, exist_ok=True)
        write_study(folder, settings, GPU_POSITIONS[:arms], seeds=1)
        store.write_json(file, asdict(State()))
    state = State(**store.read_json(file))
    for number in range(1, seeds + 1):
        if len(state.script) < number:
            settings_file = script(Config(**merge(dict(baseline), {"seed": number - 1})), folder / f"{number}")
            seconds, done = timed(trial(settings_file), deadline)
            if not done:
                return None
            state.script.append(seconds)
            store.write_json(file, asdict(state))
        if state.seeds < number:
            command = python_command("ablations.cli", *RUN, "runs", "--seeds", str(number))
            with busy() as samples:
                seconds, done = timed(command, deadline, folder)
            state.ours += [0.0] * (number - len(state.ours))
            state.ours[-1] += seconds
            state.busy += samples
            state.seeds = number if done else state.seeds
            store.write_json(file, asdict(state))
            if not done:
                return None
    ours, scripts = np.array(state.ours[:seeds]) / arms, np.array(state.script)
    return {
        "config": baseline.model_dump(),
        "trials": arms * seeds,
        "seconds": {GPU_OURS: asdict(spread(ours)), GPU_SCRIPT: asdict(spread(scripts))},
        "ratio": {GPU_SCRIPT: asdict(spread(scripts / ours.mean()))},
        "busy": fmean(state.busy) / 100 if state.busy else None,
    }


@dataclass
class State:
    """The measurements of `resumable_bench` so far."""

    ours: list[float] = field(default_factory=list)  # seconds of `ablate run` for each seed
    script: list[float] = field(default_factory=list)  # seconds of each script
    busy: list[int] = field(default_factory=list)  # the GPU's use in percent
    seeds: int = 0  # that are trained


def timed(command: list[str], deadline: float, folder: Path | None = None) -> tuple[float, bool]:
    """Run a command until it ends, or interrupt it at the deadline; return its seconds, and whether it ended.

    Raises ValueError with its last line if it fails.
    """
    began, out, err = time.monotonic(), subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(command, env=environment(), cwd=folder, stdout=out, stderr=err, text=True) as process:
        try:
            _, errors = process.communicate(timeout=max(0.0, deadline - began))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=GRACE)
            process.kill()  # does nothing once it has ended
            return time.monotonic() - began, False
    if process.returncode:
        raise ValueError(f"{command[-1]}: {(errors.strip().splitlines() or ['killed'])[-1]}")
    return time.monotonic() - began, True


@contextmanager
def busy() -> Iterator[list[int]]:
    """Yield a list that afterwards holds the GPU's use in percent, once a second; empty without nvidia-smi."""
    samples: list[int] = []
    if not shutil.which(SAMPLED[0]):
        yield samples
        return
    with subprocess.Popen(SAMPLED, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield samples
        finally:
            process.terminate()
            printed, _ = process.communicate()
            samples += [int(line) for line in printed.split() if line.isdigit()]
