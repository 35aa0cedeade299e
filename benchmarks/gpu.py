"""The speed of one GPU, as ratios to timm and to our eager steps: `make bench-gpu`.

Each figure is a JSON file in the folder, and is not measured again. The page is a table of all figures. `--device cpu
--small` runs the code on a CPU in seconds, as a test that measures nothing.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from pydantic_core import to_jsonable_python

from ablations.provenance import environment_record
from ablations.trainables.vit.planned import with_steps
from ablations.trainables.vit.training import environment
from benchmarks import loop, startup
from benchmarks.floor import peak
from benchmarks.gpu_experiments import EXPERIMENTS, TOKENS, low_weights
from benchmarks.process import Source
from benchmarks.rivals import CHECKED, Rival, checked_sides, in_float32, sensitive_config
from benchmarks.timing import Call, interleaved_seconds, ratios, repeat, spread
from commonfloor.messages import reason
from results import store
from vitcore import Config
from vitcore.analysis.cost import measure
from vitcore.runtime.compile_cache import LONG
from vitcore.runtime.device import compute_settings, device_of, hardware
from vitcore.runtime.memory import release
from vitcore.training.state import Training
from vitcore.training.step_graph import WARM_UP, capturable, capture, on_side_stream

Json = dict[str, Any]
RANDOM = Source(random=True)
EAGER = {"compile": False, "cuda_graph": "off"}


@dataclass(frozen=True)
class Scale:
    """The amount of work."""

    device: str
    small: bool  # tiny models and batches, for a CPU
    folder: Path  # for files that a figure keeps between two calls
    deadline: float  # of the monotonic clock

    @property
    def tuned(self) -> str:
        """The name of timm's fastest step: on a GPU compiled, with the fused AdamW."""
        return "timm compiled" if self.device == "cuda" else "timm"

    def config(self, **settings: Any) -> Config:
        """Return a config for random images, of CIFAR-10's size unless set."""
        common: Json = {"data": "cifar10", "pool": "gap", "augment": "flip-crop", "precision": "bf16", "steps": 10_000}
        tiny: Json = {"width": 16, "depth": 2, "heads": 2, "batch": 8, "compile": False, "precision": "float32"}
        tiny["image_size"] = 32
        return Config(**(common | settings | {"device": self.device} | (tiny if self.small else {})))


def ours(config: Config, **how: Any) -> Training:
    """Return our training on random images. how: settings that differ from the config's."""
    return Training(config.model_copy(update=how), RANDOM.images(config))


def captured_step(tuned: str, config: Config) -> Any:
    """Return timm's compiled step as one CUDA graph, always on one batch of images and at one learning rate."""
    timm = Rival(tuned, config, RANDOM.images(config))
    device, step = timm.source.device, partial(timm.update, timm.source.batch())
    for group in timm.optimizer.param_groups:
        group["lr"] = torch.full((), 1e-4, device=device)
    if device.type == "cpu":
        return SimpleNamespace(advance=step)
    with on_side_stream(device):
        repeat(step, WARM_UP)
    timm.optimizer.zero_grad()
    with capturable(timm.optimizer):
        return SimpleNamespace(advance=capture(step)[0], step=step)  # whose tensors the graph needs


def time_beside(scale: Scale, config: Config, sides: Mapping[str, Callable[[], Any]]) -> Json:
    """Make the sides, warm them up, and return their times by `compare_steps`."""
    with compute_settings(config):
        made = {}
        for name, make in sides.items():  # one compiles before the next is made: PyTorch forgets code of other kernels
            made[name] = make()
            for _ in range(2 if scale.small else WARM_UP + 3):
                made[name].advance()
        return compare_steps(scale, config, made)


def compare_steps(scale: Scale, config: Config, made: Mapping[str, Any]) -> Json:
    """Measure sides in alternation; return seconds per step, and ratios to the first side."""
    calls: dict[str, Call] = {name: one.advance for name, one in made.items()}
    rounds, steps = (2, 1) if scale.small else (5, 20)
    seconds = interleaved_seconds(calls, rounds, steps, torch.device(device_of(config)))
    first = next(iter(seconds))
    return {
        "config": config.model_dump(),
        "seconds_per_step": {name: asdict(spread(own)) for name, own in seconds.items()},
        "ratio": {name: asdict(ratio) for name, ratio in ratios(seconds, first).items()},
        "computed": {name: one.train_step.facts for name, one in made.items() if hasattr(one, "train_step")},
    }


def step_small(scale: Scale) -> Json:
    config = scale.config(width=192, depth=6, heads=3, batch=256)
    checked = in_float32(with_steps(sensitive_config(config), CHECKED))
    checked_sides(checked, RANDOM.images(config), ["timm"])  # raises if losses differ: no comparison then
    return time_beside(scale, config, {
        "ours": lambda: ours(config),
        "ours, uncompiled": lambda: ours(config, compile=False),
        "ours, eager": lambda: ours(config, **EAGER),
        "timm, a plain script": lambda: Rival("timm", config, RANDOM.images(config)),
        "timm compiled and captured": lambda: captured_step(scale.tuned, config),
    })  # fmt: skip


def step_s4(scale: Scale) -> Json:
    config = scale.config(model="S/4", batch=256)
    full = scale.config(model="S/4", batch=256, augment="flip-crop-randaugment", mixup=0.2, drop_path=0.1)
    return time_beside(scale, config, {
        "ours with RandAugment, mixup and drop path": lambda: ours(full),
        "ours without": lambda: ours(config),
        f"{scale.tuned}, without": lambda: Rival(scale.tuned, config, RANDOM.images(config)),
    })  # fmt: skip


def step_tiny(width: int, depth: int, batch: int, scale: Scale) -> Json:
    config = scale.config(width=width, depth=depth, heads=width // 16, batch=batch)
    return time_beside(scale, config, {"ours": lambda: ours(config), "ours, eager": lambda: ours(config, **EAGER)})


def step_large(model: str, batch: int, scale: Scale) -> Json:
    """Measure a step at 224 pixels, with three times a forward pass's FLOPs, also as a share of the GPU's peak."""
    config = scale.config(model=model, batch=batch, augment="none", image_size=224, classes=1000)
    sides: dict[str, Callable[[], Any]] = {"ours": lambda: ours(config)}
    if model == "S/16":
        sides["ours, attention=pinned"] = lambda: ours(config, attention="pinned")
        sides[scale.tuned] = lambda: Rival(scale.tuned, config, RANDOM.images(config))
    measured = time_beside(scale, config, sides)
    rate = 3 * measure(config).flops * config.batch / measured["seconds_per_step"]["ours"]["median"]
    most = peak(config)
    return measured | {"flops_per_second": rate, "share_of_peak": most and rate / most}


def position(tokens: int, scale: Scale) -> Json:
    arms = {kind: scale.config(position=kind, **TOKENS[tokens]) for kind in ("1d", "relative", "relative-bias")}
    return time_beside(scale, arms["1d"], {kind: partial(ours, config) for kind, config in arms.items()})


def input_share(scale: Scale) -> Json:
    kinds = ("none", "flip-crop", "flip-crop-randaugment")
    sides = {name: scale.config(width=192, depth=6, heads=3, batch=256, augment=name) for name in kinds}
    return time_beside(scale, sides["none"], {name: partial(ours, config) for name, config in sides.items()})


def experiment(name: str, scale: Scale) -> Json:
    """Measure the step with a change of gpu_experiments.py beside the step without."""
    changed = EXPERIMENTS[name]
    config = scale.config(**changed.settings)
    if changed.change is low_weights:
        config = config.model_copy(update={"precision": "bf16"})  # on a CPU too
    try:
        with compute_settings(config):
            today, other = changed.pair(name, config)
            return compare_steps(scale, config, {"today": today, name: other})
    except (ValueError, RuntimeError) as error:  # as where a kernel cannot do it
        return {"config": config.model_dump(), "failed": f"{type(error).__name__}: {reason(error)}"}


def study(scale: Scale) -> Json | None:
    """Compare forty trials of 2,000 compiled steps with one timm process per trial, on digits at 32 pixels."""
    config = scale.config(data="digits", image_size=32, width=192, depth=6, heads=3, batch=256, evaluations=2)
    settings = {name: getattr(config, name) for name in config.model_fields_set if name not in ("options", "compile")}
    arms, seeds = (2, 1) if scale.small else (len(loop.GPU_POSITIONS), loop.GPU_SEEDS)
    settings["steps"] = 8 if scale.small else LONG
    ends = scale.deadline if scale.small else scale.deadline - 30  # an interrupted command ends within seconds
    return loop.resumable_bench(settings, scale.folder / "study", ends, arms, seeds)


def start(scale: Scale) -> Json:
    """Measure the time to a process's first step with an empty and with a warm compile cache."""
    config = scale.config(width=192, depth=6, heads=3, batch=256)
    return {"config": config.model_dump(), **to_jsonable_python(startup.bench(config, 1, RANDOM).measured)}


BENCHES: dict[str, tuple[Callable[[Scale], Json | None], str]] = {
    "step-192x6": (step_small, "at least 4.5x a plain timm script, 1.0x timm compiled and captured"),
    "step-s4": (step_s4, "at least 1.4x timm compiled"),
    "step-64": (partial(step_tiny, 64, 4, 64), "at least 7x its eager step"),
    "step-32": (partial(step_tiny, 32, 3, 32), "at least 7x its eager step"),
    "input": (input_share, "at most 5% more than without"),
    "step-s16-224": (partial(step_large, "S/16", 512), "at least 28% of the peak, 1.2x timm compiled"),
    "step-b16-224": (partial(step_large, "B/16", 256), "at least 40% of the peak"),
    "position-65": (partial(position, 65), "at most 1.1x the step of 1d"),
    "position-197": (partial(position, 197), "at most 1.15x the step of 1d"),
    "study": (study, "at least 6x one timm process a trial, GPU busy 90%"),
    "start": (start, "a warm cache: at most 25% of the cold time"),
    **{f"experiment-{name}": (partial(experiment, name), "below 1: it would pay") for name in EXPERIMENTS},
}


def page(folder: Path) -> str:
    """Return the page: a table of the measured figures, and the names of the others."""
    figures = {name: store.read_json(folder / f"{name}.json") for name in BENCHES if (folder / f"{name}.json").exists()}
    machine = next(iter(figures.values()))["machine"]
    versions = ", ".join(f"{name} {machine[name]}" for name in ("torch", "timm", "python") if name in machine)
    lines = [
        f"# {machine['device']}\n",
        f"{versions}; code {machine['revision'] or machine['code']}; made by `make bench-gpu`. Medians [quartiles] of "
        "turns in one process; a ratio is a side's time over the first side's.\n",
        "| figure | side | ms (a step; a study or start as a whole) | ratio | goal |\n|---|---|--:|--:|---|",
    ]
    for name, figure in figures.items():
        lines += rows(name, figure)
    missing = [name for name in BENCHES if name not in figures]
    if missing:
        lines.append(f"\nNot measured yet: {', '.join(missing)}.")
    return "\n".join(lines) + "\n"


def rows(name: str, figure: Json) -> list[str]:
    """Return a line per side. The first line has the figure's name and goal."""
    if "failed" in figure:
        return [f"| {name} | | | | {figure['failed'].replace('|', '/')} |"]
    seconds, goal = figure.get("seconds_per_step") or figure["seconds"], BENCHES[name][1]
    if figure.get("share_of_peak"):
        goal += f"; {figure['share_of_peak']:.1%} of the peak"
    if figure.get("busy"):
        goal += f"; GPU busy {figure['busy']:.0%}"
    lines = []
    for side, took in seconds.items():
        ratio = values_text(figure["ratio"][side], 1) + "x" if side in figure["ratio"] else ""
        lines.append(f"| {name} | {side} | {values_text(took, 1000)} | {ratio} | {goal} |")
        name = goal = ""
    return lines


def values_text(values: Json, scale: float) -> str:
    numbers = (scale * values[key] for key in ("median", "low", "high"))
    median, low, high = (f"{number:.3g}" if number < 1000 else f"{number:,.0f}" for number in numbers)
    return f"{median} [{low}, {high}]"


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the JSON files")
    parser.add_argument("--page", type=Path, help="the Markdown file, or a folder: then it has the GPU's name")
    parser.add_argument("--seconds", type=float, default=540, help="no figure begins that is unlikely to end by then")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="to see that it works")
    parser.add_argument("--only", nargs="*", choices=[*BENCHES, "experiments"], default=[*BENCHES])
    asked = parser.parse_args(words)
    scale = Scale(asked.device, asked.small, asked.out, time.monotonic() + asked.seconds)
    asked.out.mkdir(parents=True, exist_ok=True)
    longest, failed = 0.0, False
    for name in BENCHES:
        wanted = name in asked.only or (name.startswith("experiment-") and "experiments" in asked.only)
        if not wanted or (asked.out / f"{name}.json").exists() or time.monotonic() + longest > scale.deadline:
            continue
        began = time.monotonic()
        try:
            done = run_benchmark(name, scale)
            outcome = f"{time.monotonic() - began:.0f} s" if done else "goes on at the next call"
            print(f"{name}: {outcome}", flush=True)
        except Exception as error:  # the others are worth their time; the next call tries it again
            failed = True
            print(f"{name}: {type(error).__name__}: {reason(error)}", flush=True)
        release()
        longest = max(longest, time.monotonic() - began)
    if not any((asked.out / f"{name}.json").exists() for name in BENCHES):
        return
    text = page(asked.out)
    print(text)
    if asked.page:
        slug = "-".join(hardware(scale.config()).lower().split()).replace("/", "-")
        target = asked.page / f"{slug}.md" if asked.page.suffix != ".md" else asked.page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    if failed:
        sys.exit(1)


def run_benchmark(name: str, scale: Scale) -> bool:
    """Measure a figure and write its file; return False if it continues at the next call."""
    measured = BENCHES[name][0](scale)
    if measured is None:
        return False
    machine = environment_record(environment(scale.config()), {})
    content = {"schema": store.SCHEMA, "figure": name, "machine": machine, **measured}
    store.write_json(scale.folder / f"{name}.json", content)
    return True


if __name__ == "__main__":
    main()
