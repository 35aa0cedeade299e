"""Whether trials pay as one on this device: their steps beside those of one after the other, and whether they agree."""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ablations import faults, fusing, paces
from ablations.bench_clock import Call, Seconds, gathered, spread, timed, turns
from ablations.paces import Device
from ablations.probing import with_steps
from ablations.provenance import versions
from ablations.sharing import BUSY
from results import store
from vitcore.config import Config
from vitcore.data import Data
from vitcore.device import computing, device_of, hardware, torch_device
from vitcore.fused import Group, Member, refuse, together, unfit
from vitcore.measure import measure
from vitcore.train import Training

Json = dict[str, Any]
ROUNDS, STEPS, WARM_UP = 3, 10, 3
FEWEST = 2  # rounds that say anything
SECONDS = 30.0  # that a probe takes, besides loading the images
CHECK_STEPS = 16  # what the check in float64 takes, in steps of one trial
FUSED, ALONE = "as one", "one after the other"


class OutOfTime(Exception):
    """A probe's seconds are spent."""


@dataclass(frozen=True)
class Verdict:
    """Whether some trials are to be trained as one: why not, "" where they are. ratio: None where none was measured."""

    why: str
    ratio: float | None = None


def verdict(configs: Sequence[Config], runs: Path, data_dir: Path | None, code: str) -> Verdict:
    """Of these trials, here. Measured once a device, and filed.

    `code`: digest of the sources and the plugins. What kept it from being measured is told, not filed: it may pass.
    Raises what leaves the device lost.
    """
    device, key = filed_under(configs)
    known = paces.measured(runs, device.name, paces.FUSED).get(key)
    if known is None or any(known.get(name) != value for name, value in of(code).items()):
        began = time.monotonic()
        try:
            found = probe(configs, data_dir)
        except OutOfTime as error:
            return Verdict(str(error))
        except Exception as error:  # whatever a part meets under vmap, or memory: they are trained alone
            if faults.classify(error).fatal:
                raise
            return Verdict(faults.line(error))
        known = file(configs, runs, code, {"seconds": time.monotonic() - began, **found})
    return Verdict(str(known["why"]), known["ratio"])


def file(configs: Sequence[Config], runs: Path, code: str, found: Json) -> Json:
    """A verdict with its `why` and `ratio`, for whoever asks next of as many on such a device."""
    device, key = filed_under(configs)
    filed = {**of(code), "when": store.now(), **found}
    paces.write(runs, device, paces.FUSED, {key: filed})
    return filed


def filed_under(configs: Sequence[Config]) -> tuple[Device, str]:
    device = Device(device_of(configs[0]) == "cuda", hardware(configs[0]))
    return device, fusing.key(fusing.kin(configs[0].model_dump()), len(configs))


def of(code: str) -> Json:
    """What a verdict holds for."""
    return {"code": code, "versions": versions()}


def probe(configs: Sequence[Config], data_dir: Path | None, seconds: float = SECONDS) -> Json:
    """How many times as fast they are as one, and why they are not to be trained so ("": they are).

    Raises OutOfTime where the seconds were too few, for a machine may be less busy another time; what a part, its data
    or the device raises of a step.
    """
    flops = 3 * measure(configs[0])["flops"] * configs[0].batch
    if flops > BUSY:
        return {"ratio": None, "why": f"a step of {flops:.2g} FLOPs keeps a device busy alone"}
    refuse(configs)
    images = together(configs, data_dir)
    end = time.monotonic() + seconds
    one = step_seconds(configs[0], images[0])
    if one * (CHECK_STEPS + 2 * len(configs) * (WARM_UP + STEPS)) > seconds:
        raise OutOfTime(f"a step of {one:.2g} s is too long to be tried within {seconds:.0f} s")
    if why := unfit(configs[0], data_dir):
        return {"ratio": None, "why": why}
    found = beside(configs, images, ROUNDS, STEPS, end)
    if len(found[FUSED]) < FEWEST:
        raise OutOfTime(f"{len(configs)} as one were not measured {FEWEST} times within {seconds:.0f} s")
    ratio = spread(found[ALONE] / found[FUSED])["median"]
    slow = f"{len(configs)} as one take {ratio:.2f}x the steps a second of one after the other"
    return {"ratio": ratio, "why": slow if ratio < fusing.WORTH else ""}


def step_seconds(config: Config, images: Data) -> float:
    """Of one trial, after its first step: the shortest of three, as what a busy machine adds is not the step's."""
    with computing(config):
        training = Training(with_steps(config, 4), images)
        training.advance()
        return min(timed(training.advance, 1, training.device) for _ in range(3))


def beside(
    configs: Sequence[Config], images: Sequence[Data], rounds: int, steps: int, end: float = math.inf
) -> dict[str, Seconds]:
    """Seconds of a step of all of them, a value a round that was through by `end`: as one, and one after the other."""
    count = len(configs)
    configs = [with_steps(config, (WARM_UP + rounds * steps) * count) for config in configs]  # one takes those of all
    with computing(configs[0]), Group(torch_device(configs[0])) as group:
        members = [Member(group, config, data, None) for config, data in zip(configs, images, strict=True)]
        alone = Training(configs[0], images[0])

        def one_after_the_other() -> None:
            for _ in range(count):
                alone.advance()

        sides: dict[str, Call] = {
            FUSED: partial(in_time, end, partial(group.advance, members)),
            ALONE: partial(in_time, end, one_after_the_other),
        }
        found = []
        with suppress(OutOfTime):
            list(turns(sides, 1, WARM_UP, group.device))
            for turn in turns(sides, rounds, steps, group.device):
                found.append(turn)
        return gathered(found, sides)


def in_time(end: float, call: Call) -> None:
    """Raises OutOfTime where it is past `end`, on the monotonic clock."""
    if time.monotonic() > end:
        raise OutOfTime
    call()
