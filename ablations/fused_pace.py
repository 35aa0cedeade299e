"""Whether trials pay as one on this device: their steps beside those of one after the other, and whether they agree."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ablations import faults, fusing
from ablations.bench_clock import Call, Seconds, interleaved, spread
from ablations.provenance import versions
from results import store
from vitcore.config import Config, merge
from vitcore.data import Data
from vitcore.device import hardware, torch_device, torch_threads
from vitcore.fused import Group, Member, refuse, together, unfit
from vitcore.measure import measure
from vitcore.train import Training

Json = dict[str, Any]
ROUNDS, STEPS, WARM_UP = 3, 10, 3
BUSY = 4e12  # FLOPs of a train step that no device is through with before its kernels are started: not tried
FUSED, ALONE = "as one", "one after the other"


def against(configs: Sequence[Config], runs: Path, data_dir: Path | None, code: str) -> str:
    """Why these trials are not to be trained as one here; "" where they are. Measured once a device, and filed.

    `code`: digest of the sources and the plugins. What kept it from being measured is told, not filed: it may pass.
    Raises what leaves the device lost.
    """
    device, key = hardware(configs[0]), f"{fusing.kin(configs[0].model_dump())} x {len(configs)}"
    of = {"code": code, "versions": versions()}
    known = fusing.read(runs, device).get(key)
    if known is None or any(known.get(name) != value for name, value in of.items()):
        try:
            found = probe(configs, data_dir)
        except Exception as error:  # whatever a part meets under vmap, or memory: they are trained alone
            if faults.classify(error).fatal:
                raise
            return f"{type(error).__name__}: {' '.join(str(error).split())}"
        known = {**of, "when": store.now(), **found}
        fusing.write(runs, device, {key: known})
    return str(known["why"])


def probe(configs: Sequence[Config], data_dir: Path | None) -> Json:
    """How many times as fast they are as one, and why they are not to be trained so ("": they are).

    Raises what a part, its data or the device raises of a step.
    """
    flops = 3 * measure(configs[0])["flops"] * configs[0].batch
    if flops > BUSY:
        return {"ratio": None, "why": f"a step of {flops:.2g} FLOPs keeps a device busy alone"}
    refuse(configs)
    images = together(configs, data_dir)
    if why := unfit(configs[0], data_dir):
        return {"ratio": None, "why": why}
    seconds = beside(configs, images, ROUNDS, STEPS)
    ratio = spread(seconds[ALONE] / seconds[FUSED])["median"]
    slow = f"{len(configs)} as one take {ratio:.2f}x the steps a second of one after the other"
    return {"ratio": ratio, "why": slow if ratio < fusing.WORTH else ""}


def beside(configs: Sequence[Config], images: Sequence[Data], rounds: int, steps: int) -> dict[str, Seconds]:
    """Seconds of a step of all of them (rounds,): as one, and one after the other."""
    count = len(configs)
    every = {"steps": (WARM_UP + rounds * steps) * count}  # those of one, which takes the steps of all
    configs = [Config(**merge(config.model_dump(), every)) for config in configs]
    with torch_threads(configs[0].threads), Group(torch_device(configs[0])) as group:
        members = [Member(group, config, data, None) for config, data in zip(configs, images, strict=True)]
        alone = Training(configs[0], images[0])

        def one_after_the_other() -> None:
            for _ in range(count):
                alone.advance()

        sides: dict[str, Call] = {FUSED: partial(group.advance, members), ALONE: one_after_the_other}
        interleaved(sides, 1, WARM_UP, group.device)
        return interleaved(sides, rounds, steps, group.device)
