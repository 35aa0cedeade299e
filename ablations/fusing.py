"""Trials that are kin are handed to one worker together, which trains them as one where a probe says that this pays."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ablations.jobs import Job
from results import store
from vitcore.kin import PLAIN, common

Json = dict[str, Any]
WORTH = 1.2  # times the steps a second of one trial after the other, or it does not pay


def kin(config: Mapping[str, Any]) -> str:
    """What trials have in common that may be trained as one."""
    return store.checksum(common(config))[:12]


def sociable(config: Mapping[str, Any]) -> bool:
    """Whether it may have company at all."""
    return all(config.get(name, value) == value for name, value in PLAIN.items())


def company(lead: Job, waiting: Iterable[Job], slots: int, most: int) -> list[Job]:
    """Those that wait and are kin of `lead`, as many as leave each slot its part of them, `most` with it."""
    if most < 2 or not sociable(lead.config):
        return []
    mine = kin(lead.config)
    found = [job for job in waiting if kin(job.config) == mine]
    share = -(-(1 + len(found)) // slots)
    return found[: min(most, share) - 1]


def path(runs: Path, device: str) -> Path:
    return runs / "probes" / "fused" / f"{re.sub(r'[^A-Za-z0-9]+', '-', device).strip('-')}.json"


def read(runs: Path, device: str) -> dict[str, Json]:
    """What probes found on the device, by kin and number of members; a file that cannot be read is none."""
    try:
        found: dict[str, Json] = store.read_json(path(runs, device))["groups"]
        return found
    except (store.Broken, FileNotFoundError, KeyError):
        return {}


def write(runs: Path, device: str, measured: Mapping[str, Json]) -> None:
    """Adds to what is there."""
    groups = read(runs, device) | dict(measured)
    store.write_json(path(runs, device), {"schema": store.SCHEMA, "device": device, "groups": groups})
