"""Trials that are kin are handed to one worker together, which trains them as one where a probe says that this pays."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ablations import paces
from ablations.jobs import Job
from results import store
from vitcore.kin import PLAIN, common

Json = dict[str, Any]
WORTH = 1.2  # times the steps a second of one trial after the other, or it does not pay
AUTO, OFF = 0, 1  # what may be asked for, besides how many
MOST = 8  # members, where nobody says how many


def asked(word: str) -> int:
    """What `--fuse WORD` asks for. Raises ValueError."""
    if word in ("auto", "off"):
        return AUTO if word == "auto" else OFF
    if not (word.isascii() and word.isdecimal() and int(word) > 1):
        raise ValueError(f"--fuse {word}: auto, off, or how many at most, from 2 on")
    return int(word)


def most(asked: int, gpu: bool) -> int:
    """How many trials are handed over together; 1: each alone. A core is kept busy by one, so only a GPU tries."""
    return asked if asked != AUTO else MOST if gpu else OFF


def kin(config: Mapping[str, Any]) -> str:
    """What trials have in common that may be trained as one."""
    return store.checksum(common(config))[:12]


def sociable(config: Mapping[str, Any]) -> bool:
    """Whether it may have company at all."""
    return all(config.get(name, value) == value for name, value in PLAIN.items())


def company(lead: Job, waiting: Iterable[Job], places: int, most: int) -> list[Job]:
    """Those that wait and are kin of `lead`, as many as leave each place its part of them, `most` with it."""
    if most < 2 or not sociable(lead.config):
        return []
    mine = kin(lead.config)
    found = [job for job in waiting if kin(job.config) == mine]
    share = -(-(1 + len(found)) // places)
    return found[: min(most, share) - 1]


def parties(jobs: Iterable[Job], seconds: Mapping[str, float], longest: float, most: int) -> list[list[Job]]:
    """Kin together, `most` at most and of no more than `longest` seconds one after the other; as early as the first.

    seconds: of each alone, by id.
    """
    found: list[list[Job]] = []
    open_ones: dict[str, list[Job]] = {}  # the party of that kin which still takes more
    for job in jobs:
        mine = kin(job.config) if most > 1 and sociable(job.config) else job.id
        party = open_ones.get(mine, [])
        if not party or len(party) == most or sum(seconds[one.id] for one in [*party, job]) > longest:
            party = open_ones[mine] = []
            found.append(party)
        party.append(job)
    return found


def key(kin: str, members: int) -> str:
    """Under which a probe's verdict is filed."""
    return f"{kin} x {members}"


def verdicts(runs: Path) -> dict[str, list[Json]]:
    """What probes said, by kin: of how many members on which device, how many times the steps, and why not ("": so)."""
    found: dict[str, list[Json]] = defaultdict(list)
    for content in paces.files(runs):
        for name, said in content.get(paces.FUSED, {}).items():
            of, _, members = name.partition(" x ")
            about = {"device": content["device"], "members": int(members)}
            found[of].append({**about, "ratio": said["ratio"], "why": said["why"]})
    return found
