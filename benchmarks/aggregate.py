"""The time of the reading commands over many trials: `make bench-aggregate`. Each runs in a new process.

The floor beside them is a Python that imports the third-party packages of the command, and does nothing. Nothing is
trained: results are drawn.
"""

import resource
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from unittest import mock

import synthetic

from ablations import provenance
from ablations.planning.prepare import prepare
from ablations.study.design import Design
from ablations.study.reading import read_recipe, read_study

STUDY = """
question: How long does a table take?
baseline: {{position: 1d}}
factors: {{position: [none, 1d, 2d, relative]}}
curves:
  lr: {rates}
  weight_decay: {decays}
"""
REPEATS = 5
FLOOR = {  # command: its third-party packages
    "list": "typer, pydantic, yaml",
    "status": "typer, pydantic, rich.console",
    "table": "typer, pydantic, numpy, scipy.special",
    "plan": "typer, pydantic, yaml, numpy, scipy.special",
    "new plan": "typer, pydantic, yaml, numpy, scipy.special, torch",  # in an empty run directory
}
SHAPES = ((1, 5, 5), (10, 5, 5), (25, 20, 5), (5, 10, 50))  # learning rates, weight decays, seeds


def write_runs(runs: Path, study: Path, seeds: int) -> int:
    """Write a run directory in which every planned trial is finished; return their number."""
    design = Design(read_study(str(study)), read_recipe("digits"), {})
    plan = prepare(design, runs, seeds, code=provenance.code_digest({}))
    synthetic.write(runs, plan.content())
    return sum(len(arm.trials) for arm in plan.arms)


def seconds(*command: str) -> tuple[float, float]:
    """Return wall and CPU seconds of a command, the minimum of REPEATS, since other processes only add."""
    clock, cpu = [], []
    for _ in range(REPEATS):
        begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
        clock.append(time.perf_counter() - begun)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime)
    return min(clock), min(cpu)


def main() -> None:
    head = f"{'trials':>7} {'arms':>6} {'seeds':>6}  {'command':8} {'seconds':>7} {'of CPU':>7} {'floor':>7}"
    print(f"{head}   (least of {REPEATS}; bare Python {seconds('-c', 'pass')[0]:.2f})")
    with tempfile.TemporaryDirectory() as name, mock.patch("os.fsync"):
        folder = Path(name)
        show(0, 0, 0, "list")
        for rates, decays, seeds in SHAPES:
            study, runs = folder / f"many-{4 * rates * decays}.yaml", folder / f"runs-{rates}-{decays}-{seeds}"
            values = [0.0001 * (i + 1) for i in range(rates)], [0.01 * (i + 1) for i in range(decays)]
            study.write_text(STUDY.format(rates=values[0], decays=values[1]))
            trials = write_runs(runs, study, seeds)
            for command in ("table", "status", "plan", "new plan"):
                there = folder / "nothing" if command == "new plan" else runs
                more = ["--seeds", str(seeds)] if "plan" in command else []
                show(trials, 4 * rates * decays, seeds, command, str(study), "--runs", str(there), *more)


@cache
def import_seconds(command: str) -> float:
    return seconds("-c", f"import {FLOOR[command]}")[0]


def show(trials: int, arms: int, each: int, command: str, *words: str) -> None:
    clock, cpu = seconds("-m", "ablations.cli", command.split()[-1], *words)
    print(
        f"{trials:7,} {arms:6,} {each:6}  {command:8} {clock:7.2f} {cpu:7.2f} {import_seconds(command):7.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
