"""Seeds of one config trained as one, beside one after the other in this process, in `ablate run`, and in a loop.

The trials are the same on all sides. As one and one after the other are timed from the images on the device to the
last test; processes, ours and the loop that people write, from their command on: what they import is theirs.
"""

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from ablations.bench_clock import FEW, Call, ends, interleaved, spread
from ablations.bench_loop import SEQUENTIAL, Study, check_alike
from ablations.bench_process import Source
from ablations.bench_step import CHECKED, telling
from ablations.fused_pace import ALONE, FUSED, beside
from ablations.probing import with_steps
from vitcore.config import Config, merge
from vitcore.device import computing, torch_device
from vitcore.fused import refuse, together, train_fused, unequal_as_declared, unfit
from vitcore.options import ConfigError
from vitcore.run import Memory, Outcome
from vitcore.train import train

Json = dict[str, Any]


def bench(settings: Mapping[str, Any], members: int, rounds: int, steps: int, source: Source) -> Json:
    """`steps` steps a round, then whole trainings.

    Raises ValueError where they cannot be trained as one, or the first steps' losses are not those alone, with why.
    """
    configs = [Config(**merge(settings, {"seed": seed})) for seed in range(members)]
    refuse(configs)
    check_alike(configs[0], source)
    if why := unfit(configs[0], source.data_dir):
        raise ConfigError(f"--fused {members}: {why}")
    images = together(configs, source.data_dir)
    with computing(configs[0]):
        if why := unequal_as_declared([with_steps(telling(config), CHECKED) for config in configs], images, CHECKED):
            raise ConfigError(f"--fused {members}: {why}")
    step = beside(configs, images, turns := max(rounds, FEW), steps)
    with tempfile.TemporaryDirectory(prefix="ablate-bench-") as folder:
        study = Study(Path(folder), settings, configs, source, [configs[0].position])
        accuracy: dict[str, float] = {}
        sides: dict[str, Call] = {
            FUSED: partial(as_one, configs, source, accuracy),
            ALONE: partial(one_by_one, configs, source, accuracy),
            **{command(how): partial(by_command, study, how, accuracy) for how in ways(members)},
            SEQUENTIAL: partial(study.loop, 1),
        }
        seconds = interleaved(sides, rounds, 1, torch_device(configs[0]))
        accuracy[SEQUENTIAL] = study.theirs()
    return {
        "trials": members,
        "steps": configs[0].steps,
        "step": {
            "rounds": turns,
            "low_and_high": ends(turns),
            "seconds": {name: spread(own) for name, own in step.items()},
            "ratio": spread(step[ALONE] / step[FUSED]),
        },
        "seconds": {name: spread(own) for name, own in seconds.items()},
        "ratio": {ALONE: spread(seconds[ALONE] / seconds[FUSED])},  # of one kind: processes have imports besides
        "test_accuracy": accuracy,
    }


def as_one(configs: Sequence[Config], source: Source, accuracy: dict[str, float]) -> None:
    runs = [Memory() for _ in configs]
    accuracy[FUSED] = mean(train_fused(configs, runs, data_dir=source.data_dir, checkpoint_seconds=60))


def one_by_one(configs: Sequence[Config], source: Source, accuracy: dict[str, float]) -> None:
    accuracy[ALONE] = mean([train(config, data_dir=source.data_dir, checkpoint_seconds=60) for config in configs])


def ways(members: int) -> list[list[str]]:
    """Of a whole run: in a process, in several, of which memory allows so many on a GPU, and in one as one.

    The last with its probe, which may say that it does not pay.
    """
    alone = ["--fuse", "off", "--jobs"]
    return [[*alone, "1"], [*alone, str(members)], ["--fuse", str(members), "--jobs", "1"]]


def command(how: Sequence[str]) -> str:
    return f"ablate run {' '.join(how)}"


def by_command(study: Study, how: Sequence[str], accuracy: dict[str, float]) -> None:
    study.run(*how)
    accuracy[command(how)] = study.ours()[0]


def mean(outcomes: Sequence[Outcome | Exception]) -> float:
    """Test accuracy. Raises what a training raised, ConfigError where one diverged."""
    found = []
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
        if outcome.status != "finished":
            raise ConfigError(f"--fused: a trial {outcome.status}")
        found.append(outcome.metrics["test_accuracy"])
    return fmean(found)
