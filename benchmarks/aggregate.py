"""The time of the reading commands over many trials: `make bench-aggregate`. Each runs in a new process.

Nothing is trained: results are drawn.
"""

import resource
import subprocess
import sys
import tempfile
import time
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


def show(shape: str, command: str, *words: str) -> None:
    wall, cpu = seconds("-m", "ablations.cli", command, *words)
    print(f"{shape:48} {command:8} {wall:7.2f} {cpu:7.2f}", flush=True)


def main() -> None:
    print(f"{'':48} {'command':8} {'seconds':>7} {'of CPU':>7}   (least of {REPEATS})")
    with tempfile.TemporaryDirectory() as name, mock.patch("os.fsync"):
        folder = Path(name)
        show("", "list")
        for rates, decays, seeds in SHAPES:
            arms = 4 * rates * decays
            study = folder / f"many-{arms}.yaml"
            runs = folder / f"runs-{rates}-{decays}-{seeds}"
            learning_rates = [0.0001 * (i + 1) for i in range(rates)]
            study.write_text(STUDY.format(rates=learning_rates, decays=[0.01 * (i + 1) for i in range(decays)]))
            shape = f"{write_runs(runs, study, seeds):,} trials, {arms} arms, {seeds} seeds"
            for command in ("table", "status"):
                show(shape, command, str(study), "--runs", str(runs))
            show(shape, "plan", str(study), "--runs", str(runs), "--seeds", str(seeds))
            show(f"{shape}, none trained", "plan", str(study), "--runs", str(folder / "nothing"), "--seeds", str(seeds))


if __name__ == "__main__":
    main()
